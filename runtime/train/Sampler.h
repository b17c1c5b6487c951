// The next token from its logits.
#pragma once
#include "runtime/support/Status.h"

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tessera {

struct SamplingOptions {
  float temperature = 0.8f; ///< 0: the most likely token
  int64_t topK = 0;         ///< only the k most likely tokens; 0: all
  float topP = 1.0f; ///< only the fewest tokens with this probability in all
  /// Only tokens at least this times as likely as the most likely one.
  float minP = 0.0f;
  /// Logits of tokens that the text has, prompt included, are divided by it
  /// where positive and multiplied where negative (Keskar et al. 2019, 4.1).
  float repetitionPenalty = 1.0f;
  /// Taken from the logits of tokens that were generated: once, and once for
  /// each time.
  float presencePenalty = 0.0f, frequencyPenalty = 0.0f;
  uint64_t seed = 0;

  bool penalizes() const {
    return repetitionPenalty != 1 || presencePenalty != 0 ||
           frequencyPenalty != 0;
  }
};

/// "must be …" if a value is out of its range.
Status checkSampling(const SamplingOptions &options);

/// Penalties and temperature first, then top-k, then top-p among what is left,
/// then min-p. Draw n is a pure function of (logits, options, n, text): Philox
/// with the seed as key and n as counter. Keeps its working memory between
/// calls.
class Sampler {
public:
  explicit Sampler(const SamplingOptions &options) : options(options) {}
  /// The logits after penalties for `text`, of which what stands behind the
  /// first `prompt` tokens was generated; valid until the next call. Tokens
  /// outside of the logits are passed over.
  std::span<const float> penalized(std::span<const float> logits,
                                   std::span<const int32_t> text,
                                   std::size_t prompt);
  /// The index drawn; ties go to the lower index. Logits that are NaN, or all
  /// minus infinity, are an error.
  StatusOr<int32_t> sample(std::span<const float> logits, uint64_t draw);

private:
  SamplingOptions options;
  /// (weight, index), most likely first after ordering.
  std::vector<std::pair<float, int32_t>> candidates;
  std::vector<float> changed;   ///< logits
  std::vector<uint8_t> counted; ///< whether a token's repetition has counted
};

} // namespace tessera
