#include "runtime/data/tokenizer/Normalizer.h"

#include <utf8proc.h>

#include <cstring>

namespace tessera::tokenizer {

std::string Normalizer::apply(std::string_view text) const {
  std::string result(text);
  for (const Step &step : steps)
    result = step(result);
  return result;
}

/// Calls `onCharacter(codePoint, bytes)`; invalidCodePoint for invalid bytes.
template <typename OnCharacter>
static void forEachCharacter(std::string_view text, OnCharacter onCharacter) {
  const char *at = text.data(), *end = at + text.size();
  while (at != end) {
    Utf8Char c = decodeUtf8(at, end);
    onCharacter(c.codePoint, std::string_view(at, c.length));
    at += c.length;
  }
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  forEachCharacter(text, [&](uint32_t c, std::string_view bytes) {
    if (c == invalidCodePoint)
      out += bytes;
    else if (c == 0x130) // İ, the one letter whose lower case is two characters
      out += "i\u0307";
    else
      appendUtf8(lowerCase(c), out);
  });
  return out;
}

std::string withoutMarks(std::string_view text, bool onlyNonspacing) {
  std::string out;
  out.reserve(text.size());
  forEachCharacter(text, [&](uint32_t c, std::string_view bytes) {
    std::string_view category = categoryNames[generalCategory(c)];
    if (onlyNonspacing ? category != "Mn" : category[0] != 'M')
      out += bytes;
  });
  return out;
}

std::string stripped(std::string_view text, bool left, bool right) {
  size_t begin = text.size(), end = 0, at = 0;
  forEachCharacter(text, [&](uint32_t c, std::string_view bytes) {
    if (!isWhiteSpace(c)) {
      begin = std::min(begin, at);
      end = at + bytes.size();
    }
    at += bytes.size();
  });
  begin = left ? begin : 0;
  end = right ? end : text.size();
  return std::string(text.substr(begin, std::max(begin, end) - begin));
}

std::string replaced(std::string_view text, const Regex &regex,
                     std::string_view content) {
  std::string out;
  size_t at = 0;
  RegexScanner scanner(regex, text);
  while (auto match = scanner.next()) {
    out += text.substr(at, match->begin - at);
    out += content;
    at = match->end;
  }
  return out += text.substr(at);
}

/// The ranges that BERT takes for Chinese characters.
static bool isChineseCharacter(uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

static std::string bertCleaned(std::string_view text) {
  std::string out;
  forEachCharacter(text, [&](uint32_t c, std::string_view bytes) {
    bool space = isWhiteSpace(c);
    std::string_view category = categoryNames[generalCategory(c)];
    bool control = category == "Cc" || category == "Cf" || category == "Co";
    bool keptControl = c == '\t' || c == '\n' || c == '\r';
    if (c == 0xFFFD || (control && !keptControl))
      return;
    if (space)
      out.push_back(' ');
    else
      out += bytes;
  });
  return out;
}

std::string bertNormalized(std::string_view text,
                           const BertNormalizerOptions &options) {
  std::string result =
      options.cleanText ? bertCleaned(text) : std::string(text);
  if (options.chineseCharacters) {
    std::string spaced;
    forEachCharacter(result, [&](uint32_t c, std::string_view bytes) {
      if (isChineseCharacter(c))
        spaced.append(" ").append(bytes).append(" ");
      else
        spaced += bytes;
    });
    result = std::move(spaced);
  }
  if (options.stripAccents)
    result = withoutMarks(normalize(result, NormalForm::D),
                          /*onlyNonspacing=*/true);
  return options.lowercase ? lowercase(result) : result;
}

StatusOr<CharacterMap> CharacterMap::parse(std::string_view bytes) {
  uint32_t size = 0;
  if (bytes.size() >= sizeof(size))
    std::memcpy(&size, bytes.data(), sizeof(size));
  if (size == 0 || size % sizeof(uint32_t) != 0 ||
      size > bytes.size() - sizeof(size))
    return Status::error("a precompiled character map of {} bytes whose array "
                         "has {} bytes",
                         bytes.size(), size);
  CharacterMap map;
  map.units.resize(size / sizeof(uint32_t));
  std::memcpy(map.units.data(), bytes.data() + sizeof(size), size);
  map.strings = bytes.substr(sizeof(size) + size);
  return map;
}

// A unit holds a label (bits 0 to 7; bit 31 is clear in a unit that has one), a
// flag that a value follows (bit 8), and the distance to the children (bits 10
// to 30, times 256 where bit 9 is set). A value is a unit's lower 31 bits.
const char *CharacterMap::find(std::string_view text) const {
  auto distance = [](uint32_t unit) {
    return (unit >> 10) << ((unit & (1u << 9)) >> 6);
  };
  uint32_t node = distance(units[0]);
  for (char c : text) {
    auto byte = static_cast<uint8_t>(c);
    node ^= byte;
    if (byte == 0 || node >= units.size())
      return nullptr;
    uint32_t unit = units[node];
    if ((unit & (1u << 31 | 0xFF)) != byte)
      return nullptr;
    node ^= distance(unit);
    if ((unit >> 8 & 1) == 0)
      continue;
    if (node >= units.size())
      return nullptr;
    uint32_t offset = units[node] & ~(1u << 31);
    return offset < strings.size() ? strings.c_str() + offset : nullptr;
  }
  return nullptr;
}

void CharacterMap::appendCluster(std::string_view cluster,
                                 std::string &out) const {
  if (cluster.size() < 6)
    if (const char *text = find(cluster)) {
      out += text;
      return;
    }
  forEachCharacter(cluster, [&](uint32_t, std::string_view bytes) {
    if (const char *text = find(bytes))
      out += text;
    else
      out += bytes;
  });
}

std::string CharacterMap::apply(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  size_t begin = 0, at = 0;
  uint32_t previous = invalidCodePoint;
  utf8proc_int32_t state = 0;
  forEachCharacter(text, [&](uint32_t c, std::string_view bytes) {
    bool ends = previous == invalidCodePoint || c == invalidCodePoint ||
                utf8proc_grapheme_break_stateful(
                    static_cast<utf8proc_int32_t>(previous),
                    static_cast<utf8proc_int32_t>(c), &state);
    if (ends && at > begin) {
      appendCluster(text.substr(begin, at - begin), out);
      begin = at;
      state = 0;
    }
    previous = c;
    at += bytes.size();
  });
  if (at > begin)
    appendCluster(text.substr(begin, at - begin), out);
  return out;
}

} // namespace tessera::tokenizer
