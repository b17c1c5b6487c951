// What a step program says of sampled answers: the output `policy` of
// @train_step, f32 [kPolicyColumns], or one fewer without a reference model,
// and with a value head kValueColumns more; means over the unmasked tokens of
// the step. The compiler writes the columns, the runtime prints them.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera {

inline constexpr const char *kPolicyOutput = "policy";

/// An output of @eval_step, f32 [sequences, tokens]: what the value head gives.
inline constexpr const char *kValuesOutput = "values";

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

/// With V of a token by the value head, R its return: advantage, before it is
/// whitened, plus the value before the update.
enum class ValueColumn : std::uint8_t {
  policyLoss = 0,   ///< the part of the loss that is not the value head's
  valueLoss = 1,    ///< its part, before policy.value.weight
  clipFraction = 2, ///< values whose gradient is 0 since they are clipped
  value = 3,        ///< V
  error = 4,        ///< (V - R)^2
  returns = 5,      ///< R
  explained = 6,    ///< 1 - error / the variance of R
};

inline constexpr std::size_t kValueColumns = 7;

inline constexpr std::array<std::string_view, kValueColumns> kValueColumnNames =
    {"policy_loss", "value_loss", "value_clip_fraction", "value",
     "value_error", "return",     "explained_variance"};

/// Of an output of `count` columns.
inline std::vector<std::string_view> policyColumnNames(std::size_t count) {
  const bool hasValues = count > kPolicyColumns;
  const std::size_t own = count - (hasValues ? kValueColumns : 0);
  std::vector<std::string_view> names(kPolicyColumnNames.begin(),
                                      kPolicyColumnNames.begin() +
                                          std::ptrdiff_t(own));
  if (hasValues)
    names.insert(names.end(), kValueColumnNames.begin(),
                 kValueColumnNames.end());
  return names;
}

} // namespace tessera
