#include "runtime/data/tokenizer/TokenCuts.h"

#include <algorithm>

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
  /// tokens are not the part's bytes.
  void measure(const TextPart &part) {
    measured = &part;
    ends.clear();
    size_t at = part.begin;
    for (size_t i = part.firstToken; i < part.tokenEnd; ++i) {
      const std::string &bytes = tokenizer.token(ids[i]).bytes;
      if (text.compare(at, bytes.size(), bytes) != 0)
        return ends.clear();
      ends.push_back(at += bytes.size());
    }
    if (at != part.end)
      ends.clear();
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
