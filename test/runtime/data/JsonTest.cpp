#include "runtime/data/Json.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

JsonValue mustParse(std::string_view text) {
  StatusOr<JsonValue> value = JsonValue::parse(text, "file");
  EXPECT_TRUE(value.ok()) << value.status().message();
  return value.ok() ? value.take() : JsonValue();
}

std::string errorOf(std::string_view text) {
  StatusOr<JsonValue> value = JsonValue::parse(text, "file");
  return value.ok() ? "" : std::string(value.status().message());
}

TEST(Json, TypesAreKeptApart) {
  const JsonValue value = mustParse(
      R"({"yes": true, "many": 18446744073709551615, "less": -1, "part": 2.5,
          "text": "a\u00e9\n", "list": [1, [], {}], "nothing": null})");
  bool yes = false;
  std::uint64_t many = 0;
  double number = 0;
  std::string_view text;
  EXPECT_TRUE(value["yes"].get(yes) && yes);
  EXPECT_TRUE(value["many"].get(many));
  EXPECT_EQ(many, 18446744073709551615u);
  EXPECT_TRUE(value["less"].get(number));
  EXPECT_EQ(number, -1);
  EXPECT_TRUE(value["part"].get(number));
  EXPECT_EQ(number, 2.5);
  EXPECT_TRUE(value["text"].get(text));
  EXPECT_EQ(text, "a\xc3\xa9\n");
  ASSERT_EQ(value["list"].elements().size(), 3u);
  EXPECT_TRUE(value["list"].elements()[0].get(number));
  EXPECT_TRUE(value["list"].elements()[1].isArray());
  EXPECT_TRUE(value["list"].elements()[2].isObject());
  EXPECT_TRUE(value["nothing"].isNull());
  EXPECT_TRUE(value["absent"].isNull());

  EXPECT_FALSE(value["less"].get(many));
  EXPECT_FALSE(value["part"].get(many));
  EXPECT_FALSE(value["yes"].get(number));
  EXPECT_FALSE(value["many"].get(text));
  EXPECT_FALSE(value["absent"].get(yes));
  EXPECT_TRUE(value["text"]["of no object"].isNull());
  EXPECT_TRUE(value["text"].elements().empty());
}

TEST(Json, MembersStandAsInTheFile) {
  const JsonValue value = mustParse(R"({"b": 1, "a": {"x": 2}, "b": 3})");
  ASSERT_EQ(value.members().size(), 3u);
  EXPECT_EQ(value.members()[1].name, "a");
  EXPECT_EQ(value.members()[2].name, "b");
  std::uint64_t first = 0;
  EXPECT_TRUE(value["b"].get(first));
  EXPECT_EQ(first, 1u);
}

TEST(Json, ErrorsSayWhere) {
  EXPECT_EQ(errorOf("{\"a\":\n 1,}"),
            "file: not valid JSON: parse error at line 2, column 4: syntax "
            "error while parsing object key - unexpected '}'; expected "
            "string literal");
  for (std::string_view text :
       {"", "[", "[1] 2", "{'a': 1}", "nul", "01", "[1,]", "\"\x01\"",
        "\"\xff\"", "\"\xed\xa0\x80\"", "1e999", "[\"\\ud800\"]"})
    EXPECT_TRUE(errorOf(text).starts_with("file: not valid JSON: "))
        << text << ": " << errorOf(text);
}

TEST(Json, DepthIsBounded) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(errorOf(nested(JsonValue::kMaxDepth)), "");
  EXPECT_EQ(errorOf(nested(JsonValue::kMaxDepth + 1)),
            "file: not valid JSON: nested deeper than 256");
  EXPECT_EQ(errorOf(std::string(1 << 20, '[')),
            "file: not valid JSON: nested deeper than 256");
}

} // namespace
} // namespace tessera
