// The next token from its logits.
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
  float topP = 1.0f; ///< only the fewest tokens with this probability in all
  float minP = 0.0f; ///< only tokens this likely, measured by the likeliest
  /// Divides positive logits and multiplies negative ones of all tokens that
  /// the text has, the prompt's included (Keskar et al. 2019). 1: off.
  float repetitionPenalty = 1.0f;
  /// Subtracted from the logits of generated tokens, once or by their number.
  float presencePenalty = 0.0f, frequencyPenalty = 0.0f;
  /// (token, what is added to its logit); tokens inside the vocabulary.
  std::vector<std::pair<int32_t, float>> bias = {};
  uint64_t seed = 0;
};

/// "must be …" if a value is out of its range.
Status checkSampling(const SamplingOptions &options);

/// Chooses the tokens of one text, or says how a model is to. In this order:
/// what is allowed, bias, penalties, temperature, min-p, top-k, top-p among
/// what is left. Draw n is a pure function of (logits, options, tokens seen,
/// n): Philox with the seed as key and n as counter; TokenChoice.h says which.
/// Keeps its working memory between calls.
class Sampler {
public:
  explicit Sampler(SamplingOptions options);
  /// The text begins with these tokens. Penalties look at what was seen.
  void sawPrompt(std::span<const int32_t> tokens);
  void saw(int32_t token);
  /// The index drawn; ties go to the lower index. Logits that are NaN, or all
  /// minus infinity, are an error. With `allowed` it is one of those.
  StatusOr<int32_t> sample(std::span<const float> logits, uint64_t draw,
                           const TokenMask *allowed = nullptr);
  /// What makes a model draw the same token among the first `choices`, if
  /// samplings may have so many changes; valid until the sampler sees a token.
  std::optional<TokenSampling> sampling(int64_t mostChanges, int64_t choices,
                                        uint64_t draw,
                                        const TokenMask *allowed = nullptr);
  /// Whether a token depends on those before it by more than the logits.
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
  /// How often each token was generated; 0: it stands in the prompt only.
  std::unordered_map<int32_t, int64_t> seen;
  std::vector<ChangedLogit> biases;  ///< by token, none twice
  std::vector<ChangedLogit> changes; ///< those, and of what was seen
  bool isStale = true;               ///< what was seen is not in them yet
  std::vector<float> adjusted;
};

/// Logits as they are chosen by: changed, and minus infinity of what is not
/// allowed (null: all are).
void adjustLogits(std::span<float> logits,
                  std::span<const ChangedLogit> changes,
                  const TokenMask *allowed);

/// The token that a model gave for a sampling; an error where it gave none.
StatusOr<int32_t> sampledToken(int32_t token);

/// Natural logarithms of probabilities at temperature 1, before any penalty.
struct TokenLogprobs {
  float chosen = 0;
  std::vector<std::pair<int32_t, float>> top; ///< most likely first
};
TokenLogprobs logprobsOf(std::span<const float> logits, int32_t chosen,
                         int64_t top);

} // namespace tessera
