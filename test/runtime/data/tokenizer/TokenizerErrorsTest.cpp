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

TEST(TokenizerErrors, Parts) {
  EXPECT_REFUSED((f["normalizer"] = {{"type", "Lowercase"}}),
                 "normalizer \"Lowercase\" is not supported; a byte-level "
                 "tokenizer has none, or NFC");
  EXPECT_REFUSED(f["normalizer"] = 3,
                 "\"normalizer\" must be null or an object");
  EXPECT_REFUSED((f["normalizer"] = {{"type", "Sequence"},
                                     {"normalizers", {{{"type", "NFD"}}}}}),
                 "a sequence of normalizers may hold only NFC");
  EXPECT_REFUSED(f["pre_tokenizer"] = nullptr,
                 "\"pre_tokenizer\" and \"decoder\" must be those of a "
                 "byte-level tokenizer; other kinds are not supported");
  EXPECT_REFUSED((f["pre_tokenizer"] = {{"type", "Metaspace"}}),
                 "pre-tokenizer \"Metaspace\" is not supported; ByteLevel, or "
                 "a Sequence of Split and ByteLevel, is");
  EXPECT_REFUSED(f["pre_tokenizer"].erase("add_prefix_space"),
                 "the ByteLevel pre-tokenizer's \"add_prefix_space\" must be "
                 "true or false");
  EXPECT_REFUSED(f["decoder"]["type"] = "WordPiece",
                 "\"decoder\" must be ByteLevel; other kinds are not "
                 "supported");
}

TEST(TokenizerErrors, Split) {
  auto errorOf = [](const std::function<void(json &)> &change) {
    json fields = tokenizerFields(330, SplitPattern::Cl100k);
    change(fields["pre_tokenizer"]["pretokenizers"]);
    return parseFields(fields).message();
  };
  EXPECT_EQ(errorOf([](json &) {}), "");
  EXPECT_EQ(errorOf([](json &p) { p[0]["pattern"]["Regex"] = "\\w+\n"; }),
            "test.json: the splitting pattern \"\\w+ \" is not known; those of "
            "GPT-2, Llama 3 and Qwen2 are");
  EXPECT_EQ(errorOf([](json &p) { p[0]["pattern"] = {{"String", " "}}; }),
            "test.json: the Split pre-tokenizer's \"pattern\" must be a Regex");
  EXPECT_EQ(errorOf([](json &p) { p[0]["invert"] = true; }),
            "test.json: the Split pre-tokenizer's behavior \"Isolated\" "
            "inverted is not supported; Isolated is");
  EXPECT_EQ(errorOf([](json &p) {
              p[0]["behavior"] = "Removed";
              p[0]["invert"] = true;
            }),
            "");
  EXPECT_EQ(errorOf([](json &p) { p.push_back(p[0]); }),
            "test.json: a sequence of pre-tokenizers must be Split and then "
            "ByteLevel; others are not supported");
  EXPECT_EQ(errorOf([](json &p) { p[1]["use_regex"] = true; }),
            "test.json: a ByteLevel pre-tokenizer after a Split must have "
            "\"use_regex\" and \"add_prefix_space\" false");
}

TEST(TokenizerErrors, Model) {
  EXPECT_REFUSED(f["model"]["type"] = "Unigram",
                 "model \"Unigram\" is not supported; byte-level BPE is");
  EXPECT_REFUSED(f["model"]["byte_fallback"] = true,
                 "the model's \"byte_fallback\" must be false; tokenizers that "
                 "fall back to bytes are not byte-level");
  EXPECT_REFUSED(f["model"]["dropout"] = 0.1,
                 "the model's \"dropout\" must be null: encoding is not "
                 "random");
  EXPECT_REFUSED(f["model"]["continuing_subword_prefix"] = "##",
                 "the model's \"continuing_subword_prefix\" must be null or "
                 "empty; a byte-level tokenizer has none");
  EXPECT_REFUSED(f["model"]["ignore_merges"] = 1,
                 "the model's \"ignore_merges\" must be true or false");
  EXPECT_REFUSED(f["model"]["vocab"] = json::array(),
                 "the model's \"vocab\" must be an object of token and id");
  EXPECT_REFUSED(f["model"].erase("merges"),
                 "the model's \"merges\" must be an array");
}

TEST(TokenizerErrors, Vocabulary) {
  EXPECT_REFUSED(f["model"]["vocab"]["x\ny"] = -1,
                 "the id of token \"x y\" must be an integer that is not "
                 "negative");
  EXPECT_REFUSED(f["model"]["vocab"]["far"] = 4'000'000'000,
                 "token \"far\" has the id 4000000000; ids up to 16777215 are "
                 "supported");
  EXPECT_EQ(errorAfter([](json &f) {
              f["model"]["vocab"]["zz"] = 5;
            }).find(" has the id 5, which another token has already") !=
                std::string::npos,
            true);
  EXPECT_REFUSED(f["model"]["vocab"].erase("\u0120"),
                 "the vocabulary has no token \"\u0120\" for the byte 0x20; a "
                 "byte-level tokenizer has one for each of the 256");
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
  EXPECT_REFUSED(f["added_tokens"][0]["single_word"] = true,
                 "added token \"<|endoftext|>\" has \"single_word\", which is "
                 "not supported");
  EXPECT_REFUSED(f["added_tokens"][0]["id"] = 7,
                 "added token \"<|endoftext|>\" has the id 7, but the "
                 "vocabulary gives it 0");
  EXPECT_REFUSED(f["added_tokens"].push_back(addedToken(7, "<new>")),
                 "token \"<new>\" has the id 7, which another token has "
                 "already");
}
