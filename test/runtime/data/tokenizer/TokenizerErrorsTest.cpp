// Every refusal of the tokenizer.json reader, with its words.
#include "TestTokenizers.h"

#include <gtest/gtest.h>

#include <functional>

using namespace tessera::tokenizer;
using namespace tessera::tokenizer::test;
using nlohmann::json;

static std::string errorAfter(const std::function<void(json &)> &change) {
  json fields = tokenizerFields();
  change(fields);
  auto tokenizer = parseFields(fields);
  return tokenizer.ok() ? "accepted" : tokenizer.message();
}

#define EXPECT_REFUSED(change, words)                                          \
  EXPECT_EQ(errorAfter([](json &f) { change; }),                               \
            std::string("test.json: ") + (words))

TEST(TokenizerErrors, Structure) {
  EXPECT_EQ(Tokenizer::parse("[]", "t").message(),
            "t: must be a JSON object, the tokenizer.json of a tokenizer");
  EXPECT_EQ(Tokenizer::parse("{", "t").message().substr(0, 18),
            "t: not valid JSON:");
  EXPECT_EQ(Tokenizer::parse("", "t").message().substr(0, 18),
            "t: not valid JSON:");
  EXPECT_EQ(Tokenizer::parse("{}", "t").message(),
            "t: \"model\" must be an object");
  std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_EQ(
      Tokenizer::parse("{\"model\":" + deep + "}", "t").message().substr(0, 18),
      "t: not valid JSON:");
  EXPECT_EQ(Tokenizer::parse("{\"model\": \"\xff\"}", "t").ok(), false);
  EXPECT_FALSE(Tokenizer::load("/nonexistent/tokenizer.json").ok());
}

TEST(TokenizerErrors, Normalizers) {
  EXPECT_REFUSED((f["normalizer"] = {{"type", "Nmt"}}),
                 "normalizer \"Nmt\" is not supported");
  EXPECT_REFUSED(f["normalizer"] = 3, "normalizer \"\" is not supported");
  EXPECT_REFUSED((f["normalizer"] = {{"type", "Sequence"}}),
                 "the normalizer's \"normalizers\" must be an array of at most "
                 "32");
  EXPECT_REFUSED((f["normalizer"] = {{"type", "Strip"}, {"strip_left", 1}}),
                 "the \"strip_left\" of \"Strip\" must be true or false");
  EXPECT_REFUSED((f["normalizer"] = {{"type", "Prepend"}}),
                 "the \"prepend\" of \"Prepend\" must be a string");
  EXPECT_REFUSED((f["normalizer"] = {{"type", "Replace"}, {"content", ""}}),
                 "the \"pattern\" of \"Replace\" must be a Regex or a String");
  EXPECT_REFUSED((f["normalizer"] = {{"type", "Precompiled"},
                                     {"precompiled_charsmap", "!"}}),
                 "the \"precompiled_charsmap\" is not base 64");
  EXPECT_REFUSED((f["normalizer"] = {{"type", "Precompiled"},
                                     {"precompiled_charsmap", "AQAAAAAA"}}),
                 "the normalizer has a precompiled character map of 6 bytes "
                 "whose array has 1 bytes");
}

TEST(TokenizerErrors, PreTokenizers) {
  EXPECT_REFUSED((f["pre_tokenizer"] = {{"type", "UnicodeScripts"}}),
                 "pre-tokenizer \"UnicodeScripts\" is not supported");
  EXPECT_REFUSED((f["pre_tokenizer"] = {{"type", "Sequence"}}),
                 "the pre-tokenizer's \"pretokenizers\" must be an array");
  EXPECT_REFUSED(
      (f["pre_tokenizer"] = {{"type", "Sequence"},
                             {"pretokenizers",
                              json::array_t(33, {{"type", "Digits"}})}}),
      "more than 32 pre-tokenizers");
  EXPECT_REFUSED(
      (f["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "__"}}),
      "the \"replacement\" of Metaspace must be one character");
  EXPECT_REFUSED((f["pre_tokenizer"] = {{"type", "Metaspace"},
                                        {"replacement", "_"},
                                        {"prepend_scheme", "often"}}),
                 "the \"prepend_scheme\" of Metaspace must be \"always\", "
                 "\"first\" or \"never\", got \"often\"");
  EXPECT_REFUSED(
      (f["pre_tokenizer"] = {{"type", "Punctuation"}, {"behavior", "Shy"}}),
      "the \"behavior\" \"Shy\" of \"Punctuation\" is not "
      "supported");
  EXPECT_REFUSED((f["pre_tokenizer"] = {{"type", "Split"},
                                        {"pattern", {{"Regex", "(?<a>b)"}}},
                                        {"behavior", "Isolated"}}),
                 "the regular expression '(?<a>b)' has a group of another kind "
                 "than (…), (?:…), (?i:…), (?=…) or (?!…) at byte 1, which is "
                 "not supported");
}

TEST(TokenizerErrors, Decoders) {
  EXPECT_REFUSED(f["decoder"]["type"] = "CTC",
                 "decoder \"CTC\" is not supported");
  auto sequence = [](json::array_t parts) {
    return errorAfter([&](json &f) {
      f["decoder"] = {{"type", "Sequence"}, {"decoders", parts}};
    });
  };
  json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  json fuse = {{"type", "Fuse"}};
  EXPECT_EQ(sequence({fuse, strip}), "accepted");
  EXPECT_EQ(sequence({fuse, {{"type", "ByteFallback"}}}),
            "test.json: decoder \"ByteFallback\" after Fuse is not supported");
  EXPECT_EQ(sequence({strip, {{"type", "ByteLevel"}}}),
            "test.json: decoder \"ByteLevel\" after others is not supported");
  EXPECT_EQ(sequence({fuse, strip, strip}),
            "test.json: the decoder Strip may follow Fuse only once, and only "
            "with \"stop\": 0");
  strip.erase("stop");
  EXPECT_EQ(sequence({strip}),
            "test.json: the decoder Strip must have a \"content\", a \"start\" "
            "and a \"stop\"");
}

TEST(TokenizerErrors, PostProcessors) {
  EXPECT_REFUSED((f["post_processor"] = {{"type", "Other"}}),
                 "post-processor \"Other\" is not supported");
  EXPECT_REFUSED((f["post_processor"] = {{"type", "BertProcessing"},
                                         {"cls", {"x", 0}},
                                         {"sep", {"x", 99999}}}),
                 "the post-processor's \"sep\" must be a token and its id");
  EXPECT_REFUSED((f["post_processor"] = {{"type", "TemplateProcessing"}}),
                 "the post-processor's \"single\" must hold the Sequence A "
                 "once, not 0 times");
  json token = {{"SpecialToken", {{"id", "<s>"}}}};
  EXPECT_EQ(errorAfter([&](json &f) {
              f["post_processor"] = {{"type", "TemplateProcessing"},
                                     {"single", json::array({token})}};
            }),
            "test.json: the post-processor's token \"<s>\" is not among its "
            "\"special_tokens\"");
}

TEST(TokenizerErrors, OtherModels) {
  auto refuse = [](json model) {
    return parseFields({{"model", std::move(model)}}).message();
  };
  EXPECT_EQ(refuse({{"type", "Unigram"},
                    {"vocab", json::array({json::array({"a", 0.5})})}}),
            "test.json: the model's \"unk_id\" must be the id of a token, "
            "which represents unknown characters");
  EXPECT_EQ(refuse({{"type", "Unigram"},
                    {"vocab", json::array({json::array({"a"})})}}),
            "test.json: entry 0 of the vocabulary must be a token and its "
            "score");
  EXPECT_EQ(refuse({{"type", "Unigram"}, {"vocab", 1}}),
            "test.json: the model's \"vocab\" must be an array of token and "
            "score");
  EXPECT_EQ(refuse({{"type", "WordPiece"},
                    {"vocab", {{"a", 0}}},
                    {"unk_token", "[UNK]"}}),
            "test.json: the unknown token \"[UNK]\" is not in the vocabulary");
  EXPECT_EQ(refuse({{"type", "WordPiece"},
                    {"vocab", {{"a", 0}}},
                    {"unk_token", "a"},
                    {"max_input_chars_per_word", -1}}),
            "test.json: the model's \"max_input_chars_per_word\" must be an "
            "integer that is not negative");
}

TEST(TokenizerErrors, Model) {
  EXPECT_REFUSED(f["model"]["type"] = "WordLevel",
                 "model \"WordLevel\" is not supported; BPE, Unigram and "
                 "WordPiece are");
  EXPECT_REFUSED(f["model"]["byte_fallback"] = 1,
                 "the \"byte_fallback\" of \"BPE\" must be true or false");
  EXPECT_REFUSED(f["model"]["dropout"] = 0.1,
                 "the model's \"dropout\" must be null: encoding is not "
                 "random");
  EXPECT_REFUSED(f["model"]["continuing_subword_prefix"] = 1,
                 "the \"continuing_subword_prefix\" of \"BPE\" must be a "
                 "string");
  EXPECT_REFUSED(f["model"]["ignore_merges"] = 1,
                 "the \"ignore_merges\" of \"BPE\" must be true or false");
  EXPECT_REFUSED(f["model"]["vocab"] = json::array(),
                 "the model's \"vocab\" must be an object of token and id");
  EXPECT_REFUSED(f["model"].erase("merges"),
                 "the model's \"merges\" must be an array");
}

TEST(TokenizerErrors, Vocabulary) {
  EXPECT_REFUSED(f["model"]["vocab"]["x\ny"] = -1,
                 "the id of token \"x y\" must be an integer that is not "
                 "negative");
  // Memory is taken for each id below, so that it must follow from the file.
  EXPECT_NE(errorAfter([](json &f) {
              f["model"]["vocab"]["far"] = (1 << 24) - 1;
            }).find("token \"far\" has the id 16777215; ids up to 6"),
            std::string::npos);
  EXPECT_EQ(errorAfter([](json &f) {
              f["model"]["vocab"]["zz"] = 5;
            }).find(" has the id 5, which another token has already") !=
                std::string::npos,
            true);
  // The same key twice, which a JSON object can spell.
  std::string text = tokenizerJson(train(257));
  text.insert(text.find("\"!\": 1"), "\"!\": 999, ");
  EXPECT_EQ(Tokenizer::parse(text, "t").message(),
            "t: token \"!\" stands twice in the vocabulary");
}

TEST(TokenizerErrors, Merges) {
  EXPECT_REFUSED(f["model"]["merges"][0] = "abc",
                 "merge 0 must be two tokens, \"left right\" or [\"left\", "
                 "\"right\"]");
  EXPECT_REFUSED(f["model"]["merges"][1] = "a b c",
                 "merge 1 must be two tokens, \"left right\" or [\"left\", "
                 "\"right\"]");
  EXPECT_REFUSED((f["model"]["merges"][0] = {"a"}),
                 "merge 0 must be two tokens, \"left right\" or [\"left\", "
                 "\"right\"]");
  EXPECT_REFUSED(f["model"]["merges"][2] = "a nowhere",
                 "merge 2 needs the token \"nowhere\", which the vocabulary "
                 "does not have");
  EXPECT_REFUSED(f["model"]["merges"][2] = "z q",
                 "merge 2 needs the token \"zq\", which the vocabulary does "
                 "not have");
}

TEST(TokenizerErrors, AddedTokens) {
  EXPECT_REFUSED(f["added_tokens"] = 1, "\"added_tokens\" must be an array");
  EXPECT_REFUSED(f["added_tokens"][0] = 1, "added token 0 must be an object");
  EXPECT_REFUSED(f["added_tokens"][0]["content"] = "",
                 "the \"content\" of added token 0 must be a string of 1 to "
                 "256 bytes");
  EXPECT_REFUSED(f["added_tokens"][0]["content"] = std::string(257, 'x'),
                 "the \"content\" of added token 0 must be a string of 1 to "
                 "256 bytes");
  EXPECT_REFUSED(f["added_tokens"][0].erase("id"),
                 "the \"id\" of added token \"<|endoftext|>\" must be an "
                 "integer that is not negative");
  EXPECT_REFUSED(f["added_tokens"][0]["special"] = "yes",
                 "the \"special\" of added token \"<|endoftext|>\" must be "
                 "true or false");
  EXPECT_REFUSED(f["added_tokens"][0]["id"] = 7,
                 "added token \"<|endoftext|>\" has the id 7, but the "
                 "vocabulary gives it 0");
  EXPECT_REFUSED(f["added_tokens"].push_back(addedToken(7, "<new>")),
                 "token \"<new>\" has the id 7, which another token has "
                 "already");
}
