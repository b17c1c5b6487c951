// Byte-pair encoding of one piece of text: start from its bytes (or its
// characters) and merge, as long as any neighbours have a rank, the pair of
// lowest rank, leftmost first
// (R. Sennrich et al., "Neural Machine Translation of Rare Words with Subword
// Units", 2016).
#pragma once
#include "runtime/data/tokenizer/PairMap.h"

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera::tokenizer {

/// Lets maps of std::string be searched by std::string_view.
struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};
template <typename Value>
using StringMap =
    std::unordered_map<std::string, Value, StringHash, std::equal_to<>>;

struct Merge {
  uint32_t rank;
  uint32_t token; // what the pair becomes
};

/// Filled when the tokenizer is read, constant from then on.
struct BpeModel {
  /// What pieces are made of: bytes, each of which is a token, or UTF-8.
  bool bytes = true;
  std::array<uint32_t, 256> byteTokens{}; // where `bytes`
  PairMap<Merge> merges;
  /// Keep a piece that is a token, regardless of the merges.
  bool ignoreMerges = false;
  /// Tokens by the part of a piece that they encode; with `bytes`, only for
  /// ignoreMerges.
  StringMap<uint32_t> tokens;

  // What follows is only for pieces of UTF-8.
  std::string continuingPrefix; // before every character but the first
  std::string endSuffix;        // after the last character
  /// Tokens for the bytes of a character without a token; noToken: none.
  bool byteFallback = false;
  std::array<uint32_t, 256> fallbackTokens{};
  /// The token of other characters; noToken: they are left out.
  uint32_t unknown = noToken;
  bool fuseUnknown = false; // one token for adjacent unknown characters
  static constexpr uint32_t noToken = 0xFFFFFFFF;
};

/// Encodes pieces; holds the working memory. One a thread.
class BpeMerger {
public:
  explicit BpeMerger(const BpeModel &model) : model(model) {}
  /// Appends the tokens of `piece` (not empty, below 4 GiB) to `out`. Short
  /// pieces cost O(n²) with a tiny constant, long ones O(n log n).
  void encode(std::string_view piece, std::vector<uint32_t> &out);

private:
  /// Fills `initial` with the tokens of the piece's characters.
  void tokensOfCharacters(std::string_view piece);
  bool appendFallback(std::string_view text);
  void mergeShort(std::vector<uint32_t> &out);
  void mergeLong(std::vector<uint32_t> &out);

  struct Symbol {
    uint32_t token, previous, next;
  };
  const BpeModel &model;
  std::vector<uint32_t> initial; // tokens before any merge
  std::string affixed;
  std::vector<Symbol> symbols;
  std::vector<uint64_t> heap;
};

} // namespace tessera::tokenizer
