#include "runtime/infer/grammar/GbnfWords.h"
#include "runtime/data/tokenizer/Unicode.h"
#include "runtime/data/tokenizer/regex/CodePointSet.h"
#include "runtime/infer/grammar/Grammar.h"

#include <algorithm>
#include <cctype>

namespace tessera::grammar {

static constexpr std::string_view kNameSigns =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";

std::string GbnfWords::placeOf(size_t offset) const {
  std::string_view before = text.substr(0, offset);
  size_t begin = before.rfind('\n') + 1; // 0 where there is none
  auto isFirst = [](char byte) { return (uint8_t(byte) & 0xC0) != 0x80; };
  return fmt::format("line {}, column {}", 1 + std::ranges::count(before, '\n'),
                     1 + std::ranges::count_if(before.substr(begin), isFirst));
}

void GbnfWords::skipSpace() {
  while (!done()) {
    if (text[at] == '#')
      at = std::min(text.find('\n', at), text.size());
    else if (std::string_view(" \t\r\n").find(text[at]) != text.npos)
      ++at;
    else
      return;
  }
}

std::string_view GbnfWords::nameHere() const {
  std::string_view rest = text.substr(at);
  return rest.substr(0,
                     std::min(rest.find_first_not_of(kNameSigns), rest.size()));
}

bool GbnfWords::beginsDefinition() const {
  size_t end = at + nameHere().size();
  if (end == at)
    return false;
  end = std::min(text.find_first_not_of(" \t", end), text.size());
  return text.substr(end).starts_with("::=");
}

uint32_t GbnfWords::hexadecimal(size_t digits) {
  size_t begin = at;
  uint32_t value = 0;
  for (; at < text.size() && at < begin + digits; ++at) {
    auto c = uint8_t(text[at]);
    if (!std::isxdigit(c))
      break;
    value = value * 16 + uint32_t(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  if (at < begin + digits)
    fail(begin, fmt::format("an escape of {} hexadecimal digits", digits));
  else if (value >= tokenizer::invalidByte ||
           (value >= 0xD800 && value < 0xE000))
    fail(begin, "an escape that is not a valid character");
  return value;
}

uint32_t GbnfWords::character() {
  if (take("\\")) {
    if (done()) {
      fail("a backslash at the end");
      return 0;
    }
    char letter = text[at++];
    switch (letter) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'x':
      return hexadecimal(2);
    case 'u':
      return hexadecimal(4);
    case 'U':
      return hexadecimal(8);
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^':
      return uint8_t(letter);
    default:
      fail(at - 1, "an unknown escape");
      return 0;
    }
  }
  auto c = tokenizer::decodeUtf8(text.data() + at, text.data() + text.size());
  at += c.length; // the source is UTF-8
  return c.codePoint;
}

uint32_t GbnfWords::number() {
  size_t begin = at;
  uint64_t value = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at)
    value = std::min<uint64_t>(value * 10 + uint64_t(text[at] - '0'),
                               Grammar::kMaxNodes + 1);
  if (begin == at)
    fail("a number is missing");
  else if (value > Grammar::kMaxNodes)
    fail(begin, fmt::format("more than {} repetitions", Grammar::kMaxNodes));
  return uint32_t(value);
}

} // namespace tessera::grammar
