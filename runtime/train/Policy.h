// What a step program says of sampled answers: the output `policy` of
// @train_step, f32 [kPolicyColumns], or one fewer without a reference model;
// means over the unmasked tokens of the step. The compiler writes the columns,
// the runtime prints them.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {

inline constexpr const char *kPolicyOutput = "policy";

/// With p of the model before the step, b of the policy that sampled a token
/// and q of the reference model. A KL is its estimate k3 from the sampled
/// tokens (Recipe.h); it is not differentiated.
enum class PolicyColumn : std::uint8_t {
  clipFraction = 0, ///< tokens whose gradient is 0 since their ratio is clipped
  ratio = 1,        ///< p / b, of the kind that policy.ratio says
  kl = 2,           ///< KL(b || p): how stale the samples are
  advantage = 3,
  logProb = 4,     ///< log p
  mismatch = 5,    ///< tokens whose p has other bits than b
  klReference = 6, ///< KL(p || q)
};

inline constexpr std::size_t kPolicyColumns = 7;

/// As metrics.jsonl calls them.
inline constexpr std::array<std::string_view, kPolicyColumns>
    kPolicyColumnNames = {"clip_fraction", "ratio",    "kl",
                          "advantage",     "log_prob", "mismatch",
                          "kl_reference"};

} // namespace tessera
