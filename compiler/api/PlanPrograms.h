// tessera plan -o and --prove: plans next to the programs that they become.
#pragma once
#include "parallelism/planner/Report.h"
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct PlanProgramOptions {
  std::string spec, recipe;     ///< as CompileRequest has them
  std::vector<std::string> set; ///< of the recipe
  std::string output;           ///< the plan file to write; empty: none
  size_t count = 0;             ///< plans to compile, at least
  /// Receives a line for each plan that is compiled; may be empty.
  std::function<void(std::string_view)> note = nullptr;
};

/// Why the compiler does not build the model of `spec`, or does not compute as
/// the question asks; empty if it does.
std::string whyNotBuilt(const std::string &spec,
                        const planner::Question &question);

/// Compiles the best plans as far as their memory is known, and returns a table
/// of it; a line if the compiler does not build the chosen one. With `output`
/// the first plan whose program fits is written, and becomes the answer's.
StatusOr<std::string> compilePlans(const PlanProgramOptions &options,
                                   const planner::Question &question,
                                   planner::Answer &answer);

} // namespace tessera
