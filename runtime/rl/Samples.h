// What rollouts make: completions of a prompt with their rewards, and how good
// each is among those of its prompt.
#pragma once
#include "runtime/recipe/Recipe.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::rl {

/// A completion. Its tokens follow those of the prompt.
struct Sample {
  std::vector<int32_t> tokens = {}; ///< with the end token, if it ended by one
  /// Of each token under the weights that sampled it, in nats.
  std::vector<float> logProbs = {};
  /// The same by the reference model; empty without one.
  std::vector<float> referenceLogProbs = {};
  /// The steps that the weights which sampled a token had learned from.
  std::vector<uint32_t> versions = {};
  bool isCut = false; ///< ended by rollout.max_tokens
  /// Nothing: the reward could not be had, and the sample is not learned from.
  std::optional<double> reward = {};
};

/// The completions of one prompt.
struct Group {
  uint64_t number = 0; ///< in the run, from 0
  uint64_t prompt = 0; ///< in the prompt file, from 0
  std::vector<int32_t> promptTokens;
  std::vector<Sample> samples;
};

/// The advantage of each sample: its reward minus the baseline, divided by the
/// scale. The deviation is that of a sample (n - 1), and 1e-4 is added to it,
/// as in TRL's GRPOTrainer. 0 for samples without a reward, which others are
/// not compared with.
std::vector<double> advantagesOf(const Group &group, recipe::Baseline baseline,
                                 recipe::RewardScale scale);

} // namespace tessera::rl
