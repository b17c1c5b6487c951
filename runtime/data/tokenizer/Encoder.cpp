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

static std::variant<BpeMerger, UnigramSegmenter, const WordPieceModel *>
modelEncoder(
    const std::variant<BpeModel, UnigramModel, WordPieceModel> &model) {
  if (const auto *bpe = std::get_if<BpeModel>(&model))
    return BpeMerger(*bpe);
  if (const auto *unigram = std::get_if<UnigramModel>(&model))
    return UnigramSegmenter(*unigram);
  return std::get_if<WordPieceModel>(&model);
}

Encoder::Encoder(const Tokenizer &tokenizer)
    : tokenizer(tokenizer), model(modelEncoder(tokenizer.model)),
      cache(std::make_unique<PieceCache>()) {}
Encoder::~Encoder() = default;
Encoder::Encoder(Encoder &&) noexcept = default;

/// Calls `onText` with the offsets of what stands between the matches and
/// appends the matches.
template <typename OnText>
static void splitByAdded(const AddedTokenMatcher &matcher,
                         std::string_view text, bool plainSpecials,
                         std::vector<uint32_t> &out, OnText onText,
                         std::vector<TextPart> *parts = nullptr) {
  size_t at = 0;
  auto plain = [&](size_t end) {
    if (at == end)
      return;
    const size_t first = out.size();
    onText(at, end);
    if (parts)
      parts->push_back({at, end, first, out.size(), false});
  };
  while (auto match = matcher.find(text, at, plainSpecials)) {
    plain(match->begin);
    out.push_back(match->id);
    at = match->end;
    if (parts)
      parts->push_back({match->begin, at, out.size() - 1, out.size(), true});
  }
  plain(text.size());
}

void Encoder::encode(std::string_view text, SpecialText special,
                     std::vector<uint32_t> &out, bool first) {
  std::string valid;
  if (tokenizer.validText) {
    appendValidUtf8(text, /*final=*/true, valid);
    text = valid;
  }
  bool plainSpecials = special == SpecialText::Plain;
  splitByAdded(tokenizer.rawMatcher, text, plainSpecials, out,
               [&](size_t begin, size_t end) {
                 encodePlain(text.substr(begin, end - begin), plainSpecials,
                             first && begin == 0, out);
               });
}

void Encoder::encode(std::string_view text, SpecialText special,
                     std::vector<uint32_t> &out, std::vector<TextPart> &parts) {
  splitByAdded(
      tokenizer.rawMatcher, text, special == SpecialText::Plain, out,
      [&](size_t begin, size_t end) {
        encodePart(text.substr(begin, end - begin), special, begin == 0, out);
      },
      &parts);
}

std::vector<uint32_t> Encoder::encode(std::string_view text,
                                      SpecialText special) {
  std::vector<uint32_t> ids;
  encode(text, special, ids);
  return ids;
}

std::vector<uint32_t> Encoder::encodeFramed(std::string_view text,
                                            SpecialText special) {
  std::vector<uint32_t> ids = tokenizer.prefix;
  encode(text, special, ids);
  ids.insert(ids.end(), tokenizer.suffix.begin(), tokenizer.suffix.end());
  return ids;
}

bool Encoder::cutFramed(std::vector<uint32_t> &ids, size_t most) const {
  const size_t suffixSize = tokenizer.suffix.size();
  if (most <= tokenizer.prefix.size() + suffixSize)
    return false;
  if (ids.size() > most)
    ids.erase(ids.begin() + long(most - suffixSize),
              ids.end() - long(suffixSize));
  return true;
}

/// Lengths of two sequences of so many tokens that fit in `room`.
static std::pair<size_t, size_t> cutLongest(size_t first, size_t second,
                                            size_t room) {
  if (first + second <= room)
    return {first, second};
  const size_t half = room / 2, shorter = std::min(first, second);
  if (shorter <= half) // only the longer text is cut
    return first <= second ? std::pair(first, room - first)
                           : std::pair(room - second, second);
  // The longer one keeps the odd token.
  return first <= second ? std::pair(half, room - half)
                         : std::pair(room - half, half);
}

StatusOr<TextPair> Encoder::framePair(std::span<const uint32_t> first,
                                      std::span<const uint32_t> second,
                                      size_t most) const {
  const PairFrame &frame = tokenizer.pair;
  const size_t added =
      frame.before.size() + frame.between.size() + frame.after.size();
  if (most <= added)
    return Status::error("truncated to {} tokens, a pair has only the model's "
                         "special tokens; allow more",
                         most);
  auto [one, other] = cutLongest(first.size(), second.size(), most - added);
  TextPair pair{frame.before};
  auto append = [&](std::span<const uint32_t> ids) {
    pair.ids.insert(pair.ids.end(), ids.begin(), ids.end());
  };
  append(first.first(one));
  const size_t begin = pair.ids.size();
  append(frame.between);
  append(second.first(other));
  append(frame.after);
  pair.secondBegins = frame.ofFirst ? begin + *frame.ofFirst : pair.ids.size();
  return pair;
}

void Encoder::encodePlain(std::string_view text, bool plainSpecials, bool first,
                          std::vector<uint32_t> &out) {
  std::string normalized;
  if (!tokenizer.normalizer.empty()) {
    normalized = tokenizer.normalizer.apply(text);
    text = normalized;
  }
  PreTokenizer::Sink sink = [&](std::string_view piece) {
    encodePiece(piece, out);
  };
  splitByAdded(tokenizer.normalizedMatcher, text, plainSpecials, out,
               [&](size_t begin, size_t end) {
                 tokenizer.preTokenizer.split(text.substr(begin, end - begin),
                                              first && begin == 0, sink);
               });
}

/// Where a piece that is too long is split: between two characters.
static size_t cutLength(std::string_view piece) {
  size_t length = maxPieceBytes;
  while (length > maxPieceBytes - 4 &&
         (static_cast<uint8_t>(piece[length]) & 0xC0) == 0x80)
    --length;
  return length;
}

void Encoder::encodeUncached(std::string_view piece,
                             std::vector<uint32_t> &out) {
  if (auto *bpe = std::get_if<BpeMerger>(&model))
    bpe->encode(piece, out);
  else if (auto *unigram = std::get_if<UnigramSegmenter>(&model))
    unigram->encode(piece, out);
  else
    std::get<const WordPieceModel *>(model)->encode(piece, out);
}

void Encoder::encodePiece(std::string_view piece, std::vector<uint32_t> &out) {
  while (piece.size() > maxPieceBytes) {
    size_t length = cutLength(piece);
    encodeUncached(piece.substr(0, length), out);
    piece.remove_prefix(length);
  }
  if (piece.size() > PieceCache::longestPiece)
    return encodeUncached(piece, out);
  uint64_t hash = XXH3_64bits(piece.data(), piece.size());
  if (auto known = cache->find(piece, hash)) {
    out.insert(out.end(), known->begin(), known->end());
    return;
  }
  size_t before = out.size();
  encodeUncached(piece, out);
  // A count of 0 marks an empty slot.
  if (out.size() > before)
    cache->add(piece, hash, std::span(out).subspan(before));
}

} // namespace tessera::tokenizer
