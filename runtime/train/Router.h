// What a step program says of its routers: the output `router` of @train_step,
// f32 [layers with experts, kRouterColumns], a row for each such layer in
// order. The compiler writes the columns, the runtime prints them; both include
// this header and nothing else knows the numbers.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {

inline constexpr const char *kRouterOutput = "router";

/// A column of the table, over all tokens of the step. Loads count choices of
/// experts before any are dropped.
enum class RouterColumn : std::uint8_t {
  maxLoad = 0, ///< the greatest load of an expert over the mean of all
  dead = 1,    ///< experts that no token chose
  dropped = 2, ///< share of the choices that found no room
  entropy = 3, ///< mean of a token's, of its probabilities, in nats
  z = 4,       ///< mean of (log Σ exp of the logits)²
  balance = 5, ///< the balance loss before its weight: 1 where loads are even
};

inline constexpr std::size_t kRouterColumns = 6;

/// As metrics.jsonl calls them.
inline constexpr std::array<std::string_view, kRouterColumns>
    kRouterColumnNames = {"max_load", "dead", "dropped",
                          "entropy",  "z",    "balance"};

} // namespace tessera
