#include "runtime/serve/Answers.h"

#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

using Json = nlohmann::ordered_json;

std::string print(const Json &json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json usageJson(const Usage &usage) {
  return {
      {"prompt_tokens", usage.prompt},
      {"completion_tokens", usage.generated},
      {"total_tokens", usage.prompt + usage.generated},
      {"prompt_tokens_details", {{"cached_tokens", usage.cached}}},
      {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning}}}};
}

/// Null before the end.
std::string finishJson(const std::optional<EngineResult> &end, bool hasCalls,
                       bool usesFunctions) {
  if (!end)
    return "null";
  if (end->reason == FinishReason::length)
    return R"("length")";
  if (hasCalls)
    return usesFunctions ? R"("function_call")" : R"("tool_calls")";
  return R"("stop")";
}

Json messageJson(const WholeChoice &choice, bool usesFunctions) {
  Json message = {
      {"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
  if (!choice.reasoning.empty())
    message["reasoning_content"] = choice.reasoning;
  if (choice.calls.empty())
    return message;
  if (choice.text.empty())
    message["content"] = nullptr;
  if (usesFunctions) {
    const ToolCall &call = choice.calls.front();
    message["function_call"] = {{"name", call.name},
                                {"arguments", call.arguments}};
    return message;
  }
  for (const ToolCall &call : choice.calls)
    message["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  return message;
}

Json callsJson(std::span<const CallPiece> pieces) {
  Json list = Json::array();
  for (const CallPiece &piece : pieces) {
    Json one = {{"index", piece.index}};
    if (!piece.name.empty()) {
      one["id"] = piece.id;
      one["type"] = "function";
      one["function"]["name"] = piece.name;
    }
    one["function"]["arguments"] = piece.arguments;
    list.push_back(std::move(one));
  }
  return list;
}

/// The delta of the only call.
Json functionJson(const CallPiece &piece) {
  Json one = Json::object();
  if (!piece.name.empty())
    one["name"] = piece.name;
  one["arguments"] = piece.arguments;
  return one;
}

/// Completions and chats, which have choices.
class ChoicesAnswer final : public Answer {
public:
  ChoicesAnswer(const ApiRequest &request, AnswerHead head,
                const tokenizer::Tokenizer &tokenizer)
      : request(request), head(std::move(head)), tokenizer(tokenizer) {}

  std::string whole(std::span<const WholeChoice> choices,
                    const Usage &usage) override {
    std::string list;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      Json one = {{"index", i}};
      if (isChat())
        one["message"] = messageJson(choices[i], request.usesFunctions);
      else
        one["text"] = choices[i].text;
      if (request.returnsTokens) {
        one["prompt_token_ids"] = choices[i].prompt;
        one["token_ids"] = choices[i].tokens;
      }
      std::string logprobs = request.logprobs
                                 ? choices[i].logprobs.json(request.endpoint)
                                 : "null";
      list += (i ? "," : "") +
              withMember(withMember(print(one), "logprobs", logprobs),
                         "finish_reason",
                         finishJson(choices[i].end, !choices[i].calls.empty(),
                                    request.usesFunctions));
    }
    return withMember(
        withMember(headText(/*chunk=*/false), "choices", "[" + list + "]"),
        "usage", print(usageJson(usage)));
  }

  void begin(HttpReply &reply) override {
    auto choices = std::size_t(request.n);
    for (std::size_t i = 0; isChat() && i < choices; ++i) {
      Json one = {{"index", i},
                  {"delta", {{"role", "assistant"}, {"content", ""}}},
                  {"logprobs", nullptr},
                  {"finish_reason", nullptr}};
      reply.event(chunk(print(one)));
    }
  }

  void delta(HttpReply &reply, const Delta &delta) override {
    Json one = {{"index", delta.choice}};
    if (isChat()) {
      one["delta"] = Json::object();
      if (!delta.text.empty())
        one["delta"]["content"] = delta.text;
      if (!delta.reasoning.empty())
        one["delta"]["reasoning_content"] = delta.reasoning;
      if (!delta.calls.empty() && request.usesFunctions)
        one["delta"]["function_call"] = functionJson(delta.calls.front());
      else if (!delta.calls.empty())
        one["delta"]["tool_calls"] = callsJson(delta.calls);
    } else {
      one["text"] = delta.text;
    }
    if (request.returnsTokens) {
      Json &ids = one["token_ids"] = Json::array();
      for (const ChoiceToken &token : delta.tokens)
        if (!token.isPrompt)
          ids.push_back(token.event.token);
    }
    std::string logprobs = "null";
    if (request.logprobs && !delta.tokens.empty()) {
      LogprobText text;
      text.add(request.endpoint, delta.tokens, tokenizer);
      logprobs = text.json(request.endpoint);
    }
    reply.event(
        chunk(withMember(
                  withMember(print(one), "logprobs", logprobs), "finish_reason",
                  finishJson(delta.end, delta.hasCalls, request.usesFunctions)),
              delta.text.size() + delta.reasoning.size()));
  }

  void end(HttpReply &reply, std::span<const WholeChoice>,
           const Usage &usage) override {
    std::vector<ServerEvent> last;
    if (request.includeUsage)
      last.push_back(
          {"", withMember(withMember(headText(/*chunk=*/true), "choices", "[]"),
                          "usage", print(usageJson(usage)))});
    last.push_back({"", "[DONE]"});
    reply.end(last);
  }

  void fail(HttpReply &reply, std::span<const WholeChoice>,
            const ApiError &error) override {
    const ServerEvent last[] = {{"", error.json()}};
    reply.end(last);
  }

private:
  bool isChat() const { return request.endpoint == Endpoint::chat; }

  std::string headText(bool chunk) const {
    const char *object = !isChat() ? "text_completion"
                         : chunk   ? "chat.completion.chunk"
                                   : "chat.completion";
    Json text = {{"id", head.id},
                 {"object", object},
                 {"created", head.created},
                 {"model", head.model}};
    if (request.asksTier && isChat())
      text["service_tier"] = "default";
    return print(text);
  }

  /// With include_usage, `usage` is null in every chunk but the last.
  std::string chunk(const std::string &choice, std::size_t length = 0) const {
    std::string text =
        withMember(headText(/*chunk=*/true), "choices", "[" + choice + "]");
    if (request.obfuscate)
      text = withMember(text, "obfuscation", '"' + paddingFor(length) + '"');
    return request.includeUsage ? withMember(text, "usage", "null") : text;
  }

  const ApiRequest &request;
  AnswerHead head;
  const tokenizer::Tokenizer &tokenizer;
};

} // namespace

std::string withMember(std::string object, std::string_view name,
                       std::string_view value) {
  object.pop_back();
  if (object.size() > 1)
    object += ',';
  return fmt::format("{}\"{}\":{}}}", object, name, value);
}

std::string metadataJson(const Metadata &metadata) {
  Json json = Json::object();
  for (const auto &[name, text] : metadata)
    json[name] = text;
  return print(json);
}

std::unique_ptr<Answer> makeAnswer(const ApiRequest &request, AnswerHead head,
                                   const tokenizer::Tokenizer &tokenizer) {
  if (request.endpoint == Endpoint::responses)
    return makeResponse(request, std::move(head));
  if (request.endpoint == Endpoint::messages)
    return makeMessage(request, std::move(head));
  return std::make_unique<ChoicesAnswer>(request, std::move(head), tokenizer);
}

} // namespace tessera::serve
