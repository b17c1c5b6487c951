#include "runtime/train/Generate.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/ImportWeights.h"
#include "runtime/train/RunDirectory.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
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
    if (!start)
      return Status::error("the prompt is empty and the tokenizer has no "
                           "end-of-text token to start from; give a prompt");
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

/// Logits of the token after `tokens`, of which the last T are seen. What
/// stands right of them is padding that a causal model does not look at.
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

void endPhase(const GenerateOptions &options, const char *name) {
  if (options.phases)
    options.phases->end(name);
}

StatusOr<std::unique_ptr<SessionModel>>
openForGeneration(const std::string &program, const GenerateOptions &options) {
  StatusOr<ArtifactReader> reader = ArtifactReader::open(program);
  if (!reader.ok())
    return reader.status();
  hal::SessionOptions session;
  session.device = options.device;
  session.deviceOptions.threads = options.threads;
  session.recordOptions.profile = options.profile;
  if (options.program.empty()) {
    if (!reader->hasProgram("logits"))
      return Status::error("'{}' has no logits program; compile the model "
                           "again: {}",
                           program,
                           reader->root().rebuild_command()->string_view());
    session.programs.push_back("logits");
  }
  auto opened = hal::Session::open(*reader, session);
  if (!opened.ok())
    return opened.status();
  auto model = SessionModel::create(opened.take());
  endPhase(options, "memory");
  return model;
}

/// Loads the checkpoint asked for, or the newest intact one; returns its name.
StatusOr<std::string> loadWeights(const RunPath &place, TrainModel &model,
                                  const TextSink &note) {
  if (!place.checkpoint.empty()) {
    std::string directory = place.run + "/" + place.checkpoint;
    StatusOr<CheckpointManifest> manifest = verifyCheckpoint(directory);
    if (!manifest.ok())
      return manifest.status();
    TESSERA_RETURN_IF_ERROR(loadCheckpoint(directory, *manifest, model,
                                           /*parametersOnly=*/true));
    return place.checkpoint;
  }
  auto loaded = resumeNewest(place.run, model, /*parametersOnly=*/true);
  if (!loaded.ok())
    return loaded.status();
  std::optional<ResumedCheckpoint> newest = loaded.take();
  if (!newest)
    return Status::error("'{}' has no checkpoint yet", place.run);
  for (const std::string &line : newest->skipped)
    note(line);
  return newest->name;
}

/// That `run`, a run directory, has not that checkpoint.
Status missingCheckpoint(const std::string &run, const std::string &name) {
  constexpr std::size_t kShown = 8; // a line is to be read
  auto names = listCheckpoints(run);
  if (!names.ok())
    return names.status();
  if (names->empty())
    return Status::error("'{}' has no checkpoint yet", run);
  const std::size_t shown = std::min(names->size(), kShown);
  std::string list;
  for (std::size_t i = 0; i < shown; ++i)
    list += (i ? ", " : "") + (*names)[i];
  if (names->size() > shown)
    list += fmt::format(" and {} older", names->size() - shown);
  return Status::error("'{}' has no checkpoint '{}'; it has {}", run, name,
                       list);
}

} // namespace

StatusOr<RunPath> resolveRun(const std::string &path) {
  namespace fs = std::filesystem;
  std::error_code code;
  fs::path run = fs::path(path).lexically_normal();
  if (!run.has_filename()) // "run/" is "run"
    run = run.parent_path();
  const fs::path above =
      run.has_parent_path() ? run.parent_path() : fs::path(".");
  RunPath place;
  if (fs::exists(run / "manifest.json", code)) {
    place.checkpoint = run.filename().string();
    run = above;
  } else if (!fs::exists(run, code) && fs::exists(above / kProgramFile, code)) {
    return missingCheckpoint(above.string(), run.filename().string());
  }
  place.run = run.string();
  if (!fs::is_directory(run, code))
    return Status::error("'{}' is not a run directory, nor a model's with "
                         "config.json, nor in the hub's cache; correct the "
                         "name, or train a run with --out {}",
                         place.run, place.run);
  return place;
}

Status checkGenerate(const RunPath &place, const GenerateOptions &options) {
  TESSERA_RETURN_IF_ERROR(checkSampling(options.sampling));
  TESSERA_RETURN_IF_ERROR(hal::checkDeviceName(options.device));
  auto tokenizer = tokenizer::Tokenizer::load(place.run + "/" + kTokenizerFile);
  if (!tokenizer.ok())
    return tokenizer.status();
  auto names = listCheckpoints(place.run);
  if (!names.ok())
    return names.status();
  if (names->empty())
    return Status::error("'{}' has no checkpoint yet", place.run);
  return Status::success();
}

TextModel scoringModel(TrainModel &model) {
  auto window = std::make_shared<std::vector<int32_t>>();
  return {model.facts().vocabSize,
          [&model, window](std::span<const int32_t> text) {
            return nextLogits(model, text, *window);
          }};
}

namespace {

/// One sequence, and how much of the text it has seen.
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
      decoder.release(sequence);
      auto half = std::max<int64_t>(decoder.shape().context / 2, 1);
      added = text.last(std::min(text.size(), size_t(half)));
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
  return {
      decoder.shape().vocab,
      [text](std::span<const int32_t> tokens) { return text->next(tokens); },
      [text](std::span<const int32_t> tokens, Sampler &sampler, int64_t choices,
             uint64_t draw, const TokenMask *allowed) {
        return text->choose(tokens, sampler, choices, draw, allowed);
      }};
}

/// The token after `text`, chosen by the model where it can.
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

StatusOr<GenerateResult> generateText(const TextModel &model,
                                      const tokenizer::Tokenizer &tokenizer,
                                      const GenerateOptions &options,
                                      const TextSink &sink) {
  using Clock = std::chrono::steady_clock;
  TESSERA_RETURN_IF_ERROR(checkSampling(options.sampling));
  auto prompt = promptTokens(model, tokenizer, options);
  if (!prompt.ok())
    return prompt.status();
  std::vector<int32_t> tokens = prompt.take();
  GenerateResult result;
  result.promptTokens = tokens.size();
  Sampler sampler(options.sampling);
  sampler.sawPrompt(tokens);
  tokenizer::StreamDecoder decoder(tokenizer, /*skipSpecial=*/true);
  std::vector<int32_t> ends = options.endTokens;
  if (std::optional<uint32_t> end = tokenizer.documentEnd();
      end && ends.empty())
    ends.push_back(int32_t(*end));
  // A vocabulary padded beyond the tokenizer's has tokens without text.
  auto choices = std::min<int64_t>(model.vocab, tokenizer.vocabSize());
  auto begin = Clock::now();
  result.ended = options.guide && options.guide->isComplete();
  while (result.tokens.size() < options.maxTokens && !result.ended) {
    const TokenMask *allowed = nullptr;
    if (options.guide) {
      auto mask = options.guide->allowed();
      if (!mask.ok())
        return mask.status();
      allowed = *mask;
    }
    StatusOr<int32_t> token = nextToken(model, tokens, sampler, choices,
                                        result.tokens.size(), allowed);
    if (!token.ok())
      return token.status();
    sampler.saw(*token);
    tokens.push_back(*token);
    result.tokens.push_back(*token);
    bool isEnd = std::ranges::count(ends, *token) > 0;
    result.ended = isEnd && (!options.ignoreEnd || options.guide);
    if (options.guide && !isEnd) {
      TESSERA_RETURN_IF_ERROR(options.guide->accept(*token));
      result.ended = options.guide->isComplete();
    }
    // What ends a text is none of it, whether tokenizer.json calls it special.
    if (isEnd && result.ended)
      break;
    if (std::string text = decoder.push(uint32_t(*token)); !text.empty())
      sink(text);
  }
  if (std::string text = decoder.finish(); !text.empty())
    sink(text);
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return result;
}

StatusOr<GenerateResult> generateWith(SessionModel &model, bool decodes,
                                      const tokenizer::Tokenizer &tokenizer,
                                      const GenerateOptions &options,
                                      const TextSink &sink) {
  if (!decodes)
    return generateText(scoringModel(model), tokenizer, options, sink);
  auto decoder = Decoder::create(model.get());
  if (!decoder.ok())
    return decoder.status();
  return generateText(decodingModel(**decoder), tokenizer, options, sink);
}

StatusOr<OpenedRun> openRun(const RunPath &place,
                            const GenerateOptions &options,
                            const TextSink &note) {
  std::string program =
      options.program.empty() ? place.program() : options.program;
  auto model = openForGeneration(program, options);
  if (!model.ok())
    return model.status();
  StatusOr<std::string> loaded = loadWeights(place, **model, note);
  if (!loaded.ok())
    return loaded.status();
  endPhase(options, "weights");
  return OpenedRun{model.take(), loaded.take()};
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

/// Whether the weights were kept, and are in the model now.
static bool loadKept(const std::string &directory, WeightsCache &cache,
                     TrainModel &model) {
  if (!cache.reads && !cache.writes)
    return false;
  auto kept = KeptWeights::of(cache.folder, directory, model);
  if (!kept)
    return false;
  std::string note;
  if (cache.reads && kept->load(cache.writes, note)) {
    cache.mapped = kept->path();
    return true;
  }
  if (!note.empty())
    cache.note(note);
  if (cache.writes)
    cache.unkept = std::move(kept);
  return false;
}

StatusOr<std::unique_ptr<SessionModel>>
openModelDirectory(const std::string &directory,
                   const GenerateOptions &options) {
  if (options.weights && options.factors)
    return Status::error("weights that are multiplied with factors are "
                         "nobody else's: they are neither kept nor taken from "
                         "what is kept");
  auto model = openForGeneration(options.program, options);
  if (!model.ok())
    return model;
  if (options.weights && loadKept(directory, *options.weights, **model)) {
    endPhase(options, "weights");
    return model;
  }
  const WeightFactors none;
  StatusOr<ImportReport> report = importWeights(
      directory, **model, options.factors ? *options.factors : none);
  if (!report.ok())
    return report.status();
  endPhase(options, "weights");
  if (!report->unexpected.empty())
    return Status::error("'{}' has a tensor that the model of its config.json "
                         "has not: {} ({} in all)",
                         directory, report->unexpected.front(),
                         report->unexpected.size());
  return model;
}

} // namespace tessera
