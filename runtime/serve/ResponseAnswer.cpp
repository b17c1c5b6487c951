// POST /v1/responses: fills a record, starting with the constant members.
#include "runtime/serve/Answers.h"
#include "runtime/serve/Forms.h"

#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

using Json = nlohmann::ordered_json;

/// The number as given, without rounding to a float.
double shortest(float value) { return std::stod(fmt::to_string(value)); }

Json toolsJson(const ApiRequest &request) {
  Json list = Json::array();
  for (const Tool &tool : request.tools) {
    Json one = {{"type", "function"}};
    one.update(Json::parse(tool.json)["function"]);
    if (!one.contains("parameters"))
      one["parameters"] = nullptr;
    one["strict"] = tool.strict;
    list.push_back(std::move(one));
  }
  return list;
}

Json choiceJson(const ApiRequest &request) {
  if (!request.onlyTool.empty())
    return {{"type", "function"}, {"name", request.onlyTool}};
  switch (request.toolUse) {
  case ToolUse::none:
    return "none";
  case ToolUse::automatic:
    return "auto";
  case ToolUse::required:
    return "required";
  }
  return nullptr;
}

std::string constantsOf(const ApiRequest &request, const AnswerHead &head) {
  auto orNull = [](const auto &value) { return value ? Json(*value) : Json(); };
  Json previous;
  if (!request.previousId.empty())
    previous = request.previousId;
  Json form = Json{{"type", "text"}};
  if (request.form && !request.form->json.empty())
    form = Json::parse(request.form->json);
  Json response = {{"id", head.id},
                   {"object", "response"},
                   {"created_at", head.created},
                   {"background", request.background},
                   {"instructions", orNull(request.instructions)},
                   {"max_output_tokens", orNull(request.maxTokens)},
                   {"model", head.model},
                   {"parallel_tool_calls", request.parallelCalls},
                   {"previous_response_id", std::move(previous)},
                   {"store", request.store},
                   {"temperature", shortest(request.sampling.temperature)},
                   {"text", {{"format", std::move(form)}}},
                   {"tool_choice", choiceJson(request)},
                   {"tools", toolsJson(request)},
                   {"top_p", shortest(request.sampling.topP)},
                   {"truncation", request.dropsOldest ? "auto" : "disabled"},
                   {"metadata", Json::parse(metadataJson(request.metadata))}};
  if (request.asksTier)
    response["service_tier"] = "default";
  return response.dump(-1, ' ', false, Json::error_handler_t::replace);
}

class ResponseAnswer final : public Answer {
public:
  ResponseAnswer(const ApiRequest &request, const AnswerHead &head)
      : made(std::make_shared<ResponseRecord>()),
        // In the background each follower decides (Followers).
        writer(*made, request.obfuscate || request.background) {
    made->id = head.id;
    made->constants = constantsOf(request, head);
    made->background = request.background;
  }

  std::shared_ptr<ResponseRecord> record() const override { return made; }

  void begin(HttpReply &reply) override { start(&reply); }
  void delta(HttpReply &reply, const Delta &delta) override {
    writer.piece(&reply, delta);
  }
  void note(const Delta &delta) override {
    start(nullptr);
    writer.piece(nullptr, delta);
  }

  std::string whole(std::span<const WholeChoice> choices,
                    const Usage &usage) override {
    start(nullptr);
    finish(nullptr, choices[0], usage);
    return responseJson(*made);
  }
  void end(HttpReply &reply, std::span<const WholeChoice> choices,
           const Usage &usage) override {
    finish(&reply, choices[0], usage);
  }

  void fail(HttpReply &reply, std::span<const WholeChoice>,
            const ApiError &error) override {
    if (!made->isFinished()) // or it was cancelled
      made->status = ResponseStatus::failed;
    made->error = error.message;
    made->isAtFault = error.status == 0 || error.status >= 500;
    writer.end(&reply);
  }

private:
  void start(HttpReply *reply) {
    if (!std::exchange(begun, true))
      writer.begin(reply);
  }
  /// Set once.
  void finish(HttpReply *reply, const WholeChoice &choice, const Usage &usage) {
    if (made->isFinished())
      return;
    bool isCut = choice.end && choice.end->reason == FinishReason::length;
    made->status =
        isCut ? ResponseStatus::incomplete : ResponseStatus::completed;
    made->usage = usage;
    writer.end(reply);
  }

  std::shared_ptr<ResponseRecord> made;
  ResponseWriter writer;
  bool begun = false;
};

} // namespace

std::unique_ptr<Answer> makeResponse(const ApiRequest &request,
                                     AnswerHead head) {
  return std::make_unique<ResponseAnswer>(request, head);
}

} // namespace tessera::serve
