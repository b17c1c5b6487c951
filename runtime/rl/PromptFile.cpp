#include "runtime/rl/PromptFile.h"
#include "runtime/data/Json.h"
#include "runtime/data/TokenDataset.h"
#include "runtime/data/chat/ExampleReader.h"
#include "runtime/support/SplitMix64.h"

#include <algorithm>

namespace tessera::rl {
namespace {

StatusOr<std::vector<int32_t>> encode(const JsonValue &fields,
                                      const PromptEncoder &encoder) {
  const JsonValue &text = fields["prompt"], &messages = fields["messages"];
  if (text.isNull() == messages.isNull())
    return Status::error("a prompt has either 'prompt', a text, or 'messages', "
                         "a conversation");
  if (!messages.isNull()) {
    if (!encoder.messages)
      return Status::error("the model has no chat template for 'messages'; "
                           "give 'prompt', a text");
    return encoder.messages(messages);
  }
  std::string_view content;
  if (!text.get(content))
    return Status::error("'prompt' must be a string");
  return encoder.text(content);
}

StatusOr<Prompt> read(const chat::ExampleLine &line, std::string where,
                      const PromptEncoder &encoder, int64_t mostTokens) {
  auto fields = JsonValue::parse(line.text, where);
  if (!fields.ok())
    return fields.status();
  if (!fields->isObject())
    return Status::error("{}: must be a JSON object", where);
  auto tokens = encode(*fields, encoder);
  if (!tokens.ok())
    return Status::error("{}: {}", where, tokens.message());
  if (tokens->empty())
    return Status::error("{}: the prompt has no token", where);
  if (int64_t(tokens->size()) > mostTokens)
    return Status::error("{}: the prompt has {} tokens, and there is room for "
                         "{} before rollout.max_tokens; shorten it, or raise "
                         "batch.sequence",
                         where, tokens->size(), mostTokens);
  // Of a file with CRLF: a carriage return is white space outside of strings,
  // and inside of them JSON has none. Some readers of lines end at one.
  std::string text(line.text);
  std::ranges::replace(text, '\r', ' ');
  return Prompt{std::move(where), std::move(text), tokens.take()};
}

} // namespace

StatusOr<std::vector<Prompt>> readPrompts(const std::string &file,
                                          const PromptEncoder &encoder,
                                          int64_t mostTokens) {
  constexpr std::size_t kLines = 1024, kBytes = std::size_t(1) << 24;
  auto reader = chat::ExampleReader::open(file);
  if (!reader.ok())
    return reader.status();
  std::vector<Prompt> prompts;
  std::vector<chat::ExampleLine> lines;
  while (reader->next(kLines, kBytes, lines), !lines.empty())
    for (const chat::ExampleLine &line : lines) {
      auto prompt = read(line, fmt::format("{}:{}", file, line.number), encoder,
                         mostTokens);
      if (!prompt.ok())
        return prompt.status();
      prompts.push_back(prompt.take());
    }
  if (prompts.empty())
    return Status::error("'{}' has no prompts", file);
  return prompts;
}

uint64_t promptOfGroup(uint64_t seed, uint64_t number, uint64_t prompts) {
  const uint64_t epoch = number / prompts;
  return KeyedPermutation(prompts, mix64(seed + kGoldenGamma * (epoch + 1)))(
      number % prompts);
}

} // namespace tessera::rl
