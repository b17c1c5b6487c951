// Computes embeddings of sequences, several at a time. EmbedPrograms implements
// it with a compiled encoder.
#pragma once
#include "runtime/support/Status.h"

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

/// The sizes that the programs were compiled for.
struct EmbeddingShape {
  int64_t context = 0; ///< tokens of a sequence at most
  int64_t width = 0;   ///< elements of an embedding
  int64_t vocab = 0;
  int64_t batch = 0; ///< sequences that run together at most
  /// Ascending: sequences of up to so many tokens run together. A longer
  /// sequence never delays a shorter one, nor changes its embedding.
  std::vector<int64_t> lengths;

  /// The smallest of `lengths` that holds a sequence of 1 to `context` tokens.
  int64_t lengthFor(int64_t tokens) const {
    for (int64_t each : lengths)
      if (tokens <= each)
        return each;
    return lengths.back();
  }
};

/// A sequence's tokens.
using TokenSpan = std::span<const int32_t>;

/// One text or, for a cross-encoder, two.
struct TokenSequence {
  TokenSequence(TokenSpan tokens)
      : tokens(tokens), secondBegins(int64_t(tokens.size())) {}
  TokenSequence(TokenSpan tokens, int64_t secondBegins)
      : tokens(tokens), secondBegins(secondBegins) {}

  TokenSpan tokens;
  /// The index of the second text's first token; tokens.size(): there is one
  /// text. Programs that know no second text ignore it.
  int64_t secondBegins;
};

/// Not thread-safe.
class EmbeddingModel {
public:
  virtual ~EmbeddingModel() = default;
  virtual const EmbeddingShape &shape() const = 0;
  /// 1 to shape().batch sequences, each of 1 to shape().context tokens inside
  /// the vocabulary, all with the same lengthFor; `vectors` [sequences, width].
  /// An embedding does not depend on the other sequences of the batch.
  virtual Status embed(std::span<const TokenSequence> sequences,
                       std::span<float> vectors) = 0;
};

/// "a sequence of … tokens; …" if the model does not accept its length.
Status checkText(const EmbeddingShape &shape, TokenSpan text);

/// Embeds any number of sequences, in any order; `vectors` [sequences, width].
Status embedAll(EmbeddingModel &model, std::span<const TokenSequence> sequences,
                std::span<float> vectors);

} // namespace tessera
