#include "runtime/data/chat/Example.h"

#include <gtest/gtest.h>

using namespace tessera;
using namespace tessera::chat;

namespace {
Example parsed(std::string_view line) {
  auto example = parseExample(line, "f:1");
  EXPECT_TRUE(example.ok()) << example.message();
  return example.ok() ? example.take() : Example();
}

std::string errorOf(std::string_view line) {
  auto example = parseExample(line, "f:1");
  return example.ok() ? "accepted" : example.message();
}

std::string role(const JsonValue &message) {
  std::string_view text;
  message["role"].get(text);
  return std::string(text);
}
} // namespace

TEST(Example, ReadsEveryForm) {
  Example chat = parsed(
      R"({"messages": [{"role": "user", "content": "a"},
          {"role": "assistant", "content": null, "tool_calls": [{"type":
           "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]}],
          "tools": "[{\"type\": \"function\"}]", "id": 7,
          "chat_template_kwargs": {"enable_thinking": false}})");
  EXPECT_EQ(chat.objective, PackedObjective::Sft);
  EXPECT_TRUE(chat.isConversation);
  EXPECT_TRUE(chat.prompt.empty());
  ASSERT_EQ(chat.answers.size(), 1u);
  ASSERT_EQ(chat.answers[0].messages.size(), 2u);
  const JsonValue &call =
      chat.answers[0].messages[1]["tool_calls"].elements().at(0);
  EXPECT_TRUE(call["function"]["arguments"].isObject())
      << "a string of JSON is that JSON";
  EXPECT_TRUE(chat.tools.isArray());
  EXPECT_TRUE(chat.variables.isObject());

  Example strings = parsed(R"({"prompt": "p", "completion": "c"})");
  EXPECT_FALSE(strings.isConversation);
  EXPECT_EQ(strings.promptText, "p");
  EXPECT_EQ(strings.answers[0].text, "c");

  Example label = parsed(
      R"({"prompt": [{"role": "user", "content": "p"}], "label": false,
          "completion": [{"role": "assistant", "content": "c"}]})");
  EXPECT_EQ(label.objective, PackedObjective::Label);
  EXPECT_EQ(label.answers[0].kind, DocumentKind::Undesirable);

  Example pair = parsed(R"({"prompt": "p", "chosen": "c", "rejected": "r"})");
  EXPECT_EQ(pair.objective, PackedObjective::Preference);
  ASSERT_EQ(pair.answers.size(), 2u);
  EXPECT_EQ(pair.answers[0].kind, DocumentKind::Chosen);
  EXPECT_EQ(pair.answers[1].text, "r");
}

TEST(Example, FindsThePromptThatTwoAnswersHaveInCommon) {
  Example pair = parsed(
      R"({"chosen": [{"role": "system", "content": "s"},
                     {"role": "user", "content": "u"},
                     {"role": "assistant", "content": "a"}],
          "rejected": [{"role": "system", "content": "s"},
                       {"role": "user", "content": "u"},
                       {"role": "assistant", "content": "b"}]})");
  ASSERT_EQ(pair.prompt.size(), 2u);
  EXPECT_EQ(role(pair.prompt[1]), "user");
  ASSERT_EQ(pair.answers[0].messages.size(), 1u);
  EXPECT_EQ(role(pair.answers[1].messages[0]), "assistant");
}

TEST(Example, AnswersPrompts) {
  auto text = answeredPrompt(R"({"prompt": "1+1=", "answer": 2})", "2",
                             /*isCut=*/true, "f:1");
  ASSERT_TRUE(text.ok()) << text.message();
  EXPECT_FALSE(text->isConversation);
  EXPECT_EQ(text->promptText, "1+1=");
  ASSERT_EQ(text->answers.size(), 1u);
  EXPECT_EQ(text->answers[0].text, "2");
  EXPECT_TRUE(text->answers[0].isCut);

  auto chat = answeredPrompt(
      R"({"messages": [{"role": "user", "content": "u"}],
          "tools": "[]", "chat_template_kwargs": {"x": 1}})",
      "", /*isCut=*/false, "f:1");
  ASSERT_TRUE(chat.ok()) << chat.message();
  EXPECT_EQ(role(chat->prompt.at(0)), "user");
  EXPECT_EQ(role(chat->answers.at(0).messages.at(0)), "assistant");
  EXPECT_TRUE(chat->tools.isArray());

  for (const char *bad : {"[]", "{}", R"({"prompt": 3})", R"({"messages": []})",
                          R"({"messages": "x"})"})
    EXPECT_FALSE(answeredPrompt(bad, "x", false, "f:1").ok()) << bad;
}

TEST(Example, ToScoreMayBeEmptyOrEqual) {
  for (const char *line :
       {R"({"prompt": "a", "completion": ""})",
        R"({"prompt": "a", "chosen": "b", "rejected": "b"})"}) {
    EXPECT_FALSE(parseExample(line, "f:1").ok());
    EXPECT_TRUE(parseExample(line, "f:1", ExampleUse::Score).ok());
  }
}

TEST(Example, SaysWhatIsWrong) {
  EXPECT_EQ(errorOf("[]"), "f:1: must be a JSON object");
  EXPECT_EQ(errorOf("{}"),
            "f:1: must have \"messages\", or \"prompt\" with \"completion\" or "
            "with \"chosen\" and \"rejected\"");
  EXPECT_EQ(errorOf(R"({"prompt": "p", "chosen": "c"})"),
            "f:1: has a \"prompt\", but neither \"completion\" nor both "
            "\"chosen\" and \"rejected\"");
  EXPECT_EQ(errorOf(R"({"messages": []})"),
            "f:1: \"messages\" must be a list of messages that is not empty");
  EXPECT_EQ(errorOf(R"({"messages": [{"content": "x"}]})"),
            "f:1: messages[0] must be an object with a string \"role\"");
  EXPECT_EQ(errorOf(R"({"messages": [{"role": "user", "content": null}]})"),
            "f:1: messages[0] has no \"content\"");
  EXPECT_EQ(errorOf(R"({"messages": [{"role": "user"}]})"),
            "f:1: messages[0] has no \"content\"");
  EXPECT_EQ(
      errorOf(R"({"messages": [{"role": "assistant", "tool_calls": []}]})"),
      "f:1: messages[0] has no \"content\"");
  EXPECT_EQ(errorOf(R"({"messages": [{"role": "user", "content": 3}]})"),
            "f:1: messages[0]: \"content\" must be a string or a list of "
            "parts");
  EXPECT_EQ(errorOf(R"({"messages": [{"role": "user", "content":
                        [{"type": "image"}]}]})"),
            "f:1: messages[0]: parts of \"content\" must be {\"type\": "
            "\"text\", \"text\": \"…\"}; images and sound are not supported");
  EXPECT_EQ(errorOf(R"({"messages": [{"role": "user", "role": "assistant"}]})"),
            "f:1: messages[0] has the name 'role' twice");
  EXPECT_EQ(errorOf(R"({"prompt": "p", "chosen": "c", "rejected": "c"})"),
            "f:1: \"chosen\" and \"rejected\" are equal, so that nothing can "
            "be learned from the pair");
  EXPECT_EQ(errorOf(R"({"prompt": "p", "completion": ""})"),
            "f:1: \"completion\" is empty");
  EXPECT_EQ(errorOf(R"({"prompt": "p", "completion": [1]})"),
            "f:1: \"completion\" must be a string, as \"prompt\" is");
  EXPECT_EQ(errorOf(R"({"prompt": "p", "completion": "c", "label": 1})"),
            "f:1: \"label\" must be true or false");
  EXPECT_EQ(errorOf(R"({"messages": [{"role": "assistant", "tool_calls":
                        [{"function": {"arguments": "{"}}]}]})"),
            "f:1: messages[0]: the arguments of a tool call must be a JSON "
            "object, or one as a string");
  EXPECT_EQ(errorOf(R"({"messages": [{"role": "user", "content": ""}],
                        "chat_template_kwargs": {"messages": [1]}})"),
            "f:1: \"chat_template_kwargs\" must not have \"messages\"");
  EXPECT_EQ(
      errorOf("{\"prompt\": \"\xff\", \"completion\": \"c\"}").substr(0, 20),
      "f:1: not valid JSON:");
  EXPECT_NE(errorOf(std::string(300, '[')).find("nested deeper than 256"),
            std::string::npos);
  std::string many = R"({"messages": [)";
  for (size_t i = 0; i <= maxMessages; ++i)
    many +=
        std::string(i == 0 ? "" : ",") + R"({"role": "user", "content": ""})";
  EXPECT_EQ(errorOf(many + "]}"),
            "f:1: \"messages\" has 4097 messages; up to 4096 are supported");
}
