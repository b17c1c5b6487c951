#include "runtime/serve/Logprobs.h"

#include <iterator>

#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

std::string quoted(const std::string &text) {
  return nlohmann::json(text).dump(-1, ' ', false,
                                   nlohmann::json::error_handler_t::replace);
}

std::string textOf(int32_t token, const tokenizer::Tokenizer &tokenizer) {
  const uint32_t id[] = {uint32_t(token)};
  return quoted(tokenizer::decode(tokenizer, id));
}

/// The members of a token in a chat, without braces.
std::string chatToken(int32_t token, float logprob,
                      const tokenizer::Tokenizer &tokenizer) {
  const uint32_t id[] = {uint32_t(token)};
  std::string bytes = tokenizer::decodeBytes(tokenizer, id);
  std::string numbers;
  for (char byte : bytes)
    fmt::format_to(std::back_inserter(numbers), "{}{}",
                   numbers.empty() ? "" : ",", unsigned(uint8_t(byte)));
  return fmt::format(R"("token":{},"logprob":{},"bytes":[{}])",
                     textOf(token, tokenizer), nlohmann::json(logprob).dump(),
                     numbers);
}

void append(std::string &list, std::string_view element) {
  if (!list.empty())
    list += ',';
  list += element;
}

std::string chatElement(const TokenEvent &event,
                        const tokenizer::Tokenizer &tokenizer) {
  std::string top;
  for (const auto &[token, logprob] : event.logprobs.top)
    append(top, "{" + chatToken(token, logprob, tokenizer) + "}");
  return "{" + chatToken(event.token, event.logprobs.chosen, tokenizer) +
         R"(,"top_logprobs":[)" + top + "]}";
}

/// Of tokens with the same text only the likeliest, which comes first, is
/// listed: names in an object are unique.
std::string likeliest(const TokenEvent &event,
                      const tokenizer::Tokenizer &tokenizer) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const auto &[token, logprob] : event.logprobs.top) {
    const uint32_t id[] = {uint32_t(token)};
    object.emplace(tokenizer::decode(tokenizer, id), logprob);
  }
  return object.dump(-1, ' ', false,
                     nlohmann::ordered_json::error_handler_t::replace);
}

} // namespace

void LogprobText::add(Endpoint endpoint, std::span<const ChoiceToken> tokens,
                      const tokenizer::Tokenizer &tokenizer) {
  for (const auto &[event, offset, hasScore, isPrompt] : tokens) {
    if (endpoint == Endpoint::chat) {
      append(lists[0], chatElement(event, tokenizer));
      continue;
    }
    append(lists[0], textOf(event.token, tokenizer));
    append(lists[1],
           hasScore ? nlohmann::json(event.logprobs.chosen).dump() : "null");
    append(lists[2], hasScore ? likeliest(event, tokenizer) : "null");
    append(lists[3], fmt::to_string(offset));
  }
}

std::string LogprobText::json(Endpoint endpoint) const {
  if (endpoint == Endpoint::chat)
    return R"({"content":[)" + lists[0] + R"(],"refusal":null})";
  return R"({"tokens":[)" + lists[0] + R"(],"token_logprobs":[)" + lists[1] +
         R"(],"top_logprobs":[)" + lists[2] + R"(],"text_offset":[)" +
         lists[3] + "]}";
}

} // namespace tessera::serve
