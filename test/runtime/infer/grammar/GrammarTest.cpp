// What grammars are refused, and what schemas say when they are.
#include "runtime/infer/grammar/JsonSchema.h"
#include "runtime/infer/grammar/Matcher.h"

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
    reached = matcher.step(reached.places, uint8_t(byte));
  return reached.ends;
}

TEST(JsonSchema, SaysWhatItDoesNotServe) {
  EXPECT_EQ(problem(R"({"type": "string", "pattern": "a+"})"),
            "#: the keyword \"pattern\" is not served");
  EXPECT_EQ(problem(R"({"properties": {"a": {"properties": {"b": 3}}}})"),
            "#/properties/a/properties/b: a schema must be an object or true");
  EXPECT_EQ(problem(R"({"type": "text"})"),
            "#: the type \"text\" does not exist");
  EXPECT_EQ(problem(R"({"properties": {}, "required": ["a"]})"),
            "#: \"required\" names \"a\", which is none of \"properties\"");
  EXPECT_EQ(problem(R"({"anyOf": [{"type": "null"}], "type": "null"})"),
            "#: \"type\" beside \"anyOf\" is not served");
  EXPECT_EQ(problem(R"({"$ref": "#/$defs/a"})"),
            "#: \"$ref\" points to \"#/$defs/a\", where nothing is");
  EXPECT_EQ(problem(R"({"$ref": "https://example.org/a.json"})"),
            "#: \"$ref\" must point into the schema itself, such as "
            "\"#/$defs/name\"");
  EXPECT_EQ(problem(R"({"type": "string", "maxLength": 1e9})"),
            "#: \"maxLength\" must be a whole number from 0 to 131072");
}

TEST(JsonSchema, RefusesWhatHasNoEnd) {
  EXPECT_EQ(problem(R"({"$ref": "#"})"), "no finite text satisfies it");
  EXPECT_EQ(problem(R"({"properties": {"a": {"$ref": "#"}},
                        "required": ["a"]})"),
            "no finite text satisfies it");
  EXPECT_EQ(problem(R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})"),
            "it refers to itself before any text");
  EXPECT_EQ(problem(R"({"type": "string", "maxLength": 131072})"),
            "it is too large: more than 131072 states");
}

TEST(JsonSchema, KeepsOrRefusesWhatIsAskedFor) {
  EXPECT_EQ(problem(R"({"minimum": 0})"),
            "#: \"minimum\" needs \"type\": \"integer\"");
  EXPECT_EQ(problem(R"({"properties": {"a": true}, "required": "a"})"),
            "#: \"required\" must be a list");
  EXPECT_EQ(problem(R"({"prefixItems": {}})"),
            "#: \"prefixItems\" must be a list");
  EXPECT_EQ(problem(R"({"type": "integer", "enum": [1, "a"]})"),
            "#: a value of \"enum\" or \"const\" is not of \"type\"");
  EXPECT_EQ(problem(R"({"type": ["null", "null"]})"),
            "#: the type \"null\" stands twice");
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

} // namespace
} // namespace tessera::grammar
