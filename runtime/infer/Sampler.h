// Samples the next token from its logits.
#pragma once
#include "runtime/infer/PagedModel.h"
#include "runtime/support/Status.h"

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tessera {

struct SamplingOptions {
  float temperature = 0.8f; ///< 0: the most likely token
  int64_t topK = 0;         ///< only the k most likely tokens; 0: all
  float topP = 1.0f; ///< nucleus: the fewest tokens with this total probability
  float minP = 0.0f; ///< minimal probability, relative to the likeliest token
  /// Divides positive logits and multiplies negative ones of all tokens of the
  /// sequence, the prompt included (Keskar et al. 2019). 1: off.
  float repetitionPenalty = 1.0f;
  /// Subtracted from the logits of generated tokens: once, or once per
  /// occurrence.
  float presencePenalty = 0.0f, frequencyPenalty = 0.0f;
  /// (token, value added to its logit); tokens inside the vocabulary.
  std::vector<std::pair<int32_t, float>> bias = {};
  uint64_t seed = 0;
};

/// "must be …" if a value is out of its range.
Status checkSampling(const SamplingOptions &options);

/// Chooses the tokens of one sequence, or describes the choice for a model that
/// samples. Applies in this order: the allowed tokens, bias, penalties,
/// temperature, min-p, top-k, top-p. Draw n is a pure function of (logits,
/// options, tokens seen, n): Philox with the seed as key and n as counter
/// (TokenChoice.h). Keeps its working memory between calls.
class Sampler {
public:
  explicit Sampler(SamplingOptions options);
  /// The prompt of the sequence. Penalties depend on the tokens seen.
  void sawPrompt(std::span<const int32_t> tokens);
  void saw(int32_t token);
  /// The index drawn; ties go to the lower index. Logits that are NaN, or all
  /// minus infinity, are an error. With `allowed`, draws one of those.
  StatusOr<int32_t> sample(std::span<const float> logits, uint64_t draw,
                           const TokenMask *allowed = nullptr);
  /// The sampling with which a model draws the same token among the first
  /// `choices`; nothing if it needs more than `changes` changed logits. Valid
  /// until the sampler sees a token.
  std::optional<TokenSampling> sampling(int64_t mostChanges, int64_t choices,
                                        uint64_t draw,
                                        const TokenMask *allowed = nullptr);
  /// Whether a token depends on earlier ones by more than the logits.
  bool remembers() const {
    return options.repetitionPenalty != 1 || options.presencePenalty != 0 ||
           options.frequencyPenalty != 0;
  }

private:
  TokenChoice choiceOf(uint64_t draw) const;
  std::span<const ChangedLogit> findChanges();
  std::span<const float> adjust(std::span<const float> logits,
                                const TokenMask *allowed);

  SamplingOptions options;
  /// How often each token was generated; 0: it occurs only in the prompt.
  std::unordered_map<int32_t, int64_t> seen;
  std::vector<ChangedLogit> biases;  ///< one per token, ordered by token
  std::vector<ChangedLogit> changes; ///< biases and penalties
  bool isStale = true;               ///< `changes` lacks tokens seen since
  std::vector<float> adjusted;
};

/// Applies the changes, and sets logits that are not allowed (null: all are) to
/// minus infinity.
void adjustLogits(std::span<float> logits,
                  std::span<const ChangedLogit> changes,
                  const TokenMask *allowed);

/// The token that a model sampled; an error if it gave none.
StatusOr<int32_t> sampledToken(int32_t token);

/// Natural logarithms of probabilities at temperature 1, before any penalty.
struct TokenLogprobs {
  float chosen = 0;
  std::vector<std::pair<int32_t, float>> top; ///< most likely first
};
/// `logSum` is log Σ exp(logits) as the model computed it; otherwise it is
/// computed here.
TokenLogprobs logprobsOf(std::span<const float> logits, int32_t chosen,
                         int64_t top, std::optional<float> logSum = {});

} // namespace tessera
