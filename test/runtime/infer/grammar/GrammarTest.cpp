// What grammars are refused, and what schemas say when they are.
#include "runtime/infer/grammar/JsonSchema.h"
#include "runtime/infer/grammar/Matcher.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tessera::grammar {
namespace {

StatusOr<Grammar> read(const std::string &schema) {
  auto value = JsonValue::parse(schema, "schema");
  EXPECT_TRUE(value.ok()) << value.message();
  return grammarOfJsonSchema(*value);
}

std::string problem(const std::string &schema) {
  return read(schema).message();
}

bool matches(const Grammar &grammar, std::string_view text) {
  Matcher matcher(grammar);
  Reached reached = matcher.start();
  for (char byte : text)
    reached = matcher.step(reached.positions, uint8_t(byte));
  return reached.ends;
}

TEST(JsonSchema, SaysWhatItDoesNotServe) {
  EXPECT_EQ(problem(R"({"type": "array", "uniqueItems": true})"),
            "#: the keyword \"uniqueItems\" is not supported");
  EXPECT_EQ(problem(R"({"properties": {"a": {"properties": {"b": 3}}}})"),
            "#/properties/a/properties/b: a schema must be an object or true");
  EXPECT_EQ(problem(R"({"type": "text"})"), "#: unknown type \"text\"");
  EXPECT_EQ(problem(R"({"properties": {}, "required": ["a"]})"),
            "#: \"required\" names \"a\", which is none of \"properties\"");
  EXPECT_EQ(problem(R"({"anyOf": [{"type": "null"}], "type": "null"})"),
            "#: \"type\" next to \"anyOf\" is not supported");
  EXPECT_EQ(problem(R"({"$ref": "#/$defs/a"})"),
            "#: \"$ref\" points to \"#/$defs/a\", which does not exist");
  EXPECT_EQ(problem(R"({"$ref": "https://example.org/a.json"})"),
            "#: \"$ref\" must point into the schema itself, such as "
            "\"#/$defs/name\"");
  EXPECT_EQ(problem(R"({"type": "string", "maxLength": 1e9})"),
            "#: \"maxLength\" must be a whole number from 0 to 131072");
}

TEST(JsonSchema, RefusesWhatHasNoEnd) {
  EXPECT_EQ(problem(R"({"$ref": "#"})"), "no finite string matches it");
  EXPECT_EQ(problem(R"({"properties": {"a": {"$ref": "#"}},
                        "required": ["a"]})"),
            "no finite string matches it");
  EXPECT_EQ(problem(R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})"),
            "it refers to itself before any character");
  EXPECT_EQ(problem(R"({"type": "string", "maxLength": 131072})"),
            "it is too large: more than 131072 states");
}

TEST(JsonSchema, KeepsOrRefusesWhatIsAskedFor) {
  EXPECT_EQ(problem(R"({"minimum": "0"})"), "#: \"minimum\" must be a number");
  EXPECT_EQ(
      problem(R"({"type": "number", "minimum": 1, "exclusiveMaximum": 1})"),
      "#: no number is within the bounds");
  EXPECT_EQ(
      problem(R"({"minimum": 1e-14, "exclusiveMaximum": 99999999999999})"),
      "#: the bounds 1e-14 and 99999999999999 have more than 15 digits "
      "together");
  EXPECT_EQ(problem(R"({"type": "number", "maximum": 0.12345678901234567})"),
            "#: the bound 0.12345678901234566 has more than 15 digits");
  EXPECT_EQ(problem(R"({"properties": {"a": true}, "required": "a"})"),
            "#: \"required\" must be a list");
  EXPECT_EQ(problem(R"({"prefixItems": {}})"),
            "#: \"prefixItems\" must be a list");
  EXPECT_EQ(problem(R"({"type": "integer", "enum": [1, "a"]})"),
            "#: a value of \"enum\" or \"const\" is not of \"type\"");
  EXPECT_EQ(problem(R"({"type": ["null", "null"]})"),
            "#: duplicate type \"null\"");
}

// In time and memory that follow the schema's size.
TEST(JsonSchema, BoundsTextsAndNames) {
  std::string text(100'000, 'a');
  EXPECT_EQ(problem("{\"const\": \"" + text + "\"}"), "");
  EXPECT_EQ(problem("{\"properties\": {\"" + text + "\": true}}"),
            "it is too large: more than 131072 states");
  EXPECT_NE(problem("{\"const\": \"" + text + text + "\"}").find("too large"),
            std::string::npos);
}

TEST(JsonSchema, NestsToABound) {
  auto grammar = read(R"({"type": "array", "items": {"$ref": "#"}})");
  ASSERT_TRUE(grammar.ok()) << grammar.message();
  auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(matches(*grammar, nested(200)));
  EXPECT_FALSE(matches(*grammar, nested(300)));
  EXPECT_FALSE(matches(*grammar, std::string(100'000, '[')));
}

TEST(JsonSchema, NamesOfFurtherPropertiesAreOthers) {
  auto grammar = read(R"({"properties": {"a": {"type": "null"},
                          "ab": {"type": "null"}, "é": {"type": "null"}}})");
  ASSERT_TRUE(grammar.ok()) << grammar.message();
  for (const char *text :
       {R"({"a":null})", R"({"aa":1})", R"({"abc":1,"b":2})", R"({"":1})",
        R"({"ab":null,"x":{}})", R"({"a":null,"é":null})"})
    EXPECT_TRUE(matches(*grammar, text)) << text;
  for (const char *text :
       {R"({"a":1})", R"({"x":1,"ab":1})", R"({"\u0061":1})", R"({"é":1})",
        R"({"a":null,"a":null})", R"({"ab":null,"a":null})"})
    EXPECT_FALSE(matches(*grammar, text)) << text;
}

TEST(JsonSchema, NamesOfPropertiesMayNeedEscapes) {
  auto grammar = read(R"({"properties": {"q\"": {"type": "null"}}})");
  ASSERT_TRUE(grammar.ok()) << grammar.message();
  EXPECT_TRUE(matches(*grammar, R"({"q\"":null})"));
  EXPECT_FALSE(matches(*grammar, R"({"q\"":1})"));
}

TEST(JsonSchema, NumbersAreWithinTheirBounds) {
  auto grammar =
      read(R"({"type": "number", "exclusiveMinimum": -1.5, "maximum": 20.25})");
  ASSERT_TRUE(grammar.ok()) << grammar.message();
  for (const char *text : {"0", "-0", "-1.49999", "-1", "20", "20.25",
                           "20.2500", "20.1", "19.99", "3.141592653589"})
    EXPECT_TRUE(matches(*grammar, text)) << text;
  for (const char *text : {"-1.5", "-1.50", "-2", "20.26", "20.2501", "21",
                           "200", "1e1", "01", "1.", ".5", "-", ""})
    EXPECT_FALSE(matches(*grammar, text)) << text;
}

TEST(JsonSchema, PatternsAreOfValuesNotOfTheirSpelling) {
  auto grammar = read(R"({"pattern": "^[\"a\\\\\\nß-ü😀]{1,3}$"})");
  ASSERT_TRUE(grammar.ok()) << grammar.message();
  for (const char *text : {R"("a")", R"("\"")", R"("\\\n")", R"("ßü😀")"})
    EXPECT_TRUE(matches(*grammar, text)) << text;
  for (const char *text : {R"("")", R"("b")", R"("aaaa")", "\"\n\"", R"("\a")",
                           R"("\u0061")", R"("Þ")", R"("ý")", R"(a)"})
    EXPECT_FALSE(matches(*grammar, text)) << text;
}

// Escapes cost states once, however often the set stands in the pattern, and
// what needs none is a range.
TEST(JsonSchema, PatternsOfEscapesAreSmall) {
  auto any = read(R"({"type": "string", "pattern": "^[\\x00-\\x7f]{1000}$"})");
  ASSERT_TRUE(any.ok()) << any.message();
  const std::string plain(999, 'a');
  EXPECT_TRUE(matches(*any, '"' + plain + R"(\n")"));
  EXPECT_TRUE(matches(*any, '"' + plain + R"(\"")"));
  EXPECT_TRUE(matches(*any, '"' + plain + R"(~")"));
  EXPECT_FALSE(matches(*any, '"' + plain + "\n\""));
  EXPECT_FALSE(matches(*any, '"' + plain + "\""));
  EXPECT_LT(any->size(), 1500u);

  auto words = read(R"({"type": "string", "pattern": "^\\w{1000}$"})");
  ASSERT_TRUE(words.ok()) << words.message();
  size_t edges = 0;
  for (uint32_t i = 0; i < words->size(); ++i)
    edges += words->node(i).edges.size();
  EXPECT_LT(edges, 4500u);
}

TEST(JsonSchema, PatternsMatchAnywhereButForAnchors) {
  for (auto [pattern, yes, no] : {std::tuple("b+", R"("abbc")", R"("ac")"),
                                  {"^b|c$", R"("ac")", R"("ab")"},
                                  {"^(?:b|c)$", R"("c")", R"("bc")"},
                                  {"^$", R"("")", R"(" ")"},
                                  {"", R"("x")", R"(x)"},
                                  {R"(\\d)", R"("7")", R"("٣")"}}) {
    auto grammar = read(fmt::format(R"({{"pattern": "{}"}})", pattern));
    ASSERT_TRUE(grammar.ok()) << pattern << ": " << grammar.message();
    EXPECT_TRUE(matches(*grammar, yes)) << pattern;
    EXPECT_FALSE(matches(*grammar, no)) << pattern;
  }
}

TEST(JsonSchema, SaysWhatItDoesNotServeOfPatterns) {
  EXPECT_EQ(problem(R"({"pattern": 1})"), "#: \"pattern\" must be a string");
  EXPECT_EQ(problem(R"({"pattern": "a", "maxLength": 3})"),
            "#: \"maxLength\" next to \"pattern\" is not supported");
  EXPECT_EQ(problem(R"({"pattern": "a(^b)c"
})"),
            "#: the pattern 'a(^b)c' has lookahead, or an anchor that is not "
            "at an end of it");
  EXPECT_EQ(problem(R"({"pattern": "(((){1000}){1000}){1000}"})"),
            "#: the pattern '(((){1000}){1000}){1000}' repeats too often");
  EXPECT_EQ(problem(R"({"pattern": "((a{1000}){1000}){1000}"})"),
            "it is too large: more than 131072 states");
  EXPECT_NE(problem(R"({"pattern": "(a"})").find("a group without its )"),
            std::string::npos);
}

// What costs nothing in states costs time.
TEST(JsonSchema, AllPatternsTogetherAreBounded) {
  std::string nothing = "()", properties;
  for (int i = 0; i < 4; ++i)
    nothing += nothing;
  for (int i = 0; i < 1000; ++i)
    properties +=
        fmt::format(R"({}"{}": {{"pattern": "(({}){{1000}}){{20}}"}})",
                    i > 0 ? ", " : "", i, nothing);
  EXPECT_NE(problem("{\"properties\": {" + properties + "}}")
                .find("repeats too often"),
            std::string::npos);
  std::string folded =
      "{\"pattern\": \"(?i:" + std::string(4000, 'a') + "){0}\"}";
  EXPECT_EQ(problem("{\"prefixItems\": [" + folded + "," + folded + "]}"), "");
}

TEST(JsonSchema, PatternsAreEcmas) {
  for (const char *pattern :
       {"a{,3}", "a{", "{1}", "[]", "[^]", "a\\\\z", "\\\\e", "\\\\a"})
    EXPECT_NE(problem(fmt::format(R"({{"pattern": "{}"}})", pattern)), "")
        << pattern;
}

TEST(JsonSchema, FormatsAreKeptIfTheyAreKnown) {
  auto date = read(R"({"type": "string", "format": "date"})"),
       other = read(R"({"type": "string", "format": "color"})");
  ASSERT_TRUE(date.ok() && other.ok());
  EXPECT_TRUE(matches(*date, R"("2000-02-29")"));
  EXPECT_FALSE(matches(*date, R"("1900-02-29")"));
  EXPECT_TRUE(matches(*other, R"("2000-02-30")"));
}

TEST(Frames, ReferToTheirOwnSchemas) {
  auto one = JsonValue::parse(
      R"({"$ref": "#/$defs/x", "$defs": {"x": {"const": 1}}})", "one");
  auto two = JsonValue::parse(
      R"({"$ref": "#/$defs/x", "$defs": {"x": {"const": 2}}})", "two");
  const SchemaFrame frames[] = {{"a: ", "(a ", &*one, ")"},
                                {"b: ", "(b ", &*two, ")"}};
  auto several = grammarOfFrames(frames, {"[", ",", "]"});
  ASSERT_TRUE(several.ok()) << several.message();
  auto single = grammarOfFrames(frames, {"[", "", "]"});
  ASSERT_TRUE(single.ok()) << single.message();
  for (auto [text, count] : {std::pair("[(a 1)]", 1),
                             {"[(b 2)]", 1},
                             {"[(a 1),(b 2),(a 1)]", 3},
                             {"[(a 2)]", 0},
                             {"[]", 0},
                             {"[(a 1),]", 0},
                             {"(a 1)", 0},
                             {"", 0},
                             {"[(a 1)]]", 0},
                             {"[(b 2)", 0}}) {
    EXPECT_EQ(matches(*several, text), count > 0) << text;
    EXPECT_EQ(matches(*single, text), count == 1) << text;
  }
  auto bad = JsonValue::parse(R"({"not": {}})", "bad");
  const SchemaFrame wrong[] = {{"a: ", "", &*bad, ""}};
  EXPECT_EQ(grammarOfFrames(wrong, {"[", "", "]"}).message(),
            "a: #: the keyword \"not\" is not supported");
  EXPECT_FALSE(grammarOfFrames(frames, {"", "", "", true}).ok());
}

TEST(Frames, BehindTheTagStandsTheRest) {
  auto one = JsonValue::parse(R"({"const": 1})", "one");
  const SchemaFrame frames[] = {{"", "", &*one, ""}};
  auto grammar = grammarOfFrames(frames, {.before = "<t>",
                                          .between = ", ",
                                          .after = "]",
                                          .isOptional = true,
                                          .opening = " ["});
  ASSERT_TRUE(grammar.ok()) << grammar.message();
  for (const char *text : {"", "x", "<t", "<t> [1]", "x<t> [1, 1, 1]"})
    EXPECT_TRUE(matches(*grammar, text)) << text;
  for (const char *text : {"<t>", "<t>[1]", "<t> 1", "<t>x", "<t> [1", "<t> []",
                           "<t> [1, [1]", "<t> [1]x"})
    EXPECT_FALSE(matches(*grammar, text)) << text;
}

TEST(Frames, AnyTextMayStandBeforeThem) {
  auto one = JsonValue::parse(R"({"const": 1})", "one");
  const SchemaFrame frames[] = {{"", "", &*one, ">"}};
  auto grammar = grammarOfFrames(frames, {"<<a", "<<a", "", true});
  ASSERT_TRUE(grammar.ok()) << grammar.message();
  // All texts of few letters, with what the tag, wherever it begins, allows.
  const std::string_view letters = "<a1>x";
  int withCalls = 0;
  for (int number = 0; number < 5 * 5 * 5 * 5 * 5 * 5 * 5; ++number) {
    std::string text;
    for (int left = number; left > 0; left /= 5)
      text += letters[left % 5];
    std::string_view rest = text;
    bool allowed = true;
    if (size_t tag = rest.find("<<a"); tag != rest.npos) {
      for (rest.remove_prefix(tag); allowed && !rest.empty();) {
        allowed = rest.starts_with("<<a1>");
        rest.remove_prefix(allowed ? 5 : 0);
      }
      withCalls += allowed;
    }
    EXPECT_EQ(matches(*grammar, text), allowed) << text;
  }
  EXPECT_GT(withCalls, 10);
}

} // namespace
} // namespace tessera::grammar
