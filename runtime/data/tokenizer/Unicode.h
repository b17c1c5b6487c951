// The little of Unicode that byte-level tokenizers need: which characters are
// letters, numbers and spaces, UTF-8 decoding, and normalization form C.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::tokenizer {

/// What the splitting patterns tell apart. Newline is \r and \n, Space all
/// other White_Space; Letter and Number are the general categories L and N.
enum class CharClass : uint8_t { Other, Letter, Number, Space, Newline };

/// The classes of all code points; 1.1 MiB, made from utf8proc at first use.
const CharClass *charClasses();

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

/// Normalization form C. Invalid bytes stay as they are and separate what
/// stands left and right of them. Linear in time up to the sorting of runs of
/// combining marks.
std::string normalizeNfc(std::string_view text);

} // namespace tessera::tokenizer
