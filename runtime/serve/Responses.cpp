#include "runtime/serve/Responses.h"

#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

using Json = nlohmann::ordered_json;

std::string print(const Json &json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string bytesOf(int32_t token, const tokenizer::Tokenizer &tokenizer) {
  const uint32_t id[] = {uint32_t(token)};
  return tokenizer::decodeBytes(tokenizer, id);
}

std::string textOf(int32_t token, const tokenizer::Tokenizer &tokenizer) {
  const uint32_t id[] = {uint32_t(token)};
  return tokenizer::decode(tokenizer, id);
}

Json chatToken(int32_t token, float logprob,
               const tokenizer::Tokenizer &tokenizer) {
  std::string bytes = bytesOf(token, tokenizer);
  return {{"token", textOf(token, tokenizer)},
          {"logprob", logprob},
          {"bytes", std::vector<uint8_t>(bytes.begin(), bytes.end())}};
}

Json chatLogprobs(std::span<const TokenEvent> events,
                  const tokenizer::Tokenizer &tokenizer) {
  Json content = Json::array();
  for (const TokenEvent &event : events) {
    Json top = Json::array();
    for (const auto &[token, logprob] : event.logprobs.top)
      top.push_back(chatToken(token, logprob, tokenizer));
    Json one = chatToken(event.token, event.logprobs.chosen, tokenizer);
    one["top_logprobs"] = std::move(top);
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json completionLogprobs(std::span<const TokenEvent> events, std::size_t offset,
                        const tokenizer::Tokenizer &tokenizer) {
  Json tokens = Json::array(), chosen = Json::array(), top = Json::array(),
       offsets = Json::array();
  for (const TokenEvent &event : events) {
    std::string text = textOf(event.token, tokenizer);
    tokens.push_back(text);
    chosen.push_back(event.logprobs.chosen);
    Json likeliest = Json::object();
    for (const auto &[token, logprob] : event.logprobs.top)
      likeliest[textOf(token, tokenizer)] = logprob;
    top.push_back(std::move(likeliest));
    offsets.push_back(offset);
    offset += text.size();
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(chosen)},
          {"top_logprobs", std::move(top)},
          {"text_offset", std::move(offsets)}};
}

Json logprobsJson(Endpoint endpoint, bool wanted,
                  std::span<const TokenEvent> events, std::size_t offset,
                  const tokenizer::Tokenizer &tokenizer) {
  if (!wanted)
    return nullptr;
  return endpoint == Endpoint::chat
             ? chatLogprobs(events, tokenizer)
             : completionLogprobs(events, offset, tokenizer);
}

Json headJson(const AnswerHead &head, bool chunk) {
  const char *object = head.endpoint == Endpoint::completions
                           ? "text_completion"
                       : chunk ? "chat.completion.chunk"
                               : "chat.completion";
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model}};
}

Json usageJson(const Usage &usage) {
  return {{"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.generated},
          {"total_tokens", usage.prompt + usage.generated},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached}}}};
}

Json finishJson(const std::optional<EngineResult> &end) {
  return end ? Json(finishName(end->reason)) : Json();
}

} // namespace

std::string_view finishName(FinishReason reason) {
  return reason == FinishReason::length ? "length" : "stop";
}

std::string wholeAnswer(const AnswerHead &head,
                        std::span<const WholeChoice> choices, bool logprobs,
                        const Usage &usage,
                        const tokenizer::Tokenizer &tokenizer) {
  Json answer = headJson(head, /*chunk=*/false);
  Json &list = answer["choices"] = Json::array();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    Json one = {{"index", i}};
    if (head.endpoint == Endpoint::chat)
      one["message"] = {{"role", "assistant"},
                        {"content", choices[i].text},
                        {"refusal", nullptr}};
    else
      one["text"] = choices[i].text;
    one["logprobs"] =
        logprobsJson(head.endpoint, logprobs, choices[i].tokens, 0, tokenizer);
    one["finish_reason"] = finishJson(choices[i].end);
    list.push_back(std::move(one));
  }
  answer["usage"] = usageJson(usage);
  return print(answer);
}

std::string roleChunk(const AnswerHead &head, std::size_t choice) {
  Json chunk = headJson(head, /*chunk=*/true);
  chunk["choices"] =
      Json::array({{{"index", choice},
                    {"delta", {{"role", "assistant"}, {"content", ""}}},
                    {"logprobs", nullptr},
                    {"finish_reason", nullptr}}});
  return print(chunk);
}

std::string deltaChunk(const AnswerHead &head, const Delta &delta,
                       bool logprobs, std::size_t textBefore,
                       const tokenizer::Tokenizer &tokenizer) {
  Json one = {{"index", delta.choice}};
  if (head.endpoint == Endpoint::chat) {
    one["delta"] = Json::object();
    if (!delta.text.empty())
      one["delta"]["content"] = delta.text;
  } else {
    one["text"] = delta.text;
  }
  one["logprobs"] =
      logprobsJson(head.endpoint, logprobs && !delta.tokens.empty(),
                   delta.tokens, textBefore, tokenizer);
  one["finish_reason"] = finishJson(delta.end);
  Json chunk = headJson(head, /*chunk=*/true);
  chunk["choices"] = Json::array({std::move(one)});
  return print(chunk);
}

std::string usageChunk(const AnswerHead &head, const Usage &usage) {
  Json chunk = headJson(head, /*chunk=*/true);
  chunk["choices"] = Json::array();
  chunk["usage"] = usageJson(usage);
  return print(chunk);
}

} // namespace tessera::serve
