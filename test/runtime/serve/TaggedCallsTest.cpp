// Calls whose arguments are tagged one by one, in pieces of any size.
#include "runtime/serve/TaggedCalls.h"
#include "runtime/serve/Forms.h"
#include "runtime/support/SplitMix64.h"

#include <gtest/gtest.h>

namespace tessera::serve {
namespace {

using Calls = std::vector<std::pair<std::string, std::string>>;

struct TaggedRead {
  std::string content;
  Calls calls;
};

std::vector<Tool> someTools() {
  Tool weather{"weather", "{}",
               JsonValue::parse(R"({"type": "object", "properties": {
                   "city": {"type": "string"},
                   "unit": {"enum": ["C", "F"]},
                   "days": {"type": "integer"},
                   "exact": {"type": "boolean"},
                   "places": {"type": "array", "items": {"type": "string"}},
                   "note": {"type": ["string", "null"]},
                   "zip": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                   "any": {}}})",
                                "weather")
                   .take()};
  return {weather, {"clock", "{}", JsonValue()}};
}

/// In pieces that end at random places; 0: a byte at a time.
TaggedRead readTagged(const ToolFormat &format, std::string_view text,
                      uint64_t seed, bool onlyOne = false) {
  const std::vector<Tool> tools = someTools();
  auto reader = makeCallReader(format, tools, onlyOne);
  SplitMix64 random(seed);
  TaggedRead all;
  auto add = [&](const ToolPieces &pieces) {
    all.content += pieces.content;
    for (const CallPiece &piece : pieces.calls) {
      EXPECT_EQ(piece.index, all.calls.size());
      all.calls.emplace_back(piece.name, piece.arguments);
    }
  };
  while (!text.empty()) {
    const size_t length = seed ? 1 + random() % 9 : 1;
    add(reader->push(text.substr(0, length)));
    text.remove_prefix(std::min(length, text.size()));
  }
  add(reader->finish());
  EXPECT_EQ(reader->calls(), all.calls.size());
  return all;
}

void expectTagged(const ToolFormat &format, std::string_view text,
                  std::string_view content, const Calls &calls,
                  bool onlyOne = false) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const TaggedRead found = readTagged(format, text, seed, onlyOne);
    EXPECT_EQ(found.content, content) << text << seed;
    EXPECT_EQ(found.calls, calls) << text << seed;
  }
}

const ToolFormat &coder() {
  return *toolFormatOf("tools <tool_call><function=");
}
const ToolFormat &glm() { return *toolFormatOf("tools <tool_call><arg_key>"); }

TEST(TaggedCalls, FormatsAreThoseOfTemplates) {
  EXPECT_EQ(coder().name, "Qwen3-Coder");
  EXPECT_EQ(glm().name, "GLM-4.5");
  EXPECT_EQ(toolFormatOf("tools <seed:tool_call>")->name, "Seed-OSS");
  EXPECT_EQ(toolFormatOf("tools <minimax:tool_call>")->name, "MiniMax-M2");
}

TEST(TaggedCalls, FunctionsAndParameters) {
  constexpr std::string_view kCall = R"(Sure.

<tool_call>
<function=weather>
<parameter=city>
Oslo
</parameter>
<parameter=days>
3
</parameter>
</function>
</tool_call>
<tool_call>
<function=clock>
</function>
</tool_call>
)";
  expectTagged(coder(), kCall, "Sure.",
               {{"weather", R"({"city":"Oslo","days":3})"}, {"clock", "{}"}});
  expectTagged(coder(), kCall, "Sure.",
               {{"weather", R"({"city":"Oslo","days":3})"}}, /*onlyOne=*/true);
  std::string seed(kCall);
  for (size_t at = 0; (at = seed.find("tool_call", at)) != seed.npos; at += 14)
    seed.replace(at, 9, "seed:tool_call");
  expectTagged(*toolFormatOf("tools <seed:tool_call>"), seed, "Sure.",
               {{"weather", R"({"city":"Oslo","days":3})"}, {"clock", "{}"}});
}

TEST(TaggedCalls, KeysAndValues) {
  expectTagged(
      glm(),
      "<tool_call>weather\n<arg_key>city</arg_key>\n"
      "<arg_value>Rome</arg_value>\n<arg_key>exact</arg_key>\n"
      "<arg_value>true</arg_value>\n</tool_call>\n"
      "<tool_call>clock</tool_call>",
      "", {{"weather", R"({"city":"Rome","exact":true})"}, {"clock", "{}"}});
}

TEST(TaggedCalls, SeveralInABlock) {
  expectTagged(*toolFormatOf("tools <minimax:tool_call>"),
               "A\n<minimax:tool_call>\n<invoke name=\"weather\">\n"
               "<parameter name=\"days\">7</parameter>\n</invoke>\n"
               "<invoke name=\"clock\">\n</invoke>\n</minimax:tool_call>B",
               "AB", {{"weather", R"({"days":7})"}, {"clock", "{}"}});
}

TEST(TaggedCalls, TypesAreThoseOfTheSchema) {
  auto call = [](std::string_view key, std::string_view value) {
    return fmt::format("<tool_call><function=weather><parameter={}>{}"
                       "</parameter></function></tool_call>",
                       key, value);
  };
  const std::tuple<const char *, const char *, const char *> kCases[] = {
      {"city", "12", R"({"city":"12"})"},
      {"city", "\n{\"a\": 1}\n\n", R"({"city":"{\"a\": 1}\n"})"},
      {"city", "", R"({"city":""})"},
      {"unit", "F", R"({"unit":"F"})"},
      {"days", " 12 ", R"({"days":12})"},
      {"days", "twelve", R"({"days":"twelve"})"},
      {"places", R"(["a", "b"])", R"({"places":["a", "b"]})"},
      {"note", "null", R"({"note":null})"},
      {"note", "a <b> & \"c\"", R"({"note":"a <b> & \"c\""})"},
      {"note", "12345", R"({"note":"12345"})"},
      {"zip", "true", R"({"zip":"true"})"},
      {"zip", "null", R"({"zip":null})"},
      {"any", "[1, {\"a\": 2}]", R"({"any":[1, {"a": 2}]})"},
      {"any", "x", R"({"any":"x"})"},
      {"days", "123456789012345678901", R"({"days":123456789012345678901})"},
      {"city", "\n    return x\n", R"({"city":"    return x"})"},
      {"city", " Oslo", R"({"city":" Oslo"})"},
      {"other", "1", R"({"other":"1"})"}};
  for (const auto &[key, value, arguments] : kCases)
    expectTagged(coder(), call(key, value), "", {{"weather", arguments}});
}

TEST(TaggedCalls, DeepValuesAreText) {
  const std::string deep(100000, '[');
  expectTagged(coder(),
               "<tool_call><function=weather><parameter=places>" + deep +
                   "</parameter></function></tool_call>",
               "", {{"weather", R"({"places":")" + deep + R"("})"}});
}

TEST(TaggedCalls, WhatIsNoCallIsContent) {
  for (const char *text :
       {"", "\n", "a < b <tool", "<tool_call>", "<tool_call></tool_call>",
        "<tool_call><function=other></function></tool_call>",
        "<tool_call><function=clock></tool_call> x",
        "<tool_call><function=weather><parameter=city>Oslo</function>"
        "</tool_call>",
        "<tool_call><function=clock></function>",
        "<tool_call><function=clock></function> more </tool_call>",
        "<tool_call>{\"name\": \"clock\"}</tool_call>"})
    expectTagged(coder(), text, text, {});
  expectTagged(coder(),
               "x <tool_call>\n<function=other></function></tool_call> y "
               "<tool_call><function=clock></function></tool_call> z",
               "x <tool_call>\n<function=other></function></tool_call> y z",
               {{"clock", "{}"}});
}

TEST(TaggedCalls, RandomTexts) {
  constexpr std::string_view kParts[] = {"<tool_call>",
                                         "</tool_call>",
                                         "<function=clock>",
                                         "<function=weather>",
                                         "</function>",
                                         "<parameter=city>",
                                         "</parameter>",
                                         "\n",
                                         " ",
                                         "a",
                                         "<tool_c"};
  SplitMix64 random(11);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (uint64_t n = random() % 12; n-- > 0;)
      text += kParts[random() % std::size(kParts)];
    const TaggedRead first = readTagged(coder(), text, 0);
    expectTagged(coder(), text, first.content, first.calls);
  }
}

TEST(TaggedCalls, AreHeldToNoGrammar) {
  ApiRequest request;
  request.endpoint = Endpoint::chat;
  request.tools = someTools();
  request.toolUse = ToolUse::required;
  auto form = makeToolForm(request, coder(), true);
  ASSERT_FALSE(form.ok());
  EXPECT_NE(form.message().find("Qwen3-Coder"), std::string::npos);
}

} // namespace
} // namespace tessera::serve
