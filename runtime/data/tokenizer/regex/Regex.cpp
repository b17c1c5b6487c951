#include "runtime/data/tokenizer/regex/Regex.h"
#include "runtime/data/tokenizer/Unicode.h"

namespace tessera::tokenizer {

StatusOr<Regex> Regex::literal(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    if (static_cast<uint8_t>(c) < 0x80 &&
        !std::isalnum(static_cast<uint8_t>(c)))
      escaped.push_back('\\');
    escaped.push_back(c);
  }
  return compile(escaped);
}

inline uint32_t Regex::classAt(const char *at, const char *end,
                               uint32_t &length) const {
  if (auto byte = static_cast<uint8_t>(*at); byte < 0x80) {
    length = 1;
    return asciiClasses[byte];
  }
  Utf8Char c = decodeUtf8(at, end);
  length = c.length;
  if (c.codePoint == invalidCodePoint)
    return invalidClass;
  return pages[size_t{pageOfBlock[c.codePoint >> 8]} << 8 |
               (c.codePoint & 0xFF)];
}

std::optional<size_t> RegexScanner::matchAt(size_t begin) {
  const char *start = text.data(), *end = start + text.size();
  std::optional<size_t> found;
  uint32_t state = 1;
  size_t at = begin;
  passed.clear();
  while (true) {
    uint32_t length = 0;
    uint32_t kind = at == text.size() ? regex.classes - 1
                                      : regex.classAt(start + at, end, length);
    uint32_t entry = regex.table[size_t{state} * regex.classes + kind];
    if ((entry & 1) != 0) {
      found = at;
      passed.clear();
    }
    state = entry >> 1;
    if (state == 0 || at == text.size())
      break;
    size_t block = at >> 6;
    at += length;
    if (at >> 6 != block) {
      uint64_t place = uint64_t{at} << 20 | state;
      if (!hopeless.empty() && hopeless.contains(place))
        break;
      passed.push_back(place);
    }
  }
  hopeless.insert(passed.begin(), passed.end());
  return found;
}

std::optional<RegexScanner::Match> RegexScanner::next() {
  const char *start = text.data(), *end = start + text.size();
  while (from < text.size()) {
    size_t begin = from;
    if (auto matched = matchAt(begin)) {
      from = *matched;
      return Match{begin, from};
    }
    uint32_t length = 0;
    (void)regex.classAt(start + begin, end, length);
    from = begin + length;
  }
  return std::nullopt;
}

} // namespace tessera::tokenizer
