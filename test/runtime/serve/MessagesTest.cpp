// Anthropic's Messages API: bodies that are read, and messages that are
// written. anthropic_client.py has the client's view.
#include "runtime/serve/Answers.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

using Json = nlohmann::json;

ApiRequest readOf(const std::string &body) {
  auto parsed = parseApiRequest(body, Endpoint::messages);
  if (const auto *error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  return std::get<ApiRequest>(parsed);
}

std::string refusalOf(const std::string &messages) {
  auto parsed =
      parseApiRequest(R"({"messages":)" + messages + "}", Endpoint::messages);
  const auto *error = std::get_if<ApiError>(&parsed);
  return error ? error->message : "";
}

TEST(Messages, BlocksBecomeTheMessagesOfAChat) {
  const ApiRequest request = readOf(
      R"({"model":"m","max_tokens":9,"stop_sequences":["x"],
          "system":[{"type":"text","text":"be"},{"type":"text","text":"kind"}],
          "messages":[{"role":"user","content":"a"},
            {"role":"assistant","content":[
              {"type":"thinking","thinking":"why","signature":"s"},
              {"type":"text","text":"b"},
              {"type":"tool_use","id":"1","name":"f","input":{"x":[1,null]}},
              {"type":"tool_use","id":"2","name":"g","input":{}}]},
            {"role":"user","content":[
              {"type":"tool_result","tool_use_id":"1","is_error":true,
               "content":[{"type":"text","text":"c"}]},
              {"type":"tool_result","tool_use_id":"2"},
              {"type":"text","text":"d"},{"type":"text","text":"e"}]}]})");
  std::string all;
  for (const ChatMessage &each : request.messages) {
    all += each.role + "(" + each.callId + "):" + each.reasoning + "|" +
           each.content + "|";
    for (const ToolCall &call : each.calls)
      all += call.id + call.name + call.arguments;
    all += "\n";
  }
  EXPECT_EQ(all, "system():|be\nkind|\nuser():|a|\n"
                 "assistant():why|b|1f{\"x\":[1,null]}2g{}\n"
                 "tool(1):|c|\ntool(2):||\nuser():|d\ne|\n");
  EXPECT_EQ(request.maxTokens, 9);
  EXPECT_EQ(request.stop, std::vector<std::string>{"x"});
}

TEST(Messages, ToolChoicesHaveTypes) {
  auto choose = [](const std::string &choice) {
    return readOf(R"({"messages":[{"role":"user","content":"a"}],
        "tools":[{"name":"f","input_schema":{"type":"object"},"strict":true,
                  "cache_control":{"type":"ephemeral","ttl":"1h"}}],
        "tool_choice":)" +
                  choice + "}");
  };
  EXPECT_EQ(choose(R"({"type":"auto"})").toolUse, ToolUse::automatic);
  EXPECT_EQ(choose(R"({"type":"none"})").toolUse, ToolUse::none);
  EXPECT_EQ(choose(R"({"type":"any"})").toolUse, ToolUse::required);
  const ApiRequest one =
      choose(R"({"type":"tool","name":"f","disable_parallel_tool_use":true})");
  EXPECT_EQ(one.onlyTool, "f");
  EXPECT_FALSE(one.parallelCalls);
  EXPECT_TRUE(one.tools[0].strict);
  EXPECT_EQ(one.tools[0].json,
            R"({"type":"function","function":{"name":"f","parameters":)"
            R"({"type":"object"}}})");
}

TEST(Messages, OtherBlocksAreRefusedByName) {
  auto turn = [](const std::string &role, const std::string &block) {
    return R"([{"role":")" + role + R"(","content":[)" + block +
           R"(]},{"role":"user","content":"a"}])";
  };
  EXPECT_EQ(refusalOf(turn("user", R"({"type":"image"})")),
            "a block of type 'image' is not supported here; it may be text or "
            "tool_result");
  EXPECT_EQ(refusalOf(turn("assistant",
                           R"({"type":"redacted_thinking","data":"x"})")),
            "a block of type 'redacted_thinking' is not supported here; it may "
            "be text, thinking or tool_use");
  EXPECT_EQ(refusalOf(turn("user", "3")),
            "a block must be an object with a type");
  EXPECT_EQ(refusalOf(turn("user", R"({"type":"text","text":"a","x":1})")),
            "the field 'x' of a block of type text is not supported");
  EXPECT_EQ(refusalOf(turn("assistant", R"({"type":"tool_use","id":"1",
                              "name":"f","input":"{}"})")),
            "a block of type tool_use must have an id, a name, and the object "
            "input");
  EXPECT_EQ(refusalOf(turn("user", R"({"type":"tool_result"})")),
            "a tool_result must have a tool_use_id");
}

TEST(Messages, ErrorsHaveTheirOwnForm) {
  const Json error = Json::parse(
      ApiError{429, "later", "", "queue_full"}.json(ErrorForm::messages));
  EXPECT_EQ(error, Json::parse(R"({"type":"error","error":
      {"type":"rate_limit_error","message":"later"}})"));
  EXPECT_EQ(errorFormOf("/v1/messages/count_tokens"), ErrorForm::messages);
  EXPECT_EQ(errorFormOf("/v1/messages2"), ErrorForm::openAi);
}

/// Keeps the events.
class Events final : public HttpReply {
public:
  using HttpReply::begin;
  void send(int, std::string_view, std::string, std::string_view) override {}
  void begin(std::span<const ServerEvent>) override {}
  void event(std::string_view data, std::string_view name) override {
    all.push_back(Json::parse(data));
    EXPECT_EQ(all.back()["type"], name);
  }
  void end(std::span<const ServerEvent> last) override {
    for (const ServerEvent &each : last)
      event(each.data, each.name);
  }
  std::vector<Json> all;
};

/// Reasoning, text, two calls, the second in pieces, and text after it.
std::vector<Delta> deltas() {
  std::vector<Delta> list(3);
  list[0].reasoning = "why";
  list[0].text = "a";
  list[1].text = "b";
  list[1].calls = {{0, "1", "f", "{}"}, {1, "2", "g", R"({"x")"}};
  list[2].calls = {{1, "", "", ":[[1]]}"}};
  list[2].text = "c";
  return list;
}

std::unique_ptr<Answer> messageFor(const ApiRequest &request) {
  return makeMessage(request, {"msg_1", "m", 0, 7});
}

std::vector<WholeChoice> endedBy(FinishReason reason) {
  std::vector<WholeChoice> choices(1);
  choices[0].end = EngineResult{};
  choices[0].end->reason = reason;
  return choices;
}

TEST(Messages, AStreamHasTheSameBlocks) {
  ApiRequest request;
  request.endpoint = Endpoint::messages;
  auto whole = messageFor(request), stream = messageFor(request);
  Events events;
  stream->begin(events);
  for (const Delta &each : deltas()) {
    whole->note(each);
    stream->delta(events, each);
  }
  const Usage usage{.prompt = 7, .cached = 4, .generated = 9, .reasoning = 2};
  const auto choices = endedBy(FinishReason::stop);
  stream->end(events, choices, usage);
  const Json message = Json::parse(whole->whole(choices, usage));
  EXPECT_EQ(message["content"], Json::parse(R"([
      {"type":"thinking","thinking":"why","signature":""},
      {"type":"text","text":"ab"},
      {"type":"tool_use","id":"1","name":"f","input":{}},
      {"type":"tool_use","id":"2","name":"g","input":{"x":[[1]]}},
      {"type":"text","text":"c"}])"));
  EXPECT_EQ(message["stop_reason"], "tool_use");
  EXPECT_EQ(message["usage"]["input_tokens"], 3);
  EXPECT_EQ(message["usage"]["cache_read_input_tokens"], 4);

  Json started = events.all.front()["message"], content = Json::array();
  EXPECT_EQ(started["usage"]["input_tokens"], 7);
  std::string input;
  for (const Json &event : events.all) {
    if (event["type"] == "content_block_start")
      content.push_back(event["content_block"]), input.clear();
    if (event["type"] == "content_block_delta")
      for (const char *part : {"text", "thinking", "partial_json"})
        if (event["delta"].contains(part)) {
          const std::string piece = event["delta"][part];
          if (part == std::string_view("partial_json"))
            input += piece;
          else
            content.back()[part] =
                content.back()[part].get<std::string>() + piece;
        }
    if (event["type"] == "content_block_stop" && !input.empty())
      content.back()["input"] = Json::parse(input);
  }
  EXPECT_EQ(content, message["content"]);
  const Json &last = events.all[events.all.size() - 2];
  EXPECT_EQ(last["usage"], message["usage"]);
  EXPECT_EQ(last["delta"]["stop_reason"], "tool_use");
}

TEST(Messages, ACallThatIsCutIsNone) {
  ApiRequest request;
  auto whole = messageFor(request);
  Delta delta;
  delta.text = "a";
  delta.calls = {{0, "1", "f", R"({"x":)"}};
  whole->note(delta);
  const Json message =
      Json::parse(whole->whole(endedBy(FinishReason::length), {}));
  EXPECT_EQ(message["content"], Json::parse(R"([{"type":"text","text":"a"}])"));
  EXPECT_EQ(message["stop_reason"], "max_tokens");
  // Nor is one that the model did not end, or whose input is not an object.
  for (const char *input : {R"({"x":)", "[1]", "\"a\"", ""}) {
    auto other = messageFor(request);
    delta.calls = {{0, "1", "f", input}};
    other->note(delta);
    const Json ended =
        Json::parse(other->whole(endedBy(FinishReason::stop), {}));
    EXPECT_EQ(ended["stop_reason"], "end_turn") << input;
    EXPECT_EQ(ended["content"].size(), 1U);
  }
}

// Arguments that a model nests very deep are valid, and are not parsed.
TEST(Messages, DeepInputIsWritten) {
  ApiRequest request;
  auto whole = messageFor(request);
  Delta delta;
  const std::size_t depth = 200'000;
  delta.calls = {
      {0, "1", "f",
       R"({"x":)" + std::string(depth, '[') + std::string(depth, ']') + "}"}};
  whole->note(delta);
  const std::string text = whole->whole(endedBy(FinishReason::stop), {});
  EXPECT_GT(text.size(), 2 * depth);
  EXPECT_TRUE(Json::accept(text));
}

TEST(Messages, OnlyAClientsStopIsAStopSequence) {
  ApiRequest request;
  request.stop = {"x"};
  auto choices = endedBy(FinishReason::stop);
  for (const char *stop : {"x", "<|im_end|>"}) {
    choices[0].stopped = stop;
    const Json message = Json::parse(messageFor(request)->whole(choices, {}));
    const bool isOwn = stop == std::string_view("x");
    EXPECT_EQ(message["stop_reason"], isOwn ? "stop_sequence" : "end_turn");
    EXPECT_EQ(message["stop_sequence"], isOwn ? Json("x") : Json());
  }
}

} // namespace
} // namespace tessera::serve
