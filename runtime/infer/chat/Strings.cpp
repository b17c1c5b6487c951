#include "runtime/infer/chat/Strings.h"
#include "runtime/data/tokenizer/Normalizer.h"
#include "runtime/infer/chat/Value.h"

#include <algorithm>

namespace tessera::chat {

/// str.isspace for one character.
static bool isSpace(char32_t c) {
  return tokenizer::isWhiteSpace(c) || (c >= 0x1C && c <= 0x1F);
}

std::string_view strippedText(std::string_view text,
                              std::string_view characters, bool left,
                              bool right) {
  std::u32string set = codePoints(characters);
  auto takes = [&](char32_t c) {
    return set.empty() ? isSpace(c) : set.find(c) != set.npos;
  };
  const char *begin = text.data(), *end = begin + text.size();
  while (left && begin != end) {
    tokenizer::Utf8Char c = tokenizer::decodeUtf8(begin, end);
    if (!takes(c.codePoint))
      break;
    begin += c.length;
  }
  while (right && begin != end) {
    const char *last = end - 1;
    while (last > begin && (static_cast<uint8_t>(*last) & 0xC0) == 0x80)
      --last;
    if (!takes(tokenizer::decodeUtf8(last, end).codePoint))
      break;
    end = last;
  }
  return {begin, static_cast<size_t>(end - begin)};
}

std::string replacedText(std::string_view text, std::string_view what,
                         std::string_view by, int64_t count) {
  std::string out;
  size_t at = 0;
  if (what.empty()) { // between all characters, as in Python
    for (char32_t c : codePoints(text)) {
      if (count-- != 0)
        out += by;
      else
        count = 0;
      tokenizer::appendUtf8(c, out);
    }
    return count == 0 ? out : out.append(by);
  }
  for (; count != 0; --count) {
    size_t found = text.find(what, at);
    if (found == text.npos)
      break;
    out.append(text.substr(at, found - at)).append(by);
    at = found + what.size();
  }
  return out.append(text.substr(at));
}

std::vector<std::string> splitText(std::string_view text,
                                   std::string_view separator, int64_t count) {
  std::vector<std::string> parts;
  if (separator.empty()) {
    text = strippedText(text, {}, true, false);
    for (; !text.empty() && count != 0; --count) {
      size_t end = 0;
      while (end < text.size()) {
        tokenizer::Utf8Char c =
            tokenizer::decodeUtf8(text.data() + end, text.data() + text.size());
        if (isSpace(c.codePoint))
          break;
        end += c.length;
      }
      parts.emplace_back(text.substr(0, end));
      text = strippedText(text.substr(end), {}, true, false);
    }
    if (!text.empty())
      parts.emplace_back(text);
    return parts;
  }
  size_t at = 0;
  for (; count != 0; --count) {
    size_t found = text.find(separator, at);
    if (found == text.npos)
      break;
    parts.emplace_back(text.substr(at, found - at));
    at = found + separator.size();
  }
  parts.emplace_back(text.substr(at));
  return parts;
}

std::vector<std::string> splitLines(std::string_view text) {
  std::vector<std::string> lines;
  std::u32string points = codePoints(text);
  size_t begin = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    static constexpr std::u32string_view breaks =
        U"\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029";
    if (breaks.find(points[i]) == breaks.npos)
      continue;
    lines.push_back(
        fromCodePoints(std::u32string_view(points).substr(begin, i - begin)));
    if (points[i] == U'\r' && i + 1 < points.size() && points[i + 1] == U'\n')
      ++i;
    begin = i + 1;
  }
  if (begin < points.size())
    lines.push_back(fromCodePoints(std::u32string_view(points).substr(begin)));
  return lines;
}

std::string upperText(std::string_view text) {
  std::string out;
  for (char32_t c : codePoints(text))
    if (c == U'ß') // the common letter with two upper-case characters
      out += "SS";
    else
      tokenizer::appendUtf8(tokenizer::upperCase(c), out);
  return out;
}

std::string lowerText(std::string_view text) {
  return tokenizer::lowercase(text);
}

std::string capitalizedText(std::string_view text) {
  std::u32string points = codePoints(text);
  if (points.empty())
    return {};
  return upperText(fromCodePoints({points.data(), 1})) +
         lowerText(fromCodePoints(std::u32string_view(points).substr(1)));
}

std::string titleText(std::string_view text, bool words) {
  std::string out;
  bool begins = true;
  for (char32_t c : codePoints(text)) {
    std::string one = fromCodePoints({&c, 1});
    out += begins ? upperText(one) : lowerText(one);
    bool letter = tokenizer::lowerCase(c) != c || tokenizer::upperCase(c) != c;
    begins = words ? isSpace(c) || std::u32string_view(U"-({[<").find(c) !=
                                       std::u32string_view::npos
                   : !letter;
  }
  return out;
}

} // namespace tessera::chat
