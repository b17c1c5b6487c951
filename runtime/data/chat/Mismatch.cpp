#include "runtime/data/chat/Mismatch.h"

#include <algorithm>

namespace tessera::chat {

static std::ptrdiff_t promptOf(const EncodedDocument &document) {
  return std::ranges::find(document.supervised, 1) -
         document.supervised.begin();
}

std::optional<EncodedDocument> mismatched(const EncodedDocument &one,
                                          const EncodedDocument &other,
                                          uint64_t most) {
  if (uint64_t(promptOf(one)) >= most)
    return std::nullopt;
  EncodedDocument document;
  document.kind = DocumentKind::Mismatched;
  const auto join = [&](const auto &first, const auto &second, auto &out) {
    out.assign(first.begin(), first.begin() + promptOf(one));
    out.insert(out.end(), second.begin() + promptOf(other), second.end());
    out.resize(std::min<uint64_t>(out.size(), most));
  };
  join(one.tokens, other.tokens, document.tokens);
  join(one.supervised, other.supervised, document.supervised);
  return document;
}

} // namespace tessera::chat
