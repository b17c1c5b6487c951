#include "runtime/generate/Generate.h"
#include "runtime/train/RunDirectory.h"

#include <algorithm>
#include <chrono>
#include <memory>

namespace tessera {
namespace {

/// The context as token ids, checked against the model's vocabulary.
StatusOr<std::vector<int32_t>>
promptTokens(const TextModel &model, const tokenizer::Tokenizer &tokenizer,
             const GenerateOptions &options) {
  tokenizer::Encoder encoder(tokenizer);
  std::vector<uint32_t> ids = options.framed
                                  ? encoder.encodeFramed(options.prompt)
                                  : encoder.encode(options.prompt);
  if (ids.empty()) {
    std::optional<uint32_t> start = tokenizer.documentEnd();
    if (!start && options.startToken)
      start = uint32_t(*options.startToken);
    if (!start)
      return Status::error(
          "the prompt is empty, and neither the tokenizer nor "
          "the model has a beginning-of-sequence token; give a prompt");
    ids.push_back(*start);
  }
  int64_t vocab = model.vocab;
  std::vector<int32_t> tokens;
  for (uint32_t id : ids) {
    if (int64_t(id) >= vocab)
      return Status::error("the prompt has token {}, the model's vocabulary "
                           "ends at {}; this tokenizer belongs to another "
                           "model",
                           id, vocab);
    tokens.push_back(int32_t(id));
  }
  return tokens;
}

/// Logits of the token after `tokens`, of which the model reads the last T. The
/// tokens right of them are padding, which a causal model ignores.
StatusOr<std::span<const float>> nextLogits(TrainModel &model,
                                            std::span<const int32_t> tokens,
                                            std::vector<int32_t> &window) {
  auto context = std::size_t(std::max<int64_t>(model.contextLength(), 0));
  if (context == 0)
    return Status::error("this program has no logits program; compile the "
                         "model again: {}",
                         model.facts().rebuildCommand);
  std::span<const int32_t> seen = tokens.last(std::min(tokens.size(), context));
  window.assign(context, 0);
  std::copy(seen.begin(), seen.end(), window.begin());
  StatusOr<std::span<const float>> logits = model.logits(window);
  if (!logits.ok())
    return logits.status();
  auto vocab = std::size_t(model.facts().vocabSize);
  return logits->subspan((seen.size() - 1) * vocab, vocab);
}

} // namespace

TextModel scoringModel(TrainModel &model) {
  auto window = std::make_shared<std::vector<int32_t>>();
  const int64_t context = model.contextLength();
  return {model.facts().vocabSize, context, context,
          [&model, window](std::span<const int32_t> text) {
            return nextLogits(model, text, *window);
          }};
}

namespace {

/// Tokens that are read again when the context is full.
int64_t halfOf(int64_t context) { return std::max<int64_t>(context / 2, 1); }

/// One sequence of the decoder, and how many tokens it has read.
class DecodedText {
public:
  explicit DecodedText(Decoder &decoder) : decoder(decoder) {}
  ~DecodedText() { decoder.release(sequence); }
  DecodedText(const DecodedText &) = delete;
  DecodedText &operator=(const DecodedText &) = delete;

  StatusOr<std::span<const float>> next(std::span<const int32_t> text) {
    TESSERA_RETURN_IF_ERROR(goOn(text, {}));
    return decoder.logits(0);
  }
  StatusOr<int32_t> choose(std::span<const int32_t> text, Sampler &sampler,
                           int64_t choices, uint64_t draw,
                           const TokenMask *allowed) {
    return drawNext(decoder, sampler, choices, draw, allowed,
                    [&](const Wanted &wanted) { return goOn(text, wanted); });
  }

private:
  Status goOn(std::span<const int32_t> text, const Wanted &wanted) {
    std::span<const int32_t> added = text.subspan(seen);
    if (!decoder.hasRoom(sequence, int64_t(added.size()))) {
      if (decoder.shape().hasWholePrompts)
        return Status::error("the context of {} tokens is full, and where the "
                             "tokens of a prompt see each other "
                             "(attention.prompts) it does not go on from its "
                             "end; raise inference.context, or generate fewer "
                             "tokens",
                             decoder.shape().context);
      decoder.release(sequence);
      auto half = size_t(halfOf(decoder.shape().context));
      added = text.last(std::min(text.size(), half));
    }
    TESSERA_RETURN_IF_ERROR(advance(added, wanted));
    seen = text.size();
    return Status::success();
  }

  Status advance(std::span<const int32_t> added, const Wanted &wanted) {
    if (added.size() != 1 || sequence.length() == 0)
      return decoder.read(sequence, added, wanted);
    Sequence *one[] = {&sequence};
    return decoder.step(one, added, wanted);
  }

  Decoder &decoder;
  Sequence sequence;
  size_t seen = 0;
};

} // namespace

TextModel decodingModel(Decoder &decoder) {
  auto text = std::make_shared<DecodedText>(decoder);
  const int64_t context = decoder.shape().context;
  return {
      decoder.shape().vocab, context, halfOf(context),
      [text](std::span<const int32_t> tokens) { return text->next(tokens); },
      [text](std::span<const int32_t> tokens, Sampler &sampler, int64_t choices,
             uint64_t draw, const TokenMask *allowed) {
        return text->choose(tokens, sampler, choices, draw, allowed);
      }};
}

/// The token after `text`, sampled by the model where it can.
static StatusOr<int32_t> nextToken(const TextModel &model,
                                   std::span<const int32_t> text,
                                   Sampler &sampler, int64_t choices,
                                   uint64_t draw, const TokenMask *allowed) {
  if (model.choose)
    return model.choose(text, sampler, choices, draw, allowed);
  auto logits = model.next(text);
  if (!logits.ok())
    return logits.status();
  return sampler.sample(logits->first(size_t(choices)), draw, allowed);
}

namespace {

/// The output while it is generated.
class Generation {
public:
  Generation(const TextModel &model, const tokenizer::Tokenizer &tokenizer,
             const GenerateOptions &options, std::vector<int32_t> prompt,
             const TextSink &sink)
      : model(model), options(options), sink(sink), sampler(options.sampling),
        decoder(tokenizer, /*skipSpecial=*/true), tokens(std::move(prompt)),
        ends(options.endTokens),
        choices(std::min<int64_t>(model.vocab, tokenizer.vocabSize())) {
    if (auto end = tokenizer.documentEnd(); end && ends.empty())
      ends.push_back(int32_t(*end));
    result.promptTokens = tokens.size();
    if (model.context > 0 && tokens.size() > uint64_t(model.context))
      result.droppedTokens = tokens.size() - uint64_t(model.rereads);
    result.context = uint64_t(model.context);
    result.ended = options.guide && options.guide->isComplete();
    sampler.sawPrompt(tokens);
  }
  bool isOver() const {
    return result.ended || result.tokens.size() >= options.maxTokens;
  }
  Status addToken();
  GenerateResult finish() {
    tell(decoder.finish());
    return std::move(result);
  }

private:
  void tell(const std::string &text) const {
    if (!text.empty())
      sink(text);
  }

  const TextModel &model;
  const GenerateOptions &options;
  const TextSink &sink;
  Sampler sampler;
  tokenizer::StreamDecoder decoder;
  std::vector<int32_t> tokens; ///< prompt and generated tokens
  std::vector<int32_t> ends;
  /// A vocabulary padded beyond the tokenizer's has ids without a token.
  int64_t choices;
  GenerateResult result;
};

} // namespace

Status Generation::addToken() {
  const TokenMask *allowed = nullptr;
  if (options.guide) {
    auto mask = options.guide->allowed();
    if (!mask.ok())
      return mask.status();
    allowed = *mask;
  }
  StatusOr<int32_t> token =
      nextToken(model, tokens, sampler, choices, result.tokens.size(), allowed);
  if (!token.ok())
    return token.status();
  sampler.saw(*token);
  tokens.push_back(*token);
  result.tokens.push_back(*token);
  const bool isEnd = std::ranges::count(ends, *token) > 0;
  result.ended = isEnd && (!options.ignoreEnd || options.guide);
  if (options.guide && !isEnd) {
    TESSERA_RETURN_IF_ERROR(options.guide->accept(*token));
    result.ended = options.guide->isComplete();
  }
  // A token that ends the output is not part of it, special in tokenizer.json
  // or not.
  if (!isEnd || !result.ended)
    tell(decoder.push(uint32_t(*token)));
  return Status::success();
}

StatusOr<GenerateResult> generateText(const TextModel &model,
                                      const tokenizer::Tokenizer &tokenizer,
                                      const GenerateOptions &options,
                                      const TextSink &sink) {
  using Clock = std::chrono::steady_clock;
  TESSERA_RETURN_IF_ERROR(checkSampling(options.sampling));
  auto prompt = promptTokens(model, tokenizer, options);
  if (!prompt.ok())
    return prompt.status();
  Generation text(model, tokenizer, options, prompt.take(), sink);
  auto begin = Clock::now();
  while (!text.isOver())
    TESSERA_RETURN_IF_ERROR(text.addToken());
  GenerateResult result = text.finish();
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return result;
}

StatusOr<GenerateResult> generateWith(SessionModel &model, bool decodes,
                                      const tokenizer::Tokenizer &tokenizer,
                                      const GenerateOptions &options,
                                      const TextSink &sink) {
  if (!decodes)
    return generateText(scoringModel(model), tokenizer, options, sink);
  auto programs = DecodePrograms::create(model.get());
  if (!programs.ok())
    return programs.status();
  std::unique_ptr<PagedModel> paged = programs.take();
  if (options.ranks)
    paged = options.ranks->lead(std::move(paged));
  Decoder decoder(std::move(paged));
  decoder.useAdapter(options.adapter);
  return generateText(decodingModel(decoder), tokenizer, options, sink);
}

StatusOr<GenerateResult> generateFromRun(const std::string &path,
                                         const GenerateOptions &options,
                                         const TextSink &sink,
                                         const TextSink &note) {
  TESSERA_RETURN_IF_ERROR(checkSampling(options.sampling));
  StatusOr<RunPath> place = resolveRun(path);
  if (!place.ok())
    return place.status();
  auto tokenizer =
      tokenizer::Tokenizer::load(place->run + "/" + kTokenizerFile);
  if (!tokenizer.ok())
    return tokenizer.status();
  auto opened = openRun(*place, options, note);
  if (!opened.ok())
    return opened.status();
  auto result = generateWith(*opened->model, !options.program.empty(),
                             *tokenizer, options, sink);
  if (result.ok())
    result->checkpoint = opened->checkpoint;
  return result;
}

} // namespace tessera
