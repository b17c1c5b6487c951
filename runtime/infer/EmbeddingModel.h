// What turns sequences into vectors, several at a time: EmbedPrograms is the
// compiled encoder behind it.
#pragma once
#include "runtime/support/Status.h"

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

/// What the programs of an artifact were made for.
struct EmbeddingShape {
  int64_t context = 0; ///< tokens of a text at most
  int64_t width = 0;   ///< elements of a vector
  int64_t vocab = 0;
  int64_t batch = 0; ///< sequences that run together at most
  /// Ascending: sequences of up to so many tokens run together. A longer text
  /// never makes a shorter one wait for it, nor changes what is computed for
  /// it.
  std::vector<int64_t> lengths;

  /// Of a text of 1 to `context` tokens: the first of `lengths` that it fits.
  int64_t lengthFor(int64_t tokens) const {
    for (int64_t each : lengths)
      if (tokens <= each)
        return each;
    return lengths.back();
  }
};

/// A text's tokens.
using TokenSpan = std::span<const int32_t>;

/// One thread at a time.
class EmbeddingModel {
public:
  virtual ~EmbeddingModel() = default;
  virtual const EmbeddingShape &shape() const = 0;
  /// 1 to shape().batch sequences, each of 1 to shape().context tokens inside
  /// the vocabulary, all with the same lengthFor; `vectors` [sequences, width].
  /// A text's vector does not depend on the others.
  virtual Status embed(std::span<const TokenSpan> sequences,
                       std::span<float> vectors) = 0;
};

/// "… tokens; …" if a text is none that the model takes.
Status checkText(const EmbeddingShape &shape, TokenSpan text);

/// Any number of sequences, in any order; `vectors` [sequences, width].
Status embedAll(EmbeddingModel &model, std::span<const TokenSpan> sequences,
                std::span<float> vectors);

} // namespace tessera
