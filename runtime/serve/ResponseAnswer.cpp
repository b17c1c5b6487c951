// POST /v1/responses: one message of one text, and the typed events in which it
// comes. Nothing is kept: a response cannot be asked for again.
#include "runtime/serve/Answers.h"
#include "runtime/serve/Forms.h"

#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

using Json = nlohmann::ordered_json;

class ResponseAnswer final : public Answer {
public:
  ResponseAnswer(const ApiRequest &request, AnswerHead head)
      : request(request), head(std::move(head)),
        messageId("msg_" + this->head.id.substr(this->head.id.find('_') + 1)) {}

  std::string whole(std::span<const WholeChoice> choices,
                    const Usage &usage) override {
    return print(finished(choices[0], usage));
  }

  void begin(HttpReply &reply) override {
    Json response = responseJson("in_progress");
    send(reply, "response.created", {{"response", response}});
    send(reply, "response.in_progress", {{"response", response}});
    Json item = messageJson("in_progress");
    send(reply, "response.output_item.added",
         {{"output_index", 0}, {"item", item}});
    send(reply, "response.content_part.added", placed({{"part", part("")}}));
  }

  void delta(HttpReply &reply, const Delta &delta) override {
    if (!delta.text.empty())
      send(reply, "response.output_text.delta",
           placed({{"delta", delta.text}, {"logprobs", Json::array()}}));
  }

  void end(HttpReply &reply, std::span<const WholeChoice> choices,
           const Usage &usage) override {
    const std::string &text = choices[0].text;
    Json response = finished(choices[0], usage);
    const ServerEvent last[] = {
        event("response.output_text.done",
              placed({{"text", text}, {"logprobs", Json::array()}})),
        event("response.content_part.done", placed({{"part", part(text)}})),
        event("response.output_item.done",
              {{"output_index", 0}, {"item", response["output"][0]}}),
        event(isCut(choices[0]) ? "response.incomplete" : "response.completed",
              {{"response", response}})};
    reply.end(last);
  }

  void fail(HttpReply &reply, std::span<const WholeChoice> choices,
            const ApiError &error) override {
    Json response = responseJson("failed");
    response["error"] = {{"code", "server_error"}, {"message", error.message}};
    response["output"] =
        Json::array({messageJson("incomplete", choices[0].text)});
    const ServerEvent last[] = {
        event("response.failed", {{"response", response}})};
    reply.end(last);
  }

private:
  static std::string print(const Json &json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  static bool isCut(const WholeChoice &choice) {
    return choice.end && choice.end->reason == FinishReason::length;
  }

  /// Events count themselves.
  ServerEvent event(std::string_view type, Json members) {
    Json data = {{"type", type}, {"sequence_number", sequence++}};
    data.update(members);
    return {std::string(type), print(data)};
  }
  void send(HttpReply &reply, std::string_view type, Json members) {
    ServerEvent made = event(type, std::move(members));
    reply.event(made.data, made.name);
  }

  /// Members of an event about the only part of the only message.
  Json placed(Json members) const {
    Json all = {
        {"item_id", messageId}, {"output_index", 0}, {"content_index", 0}};
    all.update(members);
    return all;
  }

  static Json part(std::string_view text) {
    return {{"type", "output_text"},
            {"text", text},
            {"annotations", Json::array()},
            {"logprobs", Json::array()}};
  }

  Json messageJson(std::string_view status,
                   std::optional<std::string_view> text = {}) const {
    Json content = Json::array();
    if (text)
      content.push_back(part(*text));
    return {{"type", "message"},
            {"id", messageId},
            {"status", status},
            {"role", "assistant"},
            {"content", std::move(content)}};
  }

  Json finished(const WholeChoice &choice, const Usage &usage) const {
    const char *status = isCut(choice) ? "incomplete" : "completed";
    Json response = responseJson(status);
    if (isCut(choice))
      response["incomplete_details"] = {{"reason", "max_output_tokens"}};
    response["output"] = Json::array({messageJson(status, choice.text)});
    response["usage"] = {
        {"input_tokens", usage.prompt},
        {"input_tokens_details", {{"cached_tokens", usage.cached}}},
        {"output_tokens", usage.generated},
        {"output_tokens_details", {{"reasoning_tokens", 0}}},
        {"total_tokens", usage.prompt + usage.generated}};
    return response;
  }

  /// The number that was asked for, not what a float makes of it.
  static double shortest(float value) {
    return std::stod(fmt::to_string(value));
  }

  Json responseJson(std::string_view status) const {
    auto orNull = [](const auto &value) {
      return value ? Json(*value) : Json();
    };
    Json metadata = Json::object();
    for (const auto &[name, text] : request.metadata)
      metadata[name] = text;
    Json response = {{"id", head.id},
                     {"object", "response"},
                     {"created_at", head.created},
                     {"status", status},
                     {"background", false},
                     {"error", nullptr},
                     {"incomplete_details", nullptr},
                     {"instructions", orNull(request.instructions)},
                     {"max_output_tokens", orNull(request.maxTokens)},
                     {"model", head.model},
                     {"output", Json::array()},
                     {"parallel_tool_calls", false},
                     {"previous_response_id", nullptr},
                     {"store", false},
                     {"temperature", shortest(request.sampling.temperature)},
                     {"text",
                      {{"format", request.form ? Json::parse(request.form->json)
                                               : Json{{"type", "text"}}}}},
                     {"tool_choice", "none"},
                     {"tools", Json::array()},
                     {"top_p", shortest(request.sampling.topP)},
                     {"truncation", "disabled"},
                     {"usage", nullptr},
                     {"metadata", std::move(metadata)}};
    if (request.asksTier)
      response["service_tier"] = "default";
    return response;
  }

  const ApiRequest &request;
  AnswerHead head;
  std::string messageId;
  int64_t sequence = 0;
};

} // namespace

std::unique_ptr<Answer> makeResponse(const ApiRequest &request,
                                     AnswerHead head) {
  return std::make_unique<ResponseAnswer>(request, std::move(head));
}

} // namespace tessera::serve
