// The tokens that may come next in structured output (guided decoding).
#pragma once
#include "runtime/support/Status.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

/// A set of tokens.
class TokenMask {
public:
  TokenMask() = default;
  explicit TokenMask(size_t vocab) : words((vocab + 63) / 64) {}
  void insert(size_t token) { words[token / 64] |= uint64_t(1) << token % 64; }
  void erase(size_t token) {
    words[token / 64] &= ~(uint64_t(1) << token % 64);
  }
  bool contains(size_t token) const {
    return token / 64 < words.size() && (words[token / 64] >> token % 64 & 1);
  }
  bool empty() const {
    for (uint64_t word : words)
      if (word)
        return false;
    return true;
  }
  void clear() { words.assign(words.size(), 0); }
  /// Bit r of word w becomes that of token r × (number of words) + w, the
  /// layout of graph.sample. The words have a bit for every token.
  void writeRuns(std::span<uint32_t> runs) const {
    std::ranges::fill(runs, 0);
    for (size_t run = 0; run < 32; ++run) {
      size_t first = std::min(run * runs.size(), 64 * words.size());
      size_t count = std::min(runs.size(), 64 * words.size() - first);
      for (size_t w = 0; w < count; ++w) {
        size_t token = first + w;
        runs[w] |= uint32_t(words[token / 64] >> token % 64 & 1) << run;
      }
    }
  }
  /// Of one vocabulary.
  void insertAll(const TokenMask &other) {
    for (size_t i = 0; i < words.size(); ++i)
      words[i] |= other.words[i];
  }

private:
  std::vector<uint64_t> words;
};

/// Follows one sequence token by token. Not thread-safe.
class TokenGuide {
public:
  virtual ~TokenGuide() = default;
  /// The tokens that may come next, including those that end the sequence if it
  /// may end here. Valid until the next call. An error ends the request.
  virtual StatusOr<const TokenMask *> allowed() = 0;
  /// Advances by the chosen token.
  virtual Status accept(int32_t token) = 0;
  /// Whether the output may end here.
  virtual bool mayEnd() const = 0;
  /// Whether the output must end here.
  virtual bool isComplete() const = 0;
};

} // namespace tessera
