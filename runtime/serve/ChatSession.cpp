#include "runtime/serve/ChatSession.h"
#include "runtime/serve/Choice.h"
#include <algorithm>

using namespace tessera;

void ChatSession::reset(const std::string &system) {
  messages.clear();
  if (!system.empty())
    messages.push_back({"system", system});
}

// Templates may render earlier turns differently: the common prefix of the
// cache is kept. The last token is always recomputed for its logits.
Status ChatSession::readPrompt(std::span<const int32_t> prompt,
                               const Wanted &wanted, Answer &answer) {
  auto [mine, theirs] = std::ranges::mismatch(cached, prompt);
  auto kept = std::min(size_t(mine - cached.begin()), prompt.size() - 1);
  // What earlier turns have would depend on this one.
  if (decoder.shape().hasWholePrompts)
    kept = 0;
  decoder.truncate(sequence, int64_t(kept));
  kept = size_t(sequence.length());
  cached.resize(kept);
  answer.kept = int64_t(kept);
  answer.read = int64_t(prompt.size() - kept);
  Status status = decoder.read(sequence, prompt.subspan(kept), wanted);
  if (!status.ok()) {
    decoder.release(sequence); // it may be partially cached
    cached.clear();
    return status;
  }
  cached.assign(prompt.begin(), prompt.end());
  return status;
}

Status ChatSession::generate(std::span<const int32_t> prompt,
                             const AnswerLimits &limits,
                             const std::function<void(std::string_view)> &show,
                             const std::function<bool()> &stop,
                             Answer &answer) {
  std::vector<int32_t> ends = limits.endTokens;
  std::vector<std::string> stops;
  serve::addChatStops(chat, tokenizer, ends, stops);
  tokenizer::StreamDecoder stream(tokenizer, /*skipSpecial=*/true);
  serve::StopMatcher matcher(stops);
  Sampler sampler(limits.sampling);
  sampler.sawPrompt(prompt);
  auto choices =
      std::min<int64_t>(decoder.shape().vocab, tokenizer.vocabSize());
  auto add = [&](const std::string &text) {
    if (!text.empty())
      show(text);
    answer.text += text;
  };
  // The first token is drawn after the prompt, each later one after the token
  // before.
  std::optional<int32_t> last;
  while (uint64_t(answer.generated) < limits.maxTokens && !matcher.found()) {
    auto run = [&](const Wanted &wanted) {
      if (!last)
        return readPrompt(prompt, wanted, answer);
      Sequence *one[] = {&sequence};
      TESSERA_RETURN_IF_ERROR(decoder.step(one, {&*last, 1}, wanted));
      cached.push_back(*last);
      return Status::success();
    };
    auto token = drawNext(decoder, sampler, choices, draws++, nullptr, run);
    if (!token.ok())
      return token.status();
    sampler.saw(*token);
    ++answer.generated;
    answer.ended = std::ranges::count(ends, *token) != 0;
    if (answer.ended)
      break;
    add(matcher.push(stream.push(uint32_t(*token))));
    if (stop() || (answer.full = !decoder.hasRoom(sequence, 1)))
      break;
    last = *token;
  }
  answer.ended |= matcher.found();
  if (!matcher.found())
    add(matcher.push(stream.finish()) + matcher.finish());
  return Status::success();
}

StatusOr<Answer>
ChatSession::say(const std::string &message, const AnswerLimits &limits,
                 const std::function<void(std::string_view)> &show,
                 const std::function<bool()> &stop) {
  messages.push_back({"user", message});
  auto prompt = serve::chatTokens(chat, messages, {}, tokenizer, encoder);
  Status status = prompt.status();
  Answer answer;
  if (status.ok() && prompt->empty())
    status = Status::error(
        "the model's chat template renders the conversation as empty");
  if (status.ok())
    status = generate(*prompt, limits, show, stop, answer);
  if (!status.ok()) {
    messages.pop_back();
    return status;
  }
  messages.push_back({"assistant", answer.text});
  return answer;
}
