#include "runtime/serve/ToolCalls.h"
#include "runtime/infer/grammar/Matcher.h"
#include "runtime/serve/Forms.h"
#include "runtime/support/SplitMix64.h"

#include <gtest/gtest.h>

namespace tessera::serve {
namespace {

struct Read {
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;
  bool operator==(const Read &) const = default;
};

void add(const ToolPieces &pieces, Read &to) {
  to.content += pieces.content;
  for (const CallPiece &piece : pieces.calls) {
    ASSERT_EQ(piece.name.empty(), piece.index < to.calls.size());
    if (!piece.name.empty())
      to.calls.emplace_back(piece.name, "");
    to.calls.at(piece.index).second += piece.arguments;
  }
}

/// In pieces that end at random places; 0: a byte at a time.
Read read(const ToolFormat &format, std::string_view text, uint64_t seed) {
  ToolCallReader reader(format);
  SplitMix64 random(seed);
  Read result;
  while (!text.empty()) {
    size_t length = seed ? 1 + random() % 9 : 1;
    add(reader.push(text.substr(0, length)), result);
    text.remove_prefix(std::min(length, text.size()));
  }
  add(reader.finish(), result);
  EXPECT_EQ(result.calls.size(), reader.calls());
  return result;
}

const ToolFormat &hermes() {
  return *toolFormatOf("{{ tools }} <tool_call></tool_call>");
}
const ToolFormat &mistral() { return *toolFormatOf("tools [TOOL_CALLS] ["); }
const ToolFormat &llama() {
  return *toolFormatOf("tools ipython \"parameters\": x");
}

const ToolFormat &format(std::string_view chatTemplate) {
  return *toolFormatOf(chatTemplate);
}

const ToolFormat &deepseek31() {
  return format("tools <｜tool▁calls▁begin｜>");
}
const ToolFormat &phi() { return format("tools <|tool_call|><|/tool_call|>"); }

void expect(const ToolFormat &format, std::string_view text,
            const Read &wanted) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Read found = read(format, text, seed);
    EXPECT_EQ(found.content, wanted.content) << text << seed;
    EXPECT_EQ(found.calls, wanted.calls) << text << seed;
  }
}

TEST(ToolCalls, FormatsAreThoseOfTemplates) {
  EXPECT_EQ(hermes().name, "Hermes");
  EXPECT_EQ(mistral().name, "Mistral");
  EXPECT_EQ(llama().name, "Llama 3");
  for (const char *none : {"", "<tool_call>", "tools [TOOL_CALLS]", "tools",
                           "tools \"parameters\": "})
    EXPECT_EQ(toolFormatOf(none), nullptr) << none;
  for (const auto &[text, name] :
       std::initializer_list<std::pair<const char *, const char *>>{
           {"tools [TOOL_CALLS]name[ARGS]", "Mistral 2025"},
           {"tools <｜tool▁calls▁begin｜> ```json", "DeepSeek V3"},
           {"tools <｜tool▁calls▁begin｜>", "DeepSeek V3.1"},
           {"tools <|tool_calls_section_begin|>", "Kimi K2"},
           {"tools <|tool_call|>", "Granite 3"},
           {"tools <|tool_call|><|/tool_call|>", "Phi-4-mini"},
           {"tools <tool_calls>", "HunYuan"},
           {"tools <|START_ACTION|>", "Command R7B"}}) {
    const ToolFormat *found = toolFormatOf(text);
    ASSERT_NE(found, nullptr) << text;
    EXPECT_EQ(found->name, name);
  }
  using Tags = std::vector<std::string_view>;
  EXPECT_EQ(hermes().tags(), (Tags{"<tool_call>", "</tool_call>"}));
  EXPECT_EQ(
      format("tools <｜tool▁calls▁begin｜> ```json").tags(),
      (Tags{"<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
            "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"}));
}

// As `functions` want it.
TEST(ToolCalls, OnlyOne) {
  struct Case {
    const ToolFormat &format;
    std::string_view text;
    Read wanted;
  };
  for (const auto &[format, text, wanted] : std::initializer_list<Case>{
           {hermes(),
            R"(a <tool_call>{"name": "f", "arguments": {"a": 1}}
</tool_call><tool_call>{"name": "g", "arguments": {}}</tool_call> b)",
            {"a", {{"f", R"({"a": 1})"}}}},
           {mistral(),
            R"([TOOL_CALLS] [{"name": "f", "arguments": {}}, )"
            R"({"name": "g", "arguments": {}}])",
            {"", {{"f", "{}"}}}},
           {llama(),
            R"({"name": "f", "parameters": {"a": 1}}; {"name": "g",)"
            R"("parameters": {}})",
            {"", {{"f", R"({"a": 1})"}}}},
           {llama(), "no call", {"no call", {}}}}) {
    ToolCallReader whole(format, {}, /*onlyOne=*/true), bytes = whole;
    Read atOnce, slowly;
    add(whole.push(text), atOnce);
    add(whole.finish(), atOnce);
    for (char each : text)
      add(bytes.push(std::string_view(&each, 1)), slowly);
    add(bytes.finish(), slowly);
    for (const Read &read : {atOnce, slowly}) {
      EXPECT_EQ(read.content, wanted.content);
      EXPECT_EQ(read.calls, wanted.calls);
    }
  }
}

TEST(ToolCalls, FunctionsNeedNoForm) {
  auto needsForm = [](const std::string &more) {
    auto parsed = parseApiRequest(
        R"({"model":"m","messages":[{"role":"user","content":"a"}],
            "functions":[{"name":"f"}])" +
            more + "}",
        Endpoint::chat);
    EXPECT_TRUE(std::holds_alternative<ApiRequest>(parsed));
    return needsToolForm(std::get<ApiRequest>(parsed));
  };
  EXPECT_FALSE(needsForm(""));
  EXPECT_FALSE(needsForm(R"(,"parallel_tool_calls":false)"));
  EXPECT_TRUE(needsForm(R"(,"function_call":{"name":"f"})"));
}

TEST(ToolCalls, Hermes) {
  expect(hermes(), "plain text < 3 {}", {"plain text < 3 {}", {}});
  expect(hermes(),
         "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"b\": "
         "\"}\\\"</tool_call>\"}]}}\n</tool_call>",
         {"", {{"f", R"({"a": [1, {"b": "}\"</tool_call>"}]})"}}});
  expect(hermes(),
         "Let me look.\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}"
         "</tool_call>\n<tool_call>\n{\"arguments\": {\"x\": 1} , \"name\": "
         "\"g\"}\n</tool_call>\n",
         {"Let me look.", {{"f", "{}"}, {"g", R"({"x": 1})"}}});
  // Arguments that are a text of JSON, or missing.
  expect(
      hermes(),
      R"(<tool_call>{"name": "f\u00e9", "arguments": "{\"a\": 1}"}</tool_call>)"
      R"(<tool_call>{"name": "g"}</tool_call> done)",
      {" done", {{"fé", R"({"a": 1})"}, {"g", "{}"}}});
  // What is cut off keeps what came of it.
  expect(hermes(), R"(<tool_call>{"name": "f", "arguments": {"a": [1,)",
         {"", {{"f", R"({"a": [1,)"}}});
}

TEST(ToolCalls, Mistral) {
  expect(mistral(),
         R"([TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, )"
         R"({"name": "g", "arguments": {}}])",
         {"", {{"f", R"({"a": 1})"}, {"g", "{}"}}});
  expect(mistral(), "[TOOL] [TOOL_CALL", {"[TOOL] [TOOL_CALL", {}});
}

TEST(ToolCalls, Llama) {
  expect(llama(), R"( {"name": "f", "parameters": {"a": "b"}})",
         {"", {{"f", R"({"a": "b"})"}}});
  expect(llama(),
         R"(<|python_tag|>{"name": "f", "parameters": {}}; {"name": "g"})",
         {"", {{"f", "{}"}, {"g", "{}"}}});
  expect(llama(), R"({"answer": 3})", {R"({"answer": 3})", {}});
  expect(llama(), R"(See {"name": "f", "parameters": {}})",
         {R"(See {"name": "f", "parameters": {}})", {}});
}

TEST(ToolCalls, WhatIsNoCallIsContent) {
  for (const char *text :
       {"<tool_call>hello", "<tool_call>{\"name\": 3}</tool_call>",
        "<tool_call>{\"name\" \"f\"}", "<tool_call>{\"arguments\": {}}",
        "a <tool_cal", "<tool_call>", "<tool_call>{\"na", "  ",
        "<tool_call>{f}</tool_call>", "<tool_call>{\"name\": \"\"}"})
    expect(hermes(), text, {text, {}});
}

// Models stammer: a tag that stands twice, or stood there as a text.
TEST(ToolCalls, ACallBehindARepeatedTagIsOne) {
  const std::string call = R"({"name": "f", "arguments": {"a": 1}})";
  const std::string tag = "<tool_call>";
  for (const std::string &before : {tag, tag + tag, tag + "\n" + tag, tag + "x",
                                    tag + "<tool", "a " + tag + "["})
    expect(hermes(), before + tag + call + "</tool_call>",
           {before, {{"f", R"({"a": 1})"}}});
  expect(mistral(), "[TOOL_CALLS] [TOOL_CALLS] [" + call + "]",
         {"[TOOL_CALLS]", {{"f", R"({"a": 1})"}}});
  expect(mistral(), "[TOOL_CALLS][[, [TOOL_CALLS] [" + call + "]",
         {"[TOOL_CALLS][[,", {{"f", R"({"a": 1})"}}});
}

/// Any bytes: the same whatever the pieces, and content is never lost where
/// there are no calls.
TEST(ToolCalls, RandomTexts) {
  const std::string_view parts[] = {"<tool_call>",
                                    "</tool_call>",
                                    "{",
                                    "}",
                                    "\"name\"",
                                    "\"arguments\"",
                                    ":",
                                    ",",
                                    "\"f\"",
                                    " ",
                                    "\n",
                                    "x",
                                    "\\",
                                    "\"",
                                    "[",
                                    "]",
                                    "[TOOL_CALLS]",
                                    "<｜tool▁calls▁begin｜>",
                                    "<｜tool▁call▁begin｜>f<｜tool▁sep｜>",
                                    "<｜tool▁call▁end｜>",
                                    "<｜tool▁calls▁end｜>",
                                    "<|tool_call|>",
                                    "<|/tool_call|>",
                                    "{}",
                                    "{\"name\": \"f\", \"arguments\": {",
                                    "}}",
                                    ";"};
  SplitMix64 random(7);
  size_t called = 0, plain = 0;
  for (int i = 0; i < 9000; ++i) {
    std::string text;
    for (uint64_t j = random() % 12; j-- > 0;)
      text += parts[random() % std::size(parts)];
    for (const ToolFormat *format :
         {&hermes(), &mistral(), &llama(), &deepseek31(), &phi()}) {
      Read whole = read(*format, text, 0);
      EXPECT_EQ(whole, read(*format, text, 1 + random())) << text;
      if (whole.calls.empty())
        EXPECT_EQ(whole.content, text);
      ++(whole.calls.empty() ? plain : called);
    }
  }
  EXPECT_GT(called, 200U);
  EXPECT_GT(plain, 9000U);
}

TEST(ToolCalls, NamesBeforeArguments) {
  const Read two = {"So:", {{"f", R"({"a": {"b": "}"}})"}, {"g.h-1", "{}"}}};
  expect(
      format("tools <｜tool▁calls▁begin｜> ```json"),
      "So: <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n"
      "```json\n{\"a\": {\"b\": \"}\"}}\n```<｜tool▁call▁end｜>\n"
      "<｜tool▁call▁begin｜>function<｜tool▁sep｜>g.h-1\n```json\n{}\n```"
      "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
      two);
  expect(format("tools <｜tool▁calls▁begin｜>"),
         "So: <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>"
         "{\"a\": {\"b\": \"}\"}}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g.h-1"
         "<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
         two);
  expect(format("tools <|tool_calls_section_begin|>"),
         "So: <|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
         "<|tool_call_argument_begin|>{\"a\": {\"b\": \"}\"}}<|tool_call_end|>"
         "<|tool_call_begin|>g.h-1:1<|tool_call_argument_begin|> {}"
         "<|tool_call_end|><|tool_calls_section_end|>",
         two);
  expect(format("tools [TOOL_CALLS]name[ARGS]"),
         "So: [TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{\"a\": {\"b\": \"}\"}}"
         "[TOOL_CALLS]g.h-1[ARGS]{}",
         two);
}

TEST(ToolCalls, ListsWithAnEnd) {
  const std::string list = R"([{"name": "f", "arguments": {"a": 1}}, )"
                           R"({"name": "g", "arguments": {}}])";
  const Read two = {"", {{"f", R"({"a": 1})"}, {"g", "{}"}}};
  expect(format("tools <|tool_call|>"), "<|tool_call|>" + list, two);
  expect(format("tools <|tool_call|><|/tool_call|>"),
         "<|tool_call|>" + list + "<|/tool_call|>", two);
  expect(format("tools <tool_calls>"),
         "<tool_calls>\n" + list + "\n</tool_calls>", two);
  expect(format("tools <|START_ACTION|>"),
         "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": "
         "\"f\", \"parameters\": {\"a\": 1}},\n    {\"tool_call_id\": \"1\", "
         "\"tool_name\": \"g\", \"parameters\": {}}\n]<|END_ACTION|>",
         two);
}

TEST(ToolCalls, WhatBreaksIsContent) {
  for (std::string text :
       {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁begin｜>none",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>[1]",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜> <｜tool▁sep｜>{}",
        "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}"})
    expect(format("tools <｜tool▁calls▁begin｜>"), text, {text, {}});
  const std::string longName =
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>" + std::string(500, 'n');
  expect(format("tools <｜tool▁calls▁begin｜>"), longName, {longName, {}});
  expect(format("tools <｜tool▁calls▁begin｜>"),
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}"
         "<｜tool▁call▁end｜> and more",
         {" and more", {{"f", "{}"}}});
}

// A call that breaks before any of it was sent is content as a whole.
TEST(ToolCalls, WhatBreaksBehindItsNameIsContent) {
  std::string text =
      R"(<tool_call>{"name": "f", arguments: {"a":1}}</tool_call>)";
  expect(hermes(), text, {text, {}});
  text = R"(<tool_call>{"name": "f", "arguments": [1]}</tool_call>)";
  expect(hermes(), text, {text, {}});
  text = R"(<tool_call>{"name": "f", "argu)";
  expect(hermes(), text, {text, {}});
}

TEST(ToolCalls, NoArgumentsAreAnEmptyObject) {
  expect(hermes(), R"(<tool_call>{"name": "f", "arguments": null}</tool_call>)",
         {"", {{"f", "{}"}}});
  expect(hermes(), R"(<tool_call>{"name": "f"}</tool_call>)",
         {"", {{"f", "{}"}}});
}

bool allows(const grammar::Grammar &grammar, std::string_view text) {
  grammar::Matcher matcher(grammar);
  grammar::Reached reached = matcher.start();
  for (char byte : text)
    reached = matcher.step(reached.positions, uint8_t(byte));
  return reached.ends;
}

// Where the model decides, nothing that its form allows is read as a call that
// the tools' schemas do not allow.
TEST(ToolCalls, WhatAFormAllowsIsNoOtherCall) {
  auto parsed = parseApiRequest(
      R"({"model":"m","messages":[{"role":"user","content":"x"}],"tools":[
          {"type":"function","function":{"name":"f","strict":true,"parameters":
            {"type":"object","properties":{"a":{"const":1}},"required":["a"],
             "additionalProperties":false}}}]})",
      Endpoint::chat);
  const auto &request = std::get<ApiRequest>(parsed);
  for (const ToolFormat *format : {&hermes(), &mistral()}) {
    auto form = makeToolForm(request, *format, /*hasTag=*/true);
    ASSERT_TRUE(form.ok()) << form.message();
    const std::string good = R"({"name": "f", "arguments": {"a": 1}})";
    const std::string open(format->open), close(format->close);
    const std::string whole =
        open +
        (format->isList() ? " [" + good + "]" : "\n" + good + "\n" + close);
    const std::string parts[] = {
        open, close, whole, good, R"({"name": "f", "arguments": {"a": 2}})",
        " [", "[",   "]",   ", ", " ",
        "\n", "x"};
    SplitMix64 random(5);
    int allowed = 0, called = 0;
    for (int i = 0; i < 20000; ++i) {
      std::string text;
      for (uint64_t j = random() % 6; j-- > 0;)
        text += parts[random() % std::size(parts)];
      if (!allows(*(*form)->grammar, text))
        continue;
      ++allowed;
      for (const auto &[name, arguments] : read(*format, text, 0).calls) {
        ++called;
        EXPECT_EQ(arguments, R"({"a": 1})") << text;
      }
    }
    EXPECT_GT(allowed, 2000) << format->name;
    EXPECT_GT(called, 100) << format->name;
  }
}

// What `required` lets a model write is read as calls of the tools.
TEST(ToolCalls, RequiredCallsAreRead) {
  auto parsed = parseApiRequest(
      R"({"model":"m","messages":[{"role":"user","content":"x"}],
          "tool_choice":"required","tools":[
          {"type":"function","function":{"name":"f","parameters":
            {"type":"object","properties":{"a":{"const":1}},"required":["a"],
             "additionalProperties":false}}}]})",
      Endpoint::chat);
  const auto &request = std::get<ApiRequest>(parsed);
  const std::string arguments = R"({"a": 1})",
                    object = R"({"name": "f", "arguments": )" + arguments + "}";
  const std::pair<const char *, std::string> cases[] = {
      {"tools [TOOL_CALLS]name[ARGS]",
       "[TOOL_CALLS]f[ARGS]" + arguments + "[TOOL_CALLS]f[ARGS]" + arguments},
      {"tools <｜tool▁calls▁begin｜> ```json",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```"
       "json"
       "\n" +
           arguments +
           "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function"
           "<｜tool▁sep｜>f\n```json\n" +
           arguments + "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {"tools <｜tool▁calls▁begin｜>",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>" +
           arguments +
           "<｜tool▁call▁end｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>" +
           arguments + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {"tools <|tool_calls_section_begin|>",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
       "<|tool_call_argument_begin|>" +
           arguments + "<|tool_call_end|><|tool_calls_section_end|>"},
      {"tools <|tool_call|>", "<|tool_call|>[" + object + ", " + object + "]"},
      {"tools <|tool_call|><|/tool_call|>",
       "<|tool_call|>[" + object + "]<|/tool_call|>"},
      {"tools <|START_ACTION|>",
       R"(<|START_ACTION|>[{"tool_name": "f", "parameters": )" + arguments +
           "}]<|END_ACTION|>"}};
  for (const auto &[chatTemplate, text] : cases) {
    const ToolFormat &own = format(chatTemplate);
    auto form = makeToolForm(request, own, /*hasTag=*/false);
    ASSERT_TRUE(form.ok()) << form.message();
    EXPECT_TRUE(allows(*(*form)->grammar, text)) << own.name << text;
    EXPECT_FALSE(allows(*(*form)->grammar, "no call"));
    const Read found = read(own, text, 3);
    EXPECT_EQ(found.content, "") << own.name;
    ASSERT_GE(found.calls.size(), 1u) << own.name;
    for (const auto &[name, written] : found.calls)
      EXPECT_TRUE(name == "f" && written == arguments) << own.name;
  }
}

// An answer in JSON that happens to have a name is an answer.
TEST(ToolCalls, OfOtherNamesAreContent) {
  ToolCallReader reader(llama(), {"weather"});
  Read found;
  add(reader.push(R"({"name": "Alice", "age": 30})"), found);
  add(reader.finish(), found);
  EXPECT_EQ(found.content, R"({"name": "Alice", "age": 30})");
  EXPECT_TRUE(found.calls.empty());
}

} // namespace
} // namespace tessera::serve
