// The little of Unicode that tokenizers need: properties of characters, UTF-8
// decoding, and the normalization forms.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::tokenizer {

/// The abbreviations of the general categories, by generalCategory().
inline constexpr std::array<std::string_view, 30> categoryNames = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
    "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
    "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

// Properties of a code point, in the version of Unicode that utf8proc knows. A
// value past U+10FFFF has none: category 0, no property, itself as its cases.

uint32_t generalCategory(uint32_t codePoint);
/// The property White_Space (PropList.txt), which is what \s means.
bool isWhiteSpace(uint32_t codePoint);
/// What \w means: letters, marks, numbers, connecting punctuation.
bool isWordCharacter(uint32_t codePoint);
/// Simple case mappings.
uint32_t lowerCase(uint32_t codePoint);
uint32_t upperCase(uint32_t codePoint);

/// One decoded character. A byte that starts no valid UTF-8 sequence stands
/// alone: length 1, codePoint invalidCodePoint, class Other.
struct Utf8Char {
  uint32_t codePoint;
  uint32_t length;
};
inline constexpr uint32_t invalidCodePoint = 0xFFFFFFFF;

/// Decodes the character at `text`, which holds at least one byte before
/// `end`. Overlong forms, surrogates and code points past U+10FFFF are
/// invalid.
Utf8Char decodeUtf8(const char *text, const char *end);

/// Appends a valid code point.
void appendUtf8(uint32_t codePoint, std::string &out);

/// Appends `bytes` with every maximal invalid part replaced by U+FFFD (The
/// Unicode Standard 14, section 3.9, "U+FFFD Substitution of Maximal
/// Subparts"). Returns how many bytes at the end were left out because they
/// begin a sequence that more bytes could complete; with `final` they are
/// replaced as well and the result is 0.
size_t appendValidUtf8(std::string_view bytes, bool final, std::string &out);

/// Unicode's normalization forms (UAX 15).
enum class NormalForm : uint8_t { C, D, KC, KD };

/// `text` in that form. Invalid bytes stay as they are and separate what
/// stands left and right of them. Linear in time up to the sorting of runs of
/// combining marks.
std::string normalize(std::string_view text, NormalForm form);

} // namespace tessera::tokenizer
