#include "runtime/data/tokenizer/regex/RegexWords.h"
#include "runtime/data/tokenizer/Unicode.h"

#include <cctype>

namespace tessera::tokenizer {

std::optional<CodePointSet> RegexWords::property(bool negative) {
  size_t end = pattern.find('}', at);
  if (!take("{") || end == pattern.npos) {
    wrong("a property without its braces");
    return std::nullopt;
  }
  if (take("^"))
    negative = !negative;
  std::string_view name = pattern.substr(at, end - at);
  std::optional<CodePointSet> set = propertySet(name);
  if (!set)
    fail(fmt::format("the property {}", quote(name)));
  at = end + 1;
  return set && negative ? set->complement() : set;
}

CodePointSet RegexWords::lineEnds() const {
  return isEcma ? CodePointSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}})
                : CodePointSet::of('\n');
}

CodePointSet RegexWords::spaces() const {
  if (!isEcma)
    return spaceSet();
  // Without U+FEFF, which most other engines do not take for a space.
  return CodePointSet({{'\t', '\r'},
                       {' ', ' '},
                       {0xA0, 0xA0},
                       {0x1680, 0x1680},
                       {0x2000, 0x200A},
                       {0x2028, 0x2029},
                       {0x202F, 0x202F},
                       {0x205F, 0x205F},
                       {0x3000, 0x3000}});
}

CodePointSet RegexWords::digits() const {
  return isEcma ? CodePointSet({{'0', '9'}}) : digitSet();
}

CodePointSet RegexWords::wordCharacters() const {
  return isEcma ? CodePointSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}})
                : wordSet();
}

std::optional<CodePointSet> RegexWords::namedSet(char letter) {
  switch (letter) {
  case 's':
    return spaces();
  case 'S':
    return spaces().complement();
  case 'd':
    return digits();
  case 'D':
    return digits().complement();
  case 'w':
    return wordCharacters();
  case 'W':
    return wordCharacters().complement();
  case 'p':
    return property(false);
  case 'P':
    return property(true);
  default:
    return std::nullopt;
  }
}

uint32_t RegexWords::hexadecimal() {
  bool braces = take("{");
  size_t digits = braces ? 6 : pattern[at - 1] == 'u' ? 4 : 2;
  uint32_t value = 0;
  size_t count = 0;
  for (; count < digits && at < pattern.size(); ++count, ++at) {
    auto c = static_cast<uint8_t>(pattern[at]);
    if (!std::isxdigit(c))
      break;
    value = value * 16 +
            static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  bool surrogate = value >= 0xD800 && value < 0xE000;
  if (count == 0 || (braces && !take("}")) || value >= invalidByte || surrogate)
    wrong("a hexadecimal escape that is not a character");
  return value;
}

uint32_t RegexWords::escapedCharacter(char letter) {
  switch (letter) {
  case 'n':
    return '\n';
  case 'r':
    return '\r';
  case 't':
    return '\t';
  case 'v':
    return '\v';
  case 'f':
    return '\f';
  case 'a':
  case 'e':
    if (isEcma)
      break;
    return letter == 'a' ? '\a' : 0x1B;
  case 'x':
  case 'u':
    return hexadecimal();
  default:
    break;
  }
  if (std::isalnum(static_cast<uint8_t>(letter)))
    fail(fmt::format("the escape \\{}", letter));
  return static_cast<uint8_t>(letter);
}

uint32_t RegexWords::character() {
  Utf8Char c = decodeUtf8(pattern.data() + at, pattern.data() + pattern.size());
  if (c.codePoint == invalidCodePoint)
    wrong("a byte that is not UTF-8");
  at += c.length;
  return c.codePoint;
}

} // namespace tessera::tokenizer
