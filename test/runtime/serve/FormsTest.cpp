// Guides of forms over tokenizers that drop the space that begins a text.
#include "runtime/serve/Forms.h"

#include <gtest/gtest.h>

namespace tessera::serve {
namespace {

/// SentencePiece's way: words begin with a mark, which is no space where the
/// text begins.
StatusOr<tokenizer::Tokenizer> metaspace() {
  return tokenizer::Tokenizer::parse(
      R"({"version": "1.0", "added_tokens": [{"id": 0, "content": "</s>",
            "special": true, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false}],
          "normalizer": null, "post_processor": null,
          "pre_tokenizer": {"type": "Metaspace", "replacement": "▁",
            "prepend_scheme": "always", "split": false},
          "decoder": {"type": "Metaspace", "replacement": "▁",
            "prepend_scheme": "always", "split": false},
          "model": {"type": "BPE", "unk_token": null, "vocab": {"</s>": 0,
            "▁": 1, "a": 2, "▁a": 3, "b": 4, "▁b": 5}, "merges": ["▁ a", "▁ b"]}})",
      "test");
}

TEST(AnswerForms, AreWhatDecodingLeaves) {
  auto tokenizer = metaspace();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  AnswerForms forms(*tokenizer);
  auto form = parseTextForm("regex", std::string_view("a b"));
  ASSERT_TRUE(form.ok()) << form.message();
  // All texts of few tokens that the guide allows, and how they are decoded.
  int whole = 0;
  for (uint32_t number = 0; number < 6 * 6 * 6 * 6; ++number) {
    auto guide = forms.guide(**form, {0});
    std::vector<uint32_t> tokens;
    for (uint32_t left = number; tokens.size() < 4; left /= 6) {
      auto mask = guide->allowed();
      ASSERT_TRUE(mask.ok()) << mask.message();
      if (!(*mask)->contains(left % 6))
        break;
      if (left % 6 == 0) {
        EXPECT_EQ(tokenizer::decode(*tokenizer, tokens), "a b");
        ++whole;
        break;
      }
      tokens.push_back(left % 6);
      ASSERT_TRUE(guide->accept(int32_t(left % 6)).ok());
    }
  }
  EXPECT_GT(whole, 0);
}

TEST(AnswerForms, TextFormsNameWhatIsWrong) {
  EXPECT_EQ(parseTextForm("grammar", std::string_view("root ::= a")).message(),
            "line 1, column 10: unknown rule 'a'");
  EXPECT_EQ(parseTextForm("json", std::string_view("[]")).message(),
            "a schema must be an object, or a string of JSON");
}

} // namespace
} // namespace tessera::serve
