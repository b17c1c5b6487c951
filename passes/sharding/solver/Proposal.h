// Moves that change many variables at once: a proposal that spreads from one
// variable, and the best mixture of two choices. Internal to the solver.
#pragma once
#include "passes/sharding/solver/Elimination.h"

namespace tessera::solver {

/// Gives `seed` the value `value` and lets others follow, at most `most` in
/// all. The next is always the variable whose best value saves most over the
/// second best, given the neighbours that have followed. Changes `values`, with
/// `unary` instead of the model's costs. Returns the variables that followed.
std::vector<int> spread(const Model &model, std::span<const double> unary,
                        int seed, int value, std::size_t most,
                        std::span<int> values);

/// Chooses for each variable between `values` and `other` so that the sum of
/// costs is the least that one elimination with tables of up to `limit` entries
/// finds, and writes it to `values`; it costs no more than they did.
void fuse(const Model &model, std::span<const double> unary,
          std::span<const int> other, std::size_t limit, Random &random,
          std::span<int> values);

} // namespace tessera::solver
