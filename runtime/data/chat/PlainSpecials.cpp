#include "runtime/data/chat/PlainSpecials.h"

#include <algorithm>

namespace tessera::chat {

using tokenizer::SpecialText;

std::vector<TextSpan> findSpecials(const tokenizer::Tokenizer &tokenizer,
                                   std::string_view text, size_t from) {
  std::vector<TextSpan> found, merged;
  if (!tokenizer.findSpecial(text))
    return found;
  for (const tokenizer::AddedToken &token : tokenizer.addedTokens()) {
    const size_t size = token.content.size();
    if (!token.special || size == 0)
      continue;
    for (size_t at = text.find(token.content, from - std::min(from, size - 1));
         at != text.npos; at = text.find(token.content, at + 1))
      found.push_back({at, at + size});
  }
  std::ranges::sort(found, {}, &TextSpan::begin);
  for (const TextSpan &span : found)
    if (merged.empty() || span.begin > merged.back().end)
      merged.push_back(span);
    else
      merged.back().end = std::max(merged.back().end, span.end);
  return merged;
}

static Status encodePlain(tokenizer::Encoder &encoder,
                          const tokenizer::Tokenizer &tokenizer,
                          std::string_view text, std::vector<uint32_t> &ids) {
  const size_t before = ids.size();
  const auto hasSpecial = [&] {
    return std::any_of(
        ids.begin() + std::ptrdiff_t(before), ids.end(),
        [&](uint32_t id) { return tokenizer.token(id).special; });
  };
  encoder.encodePart(text, SpecialText::Plain, /*first=*/before == 0, ids);
  if (!hasSpecial())
    return Status::success();
  // Some models list special tokens among their ordinary ones: the characters
  // one by one.
  ids.resize(before);
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    for (end = at + 1;
         end < text.size() && (uint8_t(text[end]) & 0xC0) == 0x80;)
      ++end;
    encoder.encodePart(text.substr(at, end - at), SpecialText::Plain,
                       /*first=*/ids.empty(), ids);
  }
  return !hasSpecial()
             ? Status::success()
             : Status::error("has the text of a special token, which this "
                             "model's tokenizer cannot tell from the token");
}

Status encodeAround(tokenizer::Encoder &encoder,
                    const tokenizer::Tokenizer &tokenizer,
                    std::string_view text, std::span<const TextSpan> plain,
                    std::vector<uint32_t> &ids) {
  size_t at = 0;
  for (const TextSpan &span : plain) {
    encoder.encode(text.substr(at, span.begin - at), SpecialText::Parse, ids,
                   /*first=*/at == 0);
    TESSERA_RETURN_IF_ERROR(
        encodePlain(encoder, tokenizer,
                    text.substr(span.begin, span.end - span.begin), ids));
    at = span.end;
  }
  encoder.encode(text.substr(at), SpecialText::Parse, ids, /*first=*/at == 0);
  return Status::success();
}

StatusOr<SpanMarkers> SpanMarkers::notIn(std::string_view text) {
  // U+FDD0 to U+FDEF, which no text of a script has.
  for (int last = 0x90; last < 0xB0; last += 2) {
    const std::string open = {char(0xEF), char(0xB7), char(last)};
    const std::string close = {char(0xEF), char(0xB7), char(last + 1)};
    if (text.find(open) == text.npos && text.find(close) == text.npos)
      return SpanMarkers(open, close);
  }
  return Status::error("has too many of the noncharacters U+FDD0 to U+FDEF");
}

std::string SpanMarkers::mark(std::string_view text,
                              std::span<const TextSpan> spans) const {
  std::string marked;
  size_t at = 0;
  for (const TextSpan &span : spans) {
    marked += text.substr(at, span.begin - at);
    marked += open;
    marked += text.substr(span.begin, span.end - span.begin);
    marked += close;
    at = span.end;
  }
  return marked += text.substr(at);
}

std::vector<TextSpan> SpanMarkers::unmark(std::string &text) const {
  std::vector<TextSpan> spans;
  std::string rest;
  size_t at = 0;
  for (size_t begin; (begin = text.find(open, at)) != text.npos;) {
    const size_t end = text.find(close, begin);
    if (end == text.npos)
      break; // the text will not be the one without marks
    rest.append(text, at, begin - at);
    const size_t first = rest.size();
    begin += open.size();
    rest.append(text, begin, end - begin);
    spans.push_back({first, rest.size()});
    at = end + close.size();
  }
  rest.append(text, at);
  text = std::move(rest);
  return spans;
}

} // namespace tessera::chat
