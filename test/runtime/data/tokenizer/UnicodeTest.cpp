#include "runtime/data/tokenizer/Unicode.h"
#include "runtime/data/tokenizer/ByteAlphabet.h"

#include <gtest/gtest.h>

#include <set>

using namespace tessera::tokenizer;

static std::string encoded(uint32_t codePoint) {
  std::string text;
  appendUtf8(codePoint, text);
  return text;
}

static Utf8Char decodeFirst(std::string_view text) {
  return decodeUtf8(text.data(), text.data() + text.size());
}

TEST(Unicode, DecodesEveryScalarValue) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000)
      continue;
    std::string text = encoded(c);
    Utf8Char decoded = decodeFirst(text + "x");
    ASSERT_EQ(decoded.codePoint, c);
    ASSERT_EQ(decoded.length, text.size());
    // Cut short it is invalid.
    if (text.size() > 1) {
      ASSERT_EQ(decodeFirst(text.substr(0, text.size() - 1)).codePoint,
                invalidCodePoint);
    }
  }
}

TEST(Unicode, RefusesWhatIsNoUtf8) {
  for (std::string_view bad :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf",
        "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xc3(", "\xe4\xb8("}) {
    Utf8Char decoded = decodeFirst(bad);
    EXPECT_EQ(decoded.codePoint, invalidCodePoint) << bad;
    EXPECT_EQ(decoded.length, 1u);
  }
}

TEST(Unicode, ReplacesMaximalInvalidParts) {
  auto lossy = [](std::string_view bytes) {
    std::string text;
    EXPECT_EQ(appendValidUtf8(bytes, /*final=*/true, text), 0u);
    return text;
  };
  EXPECT_EQ(lossy("a\xff b"), "a\uFFFD b");
  // One for the truncated sequence of three, not one a byte.
  EXPECT_EQ(lossy("\xe4\xb8"), "\uFFFD");
  EXPECT_EQ(lossy("\xe4\xb8x"), "\uFFFDx");
  EXPECT_EQ(lossy("\xf0\x9f\x98\xe4\xb8\xad"), "\uFFFD中");
  // A surrogate's second byte is not allowed, so each byte stands alone.
  EXPECT_EQ(lossy("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(lossy("\xc0\x80"), "\uFFFD\uFFFD");
}

TEST(Unicode, HoldsBackOnlyWhatCanBecomeACharacter) {
  std::string text;
  EXPECT_EQ(appendValidUtf8("a\xe4\xb8", false, text), 2u);
  EXPECT_EQ(text, "a");
  text.clear();
  EXPECT_EQ(appendValidUtf8("a\xff", false, text), 0u);
  EXPECT_EQ(text, "a\uFFFD");
}

TEST(Unicode, ClassifiesCharacters) {
  auto category = [](uint32_t c) { return categoryNames[generalCategory(c)]; };
  EXPECT_EQ(category('a'), "Ll");
  EXPECT_EQ(category(0x4E2D), "Lo");
  EXPECT_EQ(category(0x02B0), "Lm");
  EXPECT_EQ(category('7'), "Nd");
  EXPECT_EQ(category(0x2167), "Nl"); // Roman numeral eight
  EXPECT_EQ(category(0x00BD), "No"); // one half
  EXPECT_EQ(category(0x0301), "Mn");
  EXPECT_EQ(category('_'), "Pc");
  EXPECT_EQ(category(0xE000), "Co"); // the last of the names
  EXPECT_EQ(category(0x110000), "Cn");
  EXPECT_EQ(category(invalidCodePoint), "Cn");
  EXPECT_TRUE(isWhiteSpace('\n') && isWhiteSpace('\v') && isWhiteSpace(0x3000));
  EXPECT_FALSE(isWhiteSpace(0x1C) || isWhiteSpace(0x180E));
  EXPECT_TRUE(isWordCharacter('_') && isWordCharacter(0x0301));
  EXPECT_FALSE(isWordCharacter('-') || isWordCharacter(invalidCodePoint));
  EXPECT_EQ(lowerCase(0xC4), 0xE4u);
  EXPECT_EQ(upperCase(0xE4), 0xC4u);
}

static std::string normalizeNfc(std::string_view text) {
  return normalize(text, NormalForm::C);
}

TEST(Unicode, NormalizesToFormC) {
  EXPECT_EQ(normalizeNfc("e\u0301"), "\u00E9");
  EXPECT_EQ(normalizeNfc("\u212B"), "\u00C5");              // singleton
  EXPECT_EQ(normalizeNfc("\u0958"), "\u0915\u093C");        // excluded
  EXPECT_EQ(normalizeNfc("\u1112\u1161\u11AB"), "\uD55C");  // Hangul
  EXPECT_EQ(normalizeNfc("a\u0307\u0323"), "\u1EA1\u0307"); // reordered
  EXPECT_EQ(normalizeNfc("\uFB01"), "\uFB01"); // compatibility stays
  EXPECT_EQ(normalizeNfc("plain"), "plain");
  // Invalid bytes stay and keep apart what stands beside them.
  EXPECT_EQ(normalizeNfc("e\xff\u0301"), "e\xff\u0301");
}

TEST(Unicode, NormalizesToTheOtherForms) {
  EXPECT_EQ(normalize("\u00E9\uFB01", NormalForm::D), "e\u0301\uFB01");
  EXPECT_EQ(normalize("e\u0301\uFB01", NormalForm::KC), "\u00E9fi");
  EXPECT_EQ(normalize("\u00E9\uFB01", NormalForm::KD), "e\u0301fi");
}

TEST(Unicode, SortsLongRunsOfMarksStably) {
  // Descending classes: exchanging neighbours would take 10^10 steps.
  std::string text = "a", want = "a";
  size_t count = 100'000;
  for (size_t i = 0; i < count; ++i)
    text += "\u0345"; // class 240
  for (size_t i = 0; i < count; ++i)
    text += "\u0334"; // class 1
  for (size_t i = 0; i < count; ++i)
    want += "\u0334";
  for (size_t i = 0; i < count; ++i)
    want += "\u0345";
  EXPECT_EQ(normalizeNfc(text), want);
}

TEST(ByteAlphabet, IsABijectionOfVisibleCharacters) {
  std::set<uint16_t> seen;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint16_t character = byteCharacters()[byte];
    EXPECT_TRUE(seen.insert(character).second);
    EXPECT_FALSE(isWhiteSpace(character));
    std::string one(1, static_cast<char>(byte));
    EXPECT_EQ(bytesFromVisible(visibleFromBytes(one)), one);
  }
  EXPECT_EQ(visibleFromBytes(" \n\xc3"), "\u0120\u010A\u00C3");
  EXPECT_EQ(bytesFromVisible("a b"), std::nullopt);
  EXPECT_EQ(bytesFromVisible("中"), std::nullopt);
}
