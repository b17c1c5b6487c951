#include "runtime/data/tokenizer/PreTokenizer.h"
#include "runtime/data/tokenizer/Unicode.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace tessera::tokenizer {

namespace {
struct Spelling {
  std::string_view regex;
  SplitPattern pattern;
};
} // namespace

// The first spelling of a pattern is the one that is written. The second of
// Cl100k takes the same pieces: its possessive quantifiers stand where nothing
// could be given back, and \s*[\r\n] ends at the same last newline as
// \s*[\r\n]+.
static constexpr std::array spellings = {
    Spelling{
        R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
        SplitPattern::Gpt2},
    Spelling{
        R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
        SplitPattern::Gpt2},
    Spelling{
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        SplitPattern::Cl100k},
    Spelling{
        R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
        SplitPattern::Cl100k},
    Spelling{
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        SplitPattern::Qwen2},
};

std::optional<SplitPattern> recognizeSplitPattern(std::string_view regex) {
  for (const Spelling &spelling : spellings)
    if (spelling.regex == regex)
      return spelling.pattern;
  return std::nullopt;
}

std::string_view splitPatternRegex(SplitPattern pattern) {
  for (const Spelling &spelling : spellings)
    if (spelling.pattern == pattern)
      return spelling.regex;
  return {};
}

namespace {
struct Char {
  CharClass kind;
  uint32_t length;
};

/// The scanner's place in the text.
class Cursor {
public:
  Cursor(const char *text, const char *end)
      : at(text), end(end), classes(charClasses()) {}
  bool done() const { return at == end; }
  Char peek() const {
    Utf8Char c = decodeUtf8(at, end);
    CharClass kind = c.codePoint == invalidCodePoint ? CharClass::Other
                                                     : classes[c.codePoint];
    return {kind, c.length};
  }
  bool sees(CharClass kind) const { return !done() && peek().kind == kind; }
  /// Passes at most `limit` characters of one class.
  void skip(CharClass kind, size_t limit = SIZE_MAX) {
    while (limit-- > 0 && !done()) {
      Char c = peek();
      if (c.kind != kind)
        return;
      at += c.length;
    }
  }
  const char *at;
  const char *const end;

private:
  const CharClass *classes;
};
} // namespace

/// The length of an English contraction ('s, 't, 're, …) at `text`, else 0.
/// Without regard to case, s has a third form: U+017F, the long s.
static size_t contractionLength(const char *text, const char *end,
                                bool ignoreCase) {
  size_t left = static_cast<size_t>(end - text);
  if (left < 2 || text[0] != '\'')
    return 0;
  auto letter = [&](size_t i) -> char {
    if (i >= left)
      return 0;
    char c = text[i];
    return ignoreCase && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  char first = letter(1), second = letter(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd')
    return 2;
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
      (first == 'l' && second == 'l'))
    return 3;
  bool longS = left >= 3 && static_cast<uint8_t>(text[1]) == 0xC5 &&
               static_cast<uint8_t>(text[2]) == 0xBF;
  return ignoreCase && longS ? 3 : 0;
}

/// \s+(?!\S)|\s+ at white space: the run but for its last character where
/// something follows it, so that one space can lead the next word.
static const char *spaceRunEnd(const char *text, const char *end) {
  Cursor cursor(text, end);
  const char *last = text;
  while (!cursor.done()) {
    Char c = cursor.peek();
    if (c.kind != CharClass::Space && c.kind != CharClass::Newline)
      return last == text ? cursor.at : last;
    last = cursor.at;
    cursor.at += c.length;
  }
  return end;
}

static const char *gpt2PieceEnd(const char *text, const char *end) {
  if (size_t length = contractionLength(text, end, /*ignoreCase=*/false))
    return text + length;
  Cursor cursor(text, end);
  if (*text == ' ')
    ++cursor.at;
  if (!cursor.done()) {
    CharClass kind = cursor.peek().kind;
    if (kind != CharClass::Space && kind != CharClass::Newline) {
      cursor.skip(kind);
      return cursor.at;
    }
  }
  return spaceRunEnd(text, end);
}

/// \s*[\r\n]+ : the end of the last newline in the run of white space at
/// `text`, or null where the run holds none.
static const char *newlineRunEnd(const char *text, const char *end) {
  Cursor cursor(text, end);
  const char *found = nullptr;
  while (!cursor.done()) {
    Char c = cursor.peek();
    if (c.kind != CharClass::Space && c.kind != CharClass::Newline)
      break;
    cursor.at += c.length;
    if (c.kind == CharClass::Newline)
      found = cursor.at;
  }
  return found;
}

static const char *cl100kPieceEnd(const char *text, const char *end,
                                  size_t maxDigits) {
  if (size_t length = contractionLength(text, end, /*ignoreCase=*/true))
    return text + length;
  Cursor cursor(text, end);
  Char first = cursor.peek();
  if (first.kind == CharClass::Number) {
    cursor.skip(CharClass::Number, maxDigits);
    return cursor.at;
  }
  // [^\r\n\p{L}\p{N}]?\p{L}+
  if (first.kind != CharClass::Letter && first.kind != CharClass::Newline)
    cursor.at += first.length;
  if (cursor.sees(CharClass::Letter)) {
    cursor.skip(CharClass::Letter);
    return cursor.at;
  }
  //  ?[^\s\p{L}\p{N}]+[\r\n]*
  cursor.at = text + (*text == ' ' ? 1 : 0);
  if (cursor.sees(CharClass::Other)) {
    cursor.skip(CharClass::Other);
    cursor.skip(CharClass::Newline);
    return cursor.at;
  }
  if (const char *found = newlineRunEnd(text, end))
    return found;
  return spaceRunEnd(text, end);
}

size_t pieceLength(SplitPattern pattern, const char *text, const char *end) {
  end = text + std::min<size_t>(static_cast<size_t>(end - text), maxPieceBytes);
  const char *stop = end;
  switch (pattern) {
  case SplitPattern::Whole:
    break;
  case SplitPattern::Gpt2:
    stop = gpt2PieceEnd(text, end);
    break;
  case SplitPattern::Cl100k:
    stop = cl100kPieceEnd(text, end, 3);
    break;
  case SplitPattern::Qwen2:
    stop = cl100kPieceEnd(text, end, 1);
    break;
  }
  return static_cast<size_t>(stop - text);
}

} // namespace tessera::tokenizer
