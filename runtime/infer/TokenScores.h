// Log-probabilities of given tokens.
#pragma once
#include "runtime/infer/PagedModel.h"

#include <functional>

namespace tessera {

/// ln of the sum of e^x over all logits x; at least one.
double logSumOf(std::span<const float> logits);

/// Receives ln of the probability of token `at` > 0 of a sequence after those
/// before it.
using TakeScore =
    std::function<void(std::size_t sequence, int64_t at, double logProb)>;

/// Receives the logits after the tokens before token `at` > 0 of a sequence,
/// and their logSum() (PagedModel.h).
using TakeLogits = std::function<void(std::size_t sequence, int64_t at,
                                      std::span<const float> logits,
                                      std::optional<float> logSum)>;

/// As scoreTokens(), for all tokens of the vocabulary.
Status readLogits(PagedModel &model,
                  std::span<const std::span<const int32_t>> sequences,
                  const TakeLogits &take,
                  std::span<const int64_t> prompts = {});

/// Scores all tokens of each sequence but its first, in order. Each starts in
/// an empty KV cache. A decode step has as many tokens as the largest bucket,
/// several of a sequence where the pages hold few sequences; a model with
/// states computes one token of each of several sequences instead, so that only
/// the tokens of one sequence are in order. If the model reads
/// whole prompts, `prompts` has the number of tokens of each sequence's, which
/// are not scored; else it is not used. Errors: a sequence is longer than the
/// context, or than all pages together; a prompt is longer than a chunk, or
/// unknown.
Status scoreTokens(PagedModel &model,
                   std::span<const std::span<const int32_t>> sequences,
                   const TakeScore &take,
                   std::span<const int64_t> prompts = {});

} // namespace tessera
