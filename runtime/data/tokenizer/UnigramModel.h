// Unigram language model tokenization: of all ways to cut a piece into tokens
// the one of highest probability, found by dynamic programming (T. Kudo,
// "Subword Regularization", 2018).
#pragma once
#include "runtime/data/tokenizer/ByteTrie.h"

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera::tokenizer {

/// Filled when the tokenizer is read, constant from then on.
struct UnigramModel {
  ByteTrie trie;              // tokens by text; numbers are ids
  std::vector<double> scores; // log probability, by id
  double lowestScore = 0;
  uint32_t unknown = 0; // for characters without a token
  /// Tokens of single bytes, used where all of an unknown stretch's bytes have
  /// one.
  bool byteFallback = false;
  std::array<uint32_t, 256> fallbackTokens{};
  static constexpr uint32_t noToken = 0xFFFFFFFF;
};

/// Encodes pieces; holds the working memory. One a thread.
class UnigramSegmenter {
public:
  explicit UnigramSegmenter(const UnigramModel &model) : model(model) {}
  /// Appends the tokens of `piece` (valid UTF-8, not empty, below 4 GiB) to
  /// `out`. O(n × length of the longest token).
  void encode(std::string_view piece, std::vector<uint32_t> &out);

private:
  void appendUnknown(std::string_view text, std::vector<uint32_t> &out);
  /// The best way to a place: its score, and the token that ends there.
  struct Place {
    double score = 0;
    uint32_t begin = UnigramModel::noToken; // of the token; noToken: no way yet
    uint32_t token = 0;
  };
  const UnigramModel &model;
  std::vector<Place> positions;
  std::vector<Place> path;
};

} // namespace tessera::tokenizer
