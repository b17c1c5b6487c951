// What a step program says of pairs of answers: the output `preference` of
// @train_step, f32 [kPreferenceColumns] or [kRewardColumns], means over the
// pairs of the step. The compiler writes the columns, the runtime prints them.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {

inline constexpr const char *kPreferenceOutput = "preference";

/// With the log-probability of an answer as log p (without a reference model,
/// its q is 1), a reward is beta (log p - log q). Of losses that use means over
/// the tokens of an answer, log p is such a mean.
enum class PreferenceColumn : std::uint8_t {
  accuracy = 0, ///< fraction of pairs whose chosen answer has more reward
  margin = 1,   ///< reward of the chosen minus that of the rejected one
  chosenReward = 2,
  rejectedReward = 3,
  chosenLogProb = 4, ///< log p of the chosen answer
  rejectedLogProb = 5,
};

inline constexpr std::size_t kPreferenceColumns = 6;
/// Of models that score answers the first so many, where a reward is a score.
inline constexpr std::size_t kRewardColumns = 4;

/// As metrics.jsonl calls them.
inline constexpr std::array<std::string_view, kPreferenceColumns>
    kPreferenceColumnNames = {"accuracy",        "margin",
                              "chosen_reward",   "rejected_reward",
                              "chosen_log_prob", "rejected_log_prob"};

} // namespace tessera
