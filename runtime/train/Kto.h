// What a step program says of labelled answers: the output `kto` of
// @train_step, f32 [kKtoColumns], each a mean over the documents of the step
// that it is of. The compiler writes the columns, the runtime prints them.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {

inline constexpr const char *kKtoOutput = "kto";

/// With log p and log q of an answer by the model before the step and by the
/// reference model, a reward is beta (log p - log q).
enum class KtoColumn : std::uint8_t {
  desirableReward = 0,
  undesirableReward = 1,
  desirableLogProb = 2, ///< log p
  undesirableLogProb = 3,
  kl = 4, ///< log p - log q of mismatched answers
};

inline constexpr std::size_t kKtoColumns = 5;

/// As metrics.jsonl calls them.
inline constexpr std::array<std::string_view, kKtoColumns> kKtoColumnNames = {
    "desirable_reward", "undesirable_reward", "desirable_log_prob",
    "undesirable_log_prob", "kl"};

} // namespace tessera
