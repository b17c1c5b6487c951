#include "runtime/data/tokenizer/TokenCuts.h"

#include <algorithm>
#include <charconv>

namespace tessera::tokenizer {

namespace {
/// The cuts of one text, part by part.
class Cutter {
public:
  Cutter(Encoder &encoder, const Tokenizer &tokenizer, std::string_view text,
         SpecialText special, std::span<const uint32_t> ids)
      : encoder(encoder), tokenizer(tokenizer), text(text), special(special),
        ids(ids) {}

  TokenCut cut(const TextPart &part, size_t offset) {
    if (offset <= part.begin)
      return {part.firstToken, part.firstToken};
    if (offset >= part.end)
      return {part.tokenEnd, part.tokenEnd};
    if (part.isAdded)
      return {part.firstToken, part.tokenEnd};
    if (measured != &part)
      measure(part);
    return ends.empty() ? estimate(part, offset) : exact(part, offset);
  }

private:
  /// Sets `ends` to where each token of the part ends, or to none if the
  /// tokens do not spell the part.
  void measure(const TextPart &part) {
    measured = &part;
    const std::string_view own = text.substr(part.begin, part.end - part.begin);
    for (bool spaced : {false, true}) {
      ends.clear();
      std::string spelled;
      for (size_t i = part.firstToken; i < part.tokenEnd; ++i) {
        spelled += spelling(ids[i], spaced);
        ends.push_back(part.begin + spelled.size());
      }
      if (spelled == own)
        return;
      // A space that a normalizer put before the text.
      if (spaced && spelled.starts_with(' ') && spelled.substr(1) == own) {
        for (size_t &end : ends)
          --end;
        return;
      }
    }
    ends.clear();
  }

  /// The bytes of a token; `spaced`: with ▁ for a space, and <0x0A> for a byte.
  std::string spelling(uint32_t id, bool spaced) const {
    std::string bytes = tokenizer.token(id).bytes;
    if (!spaced)
      return bytes;
    unsigned value = 0;
    if (bytes.size() == 6 && bytes.starts_with("<0x") && bytes.back() == '>' &&
        std::from_chars(bytes.data() + 3, bytes.data() + 5, value, 16).ptr ==
            bytes.data() + 5)
      return std::string(1, char(value));
    constexpr std::string_view space = "▁";
    for (size_t at = 0; (at = bytes.find(space, at)) != bytes.npos; ++at)
      bytes.replace(at, space.size(), " ");
    return bytes;
  }

  TokenCut exact(const TextPart &part, size_t offset) const {
    auto after = std::upper_bound(ends.begin(), ends.end(), offset);
    const size_t ended = size_t(after - ends.begin());
    const bool crosses = (ended == 0 ? part.begin : ends[ended - 1]) < offset;
    return {part.firstToken + ended, part.firstToken + ended + crosses};
  }

  TokenCut estimate(const TextPart &part, size_t offset) {
    auto own = ids.subspan(part.firstToken, part.tokenEnd - part.firstToken);
    std::vector<uint32_t> before, after;
    encoder.encodePart(text.substr(part.begin, offset - part.begin), special,
                       part.begin == 0, before);
    encoder.encodePart(text.substr(offset, part.end - offset), special,
                       /*first=*/false, after);
    auto same =
        std::mismatch(own.begin(), own.end(), before.begin(), before.end());
    auto rest =
        std::mismatch(own.rbegin(), own.rend(), after.rbegin(), after.rend());
    const size_t ended = size_t(same.first - own.begin());
    const size_t begun = own.size() - size_t(rest.first - own.rbegin());
    return {part.firstToken + ended, part.firstToken + std::max(ended, begun)};
  }

  Encoder &encoder;
  const Tokenizer &tokenizer;
  std::string_view text;
  SpecialText special;
  std::span<const uint32_t> ids;
  const TextPart *measured = nullptr;
  std::vector<size_t> ends; ///< of the tokens of *measured
};
} // namespace

void encodeWithCuts(Encoder &encoder, const Tokenizer &tokenizer,
                    std::string_view text, SpecialText special,
                    std::span<const size_t> cuts, std::vector<uint32_t> &ids,
                    std::vector<TokenCut> &out) {
  std::vector<TextPart> parts;
  encoder.encode(text, special, ids, parts);
  Cutter cutter(encoder, tokenizer, text, special, ids);
  size_t part = 0;
  for (size_t offset : cuts) {
    while (part < parts.size() && parts[part].end < offset)
      ++part;
    out.push_back(part < parts.size() ? cutter.cut(parts[part], offset)
                                      : TokenCut{ids.size(), ids.size()});
  }
}

} // namespace tessera::tokenizer
