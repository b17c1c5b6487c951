#include "runtime/data/tokenizer/Unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace tessera::tokenizer {

static constexpr uint32_t codePointCount = 0x110000;

bool isWhiteSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

uint32_t generalCategory(uint32_t c) {
  if (c >= codePointCount)
    return 0;
  return static_cast<uint32_t>(
      utf8proc_category(static_cast<utf8proc_int32_t>(c)));
}

bool isWordCharacter(uint32_t c) {
  switch (generalCategory(c)) {
  case UTF8PROC_CATEGORY_LU:
  case UTF8PROC_CATEGORY_LL:
  case UTF8PROC_CATEGORY_LT:
  case UTF8PROC_CATEGORY_LM:
  case UTF8PROC_CATEGORY_LO:
  case UTF8PROC_CATEGORY_MN:
  case UTF8PROC_CATEGORY_MC:
  case UTF8PROC_CATEGORY_ME:
  case UTF8PROC_CATEGORY_ND:
  case UTF8PROC_CATEGORY_NL:
  case UTF8PROC_CATEGORY_PC:
    return true;
  case UTF8PROC_CATEGORY_SO:
    // Enclosed letters, which are Other_Alphabetic (PropList.txt).
    return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
           (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  default:
    return false;
  }
}

uint32_t lowerCase(uint32_t c) {
  if (c >= codePointCount)
    return c;
  return static_cast<uint32_t>(
      utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

uint32_t upperCase(uint32_t c) {
  if (c >= codePointCount)
    return c;
  return static_cast<uint32_t>(
      utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

/// The length of the sequence that `lead` starts, and the range of the second
/// byte that keeps out overlong forms, surrogates and what is past U+10FFFF
/// (The Unicode Standard 14, table 3-7). Length 0: starts nothing.
namespace {
struct LeadByte {
  uint8_t length, low, high;
};
} // namespace

static LeadByte leadByte(uint8_t lead) {
  if (lead < 0x80)
    return {1, 0, 0};
  if (lead < 0xC2)
    return {0, 0, 0};
  if (lead < 0xE0)
    return {2, 0x80, 0xBF};
  if (lead < 0xF0)
    return {3, static_cast<uint8_t>(lead == 0xE0 ? 0xA0 : 0x80),
            static_cast<uint8_t>(lead == 0xED ? 0x9F : 0xBF)};
  if (lead < 0xF5)
    return {4, static_cast<uint8_t>(lead == 0xF0 ? 0x90 : 0x80),
            static_cast<uint8_t>(lead == 0xF4 ? 0x8F : 0xBF)};
  return {0, 0, 0};
}

/// How many bytes from `text` are the longest beginning of a valid sequence
/// (0 where not even the first is one), and how many the sequence needs.
static std::pair<uint32_t, uint32_t> validPrefix(const char *text,
                                                 const char *end) {
  LeadByte lead = leadByte(static_cast<uint8_t>(*text));
  if (lead.length <= 1)
    return {lead.length, lead.length};
  uint32_t count = 1;
  for (; count < lead.length && text + count != end; ++count) {
    uint8_t byte = static_cast<uint8_t>(text[count]);
    uint8_t low = count == 1 ? lead.low : 0x80;
    uint8_t high = count == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high)
      break;
  }
  return {count, lead.length};
}

Utf8Char decodeUtf8(const char *text, const char *end) {
  uint8_t first = static_cast<uint8_t>(*text);
  if (first < 0x80)
    return {first, 1};
  auto [count, needed] = validPrefix(text, end);
  if (count == 0 || count < needed)
    return {invalidCodePoint, 1};
  uint32_t c = first & (0xFFu >> (needed + 1));
  for (uint32_t i = 1; i < needed; ++i)
    c = c << 6 | (static_cast<uint8_t>(text[i]) & 0x3Fu);
  return {c, needed};
}

void appendUtf8(uint32_t codePoint, std::string &out) {
  utf8proc_uint8_t bytes[4];
  utf8proc_ssize_t length =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(codePoint), bytes);
  out.append(reinterpret_cast<const char *>(bytes),
             static_cast<size_t>(length));
}

size_t appendValidUtf8(std::string_view bytes, bool final, std::string &out) {
  const char *text = bytes.data();
  const char *end = text + bytes.size();
  while (text != end) {
    auto [count, needed] = validPrefix(text, end);
    bool whole = count != 0 && count == needed;
    if (whole) {
      out.append(text, count);
    } else if (!final && count != 0 && text + count == end) {
      return count;
    } else {
      appendUtf8(0xFFFD, out);
    }
    text += std::max<uint32_t>(count, 1);
  }
  return 0;
}

/// Puts runs of combining marks into canonical order. utf8proc does it by
/// exchanging adjacent ones, which is quadratic on hostile input.
static void orderMarks(std::vector<utf8proc_int32_t> &text) {
  auto combiningClass = [](utf8proc_int32_t c) {
    return utf8proc_get_property(c)->combining_class;
  };
  std::vector<std::pair<uint64_t, utf8proc_int32_t>> run;
  for (size_t begin = 0; begin < text.size(); ++begin) {
    size_t end = begin;
    run.clear();
    for (; end < text.size(); ++end) {
      auto order = static_cast<uint64_t>(combiningClass(text[end]));
      if (order == 0)
        break;
      // The position in the key keeps the sort stable.
      run.push_back({order << 48 | (end - begin), text[end]});
    }
    if (run.size() > 1) {
      std::sort(run.begin(), run.end());
      for (size_t i = 0; i < run.size(); ++i)
        text[begin + i] = run[i].second;
    }
    begin = end;
  }
}

/// Normalizes valid UTF-8.
static void appendNormalized(std::string_view text, NormalForm form,
                             std::string &out) {
  bool compatible = form == NormalForm::KC || form == NormalForm::KD;
  auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  utf8proc_int32_t parts[32];
  for (const char *at = text.data(), *end = at + text.size(); at != end;) {
    Utf8Char c = decodeUtf8(at, end);
    at += c.length;
    int boundary = 0;
    utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.codePoint),
                                parts, 32, options, &boundary);
    points.insert(points.end(), parts,
                  parts + std::clamp<utf8proc_ssize_t>(count, 0, 32));
  }
  orderMarks(points);
  auto count = static_cast<utf8proc_ssize_t>(points.size());
  if (form == NormalForm::C || form == NormalForm::KC)
    count = utf8proc_normalize_utf32(
        points.data(), count,
        static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    appendUtf8(static_cast<uint32_t>(points[static_cast<size_t>(i)]), out);
}

std::string normalize(std::string_view text, NormalForm form) {
  std::string out;
  out.reserve(text.size());
  const char *at = text.data();
  const char *end = at + text.size();
  while (at != end) {
    const char *begin = at;
    bool ascii = true;
    Utf8Char c{0, 0};
    while (at != end) {
      c = decodeUtf8(at, end);
      if (c.codePoint == invalidCodePoint)
        break;
      ascii &= c.codePoint < 0x80;
      at += c.length;
    }
    std::string_view valid(begin, static_cast<size_t>(at - begin));
    if (ascii)
      out += valid;
    else
      appendNormalized(valid, form, out);
    if (at != end)
      out.push_back(*at++);
  }
  return out;
}

} // namespace tessera::tokenizer
