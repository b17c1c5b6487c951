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
  uint64_t seed = 0;
};

/// "must be …" if a value is out of its range.
Status checkSampling(const SamplingOptions &options);

/// Temperature first, then top-k, then top-p among what is left. Draw n is a
/// pure function of (logits, options, n): Philox with the seed as key and n as
/// counter. Keeps its working memory between calls.
class Sampler {
public:
  explicit Sampler(const SamplingOptions &options) : options(options) {}
  /// The index drawn; ties go to the lower index. Logits that are NaN, or all
  /// minus infinity, are an error.
  StatusOr<int32_t> sample(std::span<const float> logits, uint64_t draw);

private:
  SamplingOptions options;
  /// (weight, index), most likely first after ordering.
  std::vector<std::pair<float, int32_t>> candidates;
};

} // namespace tessera
