// Masks hold what a walk through every token's bytes says, at every place of
// random texts.
#include "runtime/infer/grammar/GrammarGuide.h"
#include "runtime/infer/engine/Scheduler.h"
#include "runtime/infer/grammar/Gbnf.h"
#include "runtime/infer/grammar/JsonSchema.h"
#include "runtime/infer/grammar/PlainTextGrammar.h"
#include "runtime/support/SplitMix64.h"
#include "test/runtime/infer/engine/FakeModel.h"

#include <gtest/gtest.h>

namespace tessera::grammar {
namespace {

/// Single bytes, random pieces of JSON, and a token without text, the last.
std::vector<std::string> pieces() {
  std::vector<std::string> texts;
  for (int byte = 32; byte < 127; ++byte)
    texts.emplace_back(1, char(byte));
  texts.emplace_back("\n");
  SplitMix64 random(1);
  std::string_view signs = "{}[]\":, \n019-.eatrufl\\";
  for (int i = 0; i < 400; ++i) {
    std::string text;
    for (uint64_t length = 2 + random() % 5; length > 0; --length)
      text += signs[random() % signs.size()];
    texts.push_back(text);
  }
  for (const char *each : {"true", "false", "null", "{\"a\":", "\"]}", "[[[[",
                           "}}}}", "\": {\"", "]]", "\",\"", "[1,2]"})
    texts.emplace_back(each);
  texts.emplace_back();
  return texts;
}

std::shared_ptr<TokenGrammar>
grammarOf(const std::string &schema,
          const std::shared_ptr<const Vocabulary> &vocabulary) {
  auto value = JsonValue::parse(schema, "schema");
  EXPECT_TRUE(value.ok()) << value.message();
  auto grammar = grammarOfJsonSchema(*value);
  EXPECT_TRUE(grammar.ok()) << grammar.message();
  return std::make_shared<TokenGrammar>(grammar.take(), vocabulary);
}

const char *const kSchemas[] = {
    R"(true)",
    R"({"type": "array", "items": {"$ref": "#"}})",
    R"({"properties": {"a": {"type": "integer"}, "b": {"$ref": "#"}},
        "required": ["a"], "additionalProperties": false})",
    R"({"properties": {"a": {"enum": ["x", "xy", 1, null, {"k": [1]}]},
        "t": {"type": ["number", "string"]}}})",
    R"({"type": "array", "minItems": 1, "maxItems": 3,
        "items": {"type": "string", "maxLength": 2}})",
    R"({"prefixItems": [{"type": "boolean"}], "items": false})",
};

TEST(GrammarGuide, MasksAreWhatTheBytesSay) {
  std::vector<std::string> texts = pieces();
  auto vocabulary = std::make_shared<const Vocabulary>(texts);
  auto end = int32_t(texts.size() - 1);
  int64_t allowed = 0, places = 0;
  for (const char *schema : kSchemas) {
    auto grammar = grammarOf(schema, vocabulary);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      SCOPED_TRACE(fmt::format("{} {}", schema, seed));
      SplitMix64 random(seed);
      GrammarGuide guide(grammar, {end});
      Matcher matcher(grammar->grammar());
      Reached reached = matcher.start();
      for (int step = 0; step < 60 && !guide.isComplete(); ++step, ++places) {
        auto mask = guide.allowed();
        ASSERT_TRUE(mask.ok()) << mask.message();
        std::vector<uint32_t> choices;
        for (uint32_t token = 0; token < texts.size(); ++token) {
          Reached after = reached;
          for (char byte : texts[token])
            after = matcher.step(after.positions, uint8_t(byte));
          bool right = texts[token].empty() ? reached.ends : !after.empty();
          ASSERT_EQ((*mask)->contains(token), right)
              << step << " '" << texts[token] << "'";
          if (right && !texts[token].empty())
            choices.push_back(token);
        }
        allowed += int64_t(choices.size());
        ASSERT_FALSE(choices.empty());
        uint32_t token = choices[random() % choices.size()];
        ASSERT_TRUE(guide.accept(int32_t(token)).ok());
        for (char byte : texts[token])
          reached = matcher.step(reached.positions, uint8_t(byte));
      }
    }
  }
  // Or nothing was tried.
  EXPECT_GT(places, 2000);
  EXPECT_GT(allowed, 100'000);
}

// A token that ends texts may be spelled like any other.
TEST(GrammarGuide, EndsOnlyWhereTheFormIsWhole) {
  std::vector<std::string> texts = {"\"", "a", "<end>"};
  auto grammar = grammarOf(R"({"type": "string"})",
                           std::make_shared<const Vocabulary>(texts));
  GrammarGuide guide(grammar, {2});
  for (int32_t token : {0, 1}) {
    ASSERT_TRUE(guide.accept(token).ok());
    auto mask = guide.allowed();
    ASSERT_TRUE(mask.ok());
    EXPECT_TRUE((*mask)->contains(1));
    EXPECT_FALSE((*mask)->contains(2));
  }
  ASSERT_TRUE(guide.accept(0).ok());
  EXPECT_TRUE(guide.isComplete());
  EXPECT_TRUE((*guide.allowed())->contains(2));
}

// Near the bound of nesting a token may be too deep though its bytes fit.
TEST(GrammarGuide, StaysInsideTheBoundOfNesting) {
  std::vector<std::string> texts = {"[", "]", "[[[[", "]]"};
  auto grammar = grammarOf(R"({"type": "array", "items": {"$ref": "#"}})",
                           std::make_shared<const Vocabulary>(texts));
  GrammarGuide guide(grammar, {});
  int64_t opened = 0;
  for (; opened < 1000; ++opened) {
    auto mask = guide.allowed();
    ASSERT_TRUE(mask.ok()) << mask.message();
    if (!(*mask)->contains(2))
      break;
    ASSERT_TRUE(guide.accept(2).ok());
  }
  EXPECT_GE(opened * 4, 250);
  EXPECT_LE(opened * 4, 257);
  auto mask = guide.allowed();
  ASSERT_TRUE(mask.ok());
  EXPECT_TRUE((*mask)->contains(1));
}

// Of a model of so many tokens, with pages for `pages` × 8 of them.
DecoderShape shapeOf(int64_t context, int64_t pages, size_t vocab) {
  DecoderShape shape;
  shape.context = context;
  shape.page = 8;
  shape.pages = pages;
  shape.chunk = 6;
  shape.vocab = int64_t(vocab);
  shape.buckets = {1, 4};
  return shape;
}

// An engine whose model knows nothing of JSON writes what the schema says.
TEST(GrammarGuide, GuidesAnEngine) {
  std::vector<std::string> texts = pieces();
  testing::FakeModel model(shapeOf(400, 200, texts.size() + 3)); // padded
  auto vocabulary = std::make_shared<const Vocabulary>(texts);
  auto grammar = grammarOf(kSchemas[4], vocabulary);
  auto end = int32_t(texts.size() - 1);
  for (int64_t drafts : {0, 3}) {
    Scheduler scheduler(model, {.drafts = drafts});
    for (uint64_t seed = 0; seed < 20; ++seed) {
      auto sink = std::make_shared<testing::Collected>();
      EngineRequest request;
      request.prompt = {1, 2, 3};
      request.maxTokens = 300;
      request.stopTokens = {end};
      request.sampling.seed = seed;
      request.guide =
          std::make_shared<GrammarGuide>(grammar, std::vector<int32_t>{end});
      request.sink = sink;
      scheduler.add(seed + 1, request, EngineClock::now());
      while (!scheduler.idle())
        ASSERT_TRUE(scheduler.step().ok());
      EXPECT_EQ(sink->result.reason, FinishReason::stop);
      std::string text;
      for (int32_t token : sink->tokens)
        text += texts[size_t(token)];
      auto value = JsonValue::parse(text, "answer");
      ASSERT_TRUE(value.ok()) << text << value.message();
      EXPECT_GE(value->elements().size(), 1u);
      EXPECT_LE(value->elements().size(), 3u);
    }
  }
}

// What an engine makes of a form; of a model without a token that ends texts.
EngineResult resultOf(StatusOr<Grammar> form) {
  EXPECT_TRUE(form.ok()) << form.message();
  std::vector<std::string> texts = pieces();
  testing::FakeModel model(shapeOf(40, 20, texts.size()));
  Scheduler scheduler(model, {});
  auto sink = std::make_shared<testing::Collected>();
  EngineRequest request;
  request.prompt = {1, 2, 3};
  request.guide = std::make_shared<GrammarGuide>(
      std::make_shared<TokenGrammar>(form.take(),
                                     std::make_shared<const Vocabulary>(texts)),
      std::vector<int32_t>{});
  request.sink = sink;
  scheduler.add(1, request, EngineClock::now());
  while (!scheduler.idle())
    EXPECT_TRUE(scheduler.step().ok());
  EXPECT_EQ(sink->tokens.size(), size_t(sink->result.generatedTokens));
  return sink->result;
}

TEST(GrammarGuide, EndsAnEnginesTextWhereTheFormDoes) {
  for (auto form : {grammarOfRegex(""), grammarOfChoice({""})}) {
    EngineResult result = resultOf(std::move(form));
    EXPECT_EQ(name(result.reason), "stop") << result.message;
    EXPECT_EQ(result.generatedTokens, 0);
  }
  EngineResult result = resultOf(grammarOfRegex("aa"));
  EXPECT_EQ(name(result.reason), "stop") << result.message;
  EXPECT_GE(result.generatedTokens, 1);
}

// The request is to blame, not the device.
TEST(GrammarGuide, FailsWhereTheFormCannotBeFollowed) {
  EngineResult result =
      resultOf(grammarOfGbnf("root ::= ((\"\"{1000}){1000}){1000} \"a\""));
  EXPECT_EQ(name(result.reason), "form");
  EXPECT_NE(result.message.find("too ambiguous"), std::string::npos);
  EXPECT_EQ(name(resultOf(grammarOfRegex("é")).reason), "form");
}

} // namespace
} // namespace tessera::grammar
