#include "runtime/data/tokenizer/Tokenizer.h"
#include "runtime/data/tokenizer/Unicode.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace tessera::tokenizer {

/// Remembers the tokens of pieces: text repeats its words. When it is full it
/// starts anew, which bounds its memory and needs no order of use.
class Encoder::PieceCache {
public:
  PieceCache() : slots(slotCount) {}

  /// The tokens of `piece`, or nothing.
  std::optional<std::span<const uint32_t>> find(std::string_view piece,
                                                uint64_t hash) const {
    for (size_t at = hash & mask; slots[at].count != 0; at = (at + 1) & mask) {
      const Slot &slot = slots[at];
      if (slot.hash == hash && slot.length == piece.size() &&
          std::memcmp(bytes.data() + slot.text, piece.data(), piece.size()) ==
              0)
        return std::span(tokens).subspan(slot.first, slot.count);
    }
    return std::nullopt;
  }

  void add(std::string_view piece, uint64_t hash,
           std::span<const uint32_t> ids) {
    if (used == slotCount / 2)
      clear();
    size_t at = hash & mask;
    while (slots[at].count != 0)
      at = (at + 1) & mask;
    slots[at] = {hash, static_cast<uint32_t>(bytes.size()),
                 static_cast<uint32_t>(tokens.size()),
                 static_cast<uint32_t>(piece.size()),
                 static_cast<uint32_t>(ids.size())};
    bytes += piece;
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    ++used;
  }

  static constexpr size_t longestPiece = 96;

private:
  static constexpr size_t slotCount = 1 << 16;
  static constexpr size_t mask = slotCount - 1;
  struct Slot {
    uint64_t hash = 0;
    uint32_t text = 0, first = 0, length = 0;
    uint32_t count = 0; // of tokens; 0 marks an empty slot
  };
  void clear() {
    std::fill(slots.begin(), slots.end(), Slot{});
    bytes.clear();
    tokens.clear();
    used = 0;
  }
  std::vector<Slot> slots;
  std::string bytes;
  std::vector<uint32_t> tokens;
  size_t used = 0;
};

Encoder::Encoder(const Tokenizer &tokenizer)
    : tokenizer(tokenizer), merger(tokenizer.model),
      cache(std::make_unique<PieceCache>()) {}
Encoder::~Encoder() = default;
Encoder::Encoder(Encoder &&) noexcept = default;

/// Calls `onText` for what stands between the matches and appends the matches.
template <typename OnText>
static void splitByAdded(const AddedTokenMatcher &matcher,
                         std::string_view text, bool plainSpecials,
                         std::vector<uint32_t> &out, OnText onText) {
  size_t at = 0;
  while (auto match = matcher.find(text, at, plainSpecials)) {
    if (match->begin > at)
      onText(text.substr(at, match->begin - at));
    out.push_back(match->id);
    at = match->end;
  }
  if (at < text.size())
    onText(text.substr(at));
}

void Encoder::encode(std::string_view text, SpecialText special,
                     std::vector<uint32_t> &out) {
  bool plainSpecials = special == SpecialText::Plain;
  splitByAdded(
      tokenizer.rawMatcher, text, plainSpecials, out,
      [&](std::string_view part) { encodePlain(part, plainSpecials, out); });
}

std::vector<uint32_t> Encoder::encode(std::string_view text,
                                      SpecialText special) {
  std::vector<uint32_t> ids;
  encode(text, special, ids);
  return ids;
}

void Encoder::encodePlain(std::string_view text, bool plainSpecials,
                          std::vector<uint32_t> &out) {
  std::string normalized;
  if (tokenizer.nfc) {
    normalized = normalizeNfc(text);
    text = normalized;
  }
  splitByAdded(tokenizer.normalizedMatcher, text, plainSpecials, out,
               [&](std::string_view part) {
                 if (tokenizer.addPrefixSpace && part.front() != ' ')
                   encodePieces(" " + std::string(part), out);
                 else
                   encodePieces(part, out);
               });
}

void Encoder::encodePieces(std::string_view text, std::vector<uint32_t> &out) {
  const char *at = text.data();
  const char *end = at + text.size();
  while (at != end) {
    std::string_view piece(at, pieceLength(tokenizer.pattern, at, end));
    at += piece.size();
    if (piece.size() > PieceCache::longestPiece) {
      merger.encode(piece, out);
      continue;
    }
    uint64_t hash = XXH3_64bits(piece.data(), piece.size());
    if (auto known = cache->find(piece, hash)) {
      out.insert(out.end(), known->begin(), known->end());
      continue;
    }
    size_t before = out.size();
    merger.encode(piece, out);
    cache->add(piece, hash, std::span(out).subspan(before));
  }
}

} // namespace tessera::tokenizer
