// What `tessera plan` prints of a plan comes from compiled programs: the search
// ranks by closed forms, and its best plans are compiled in order.
#pragma once
#include "parallelism/planner/Report.h"
#include <string>
#include <vector>

namespace tessera {

/// How to compile plans.
struct ProofOptions {
  std::string spec, recipe;     ///< as CompileRequest has them
  std::vector<std::string> set; ///< of the recipe
  size_t count = 1;             ///< plans to prove that fit
  /// Seconds of one processor for all of them, estimated, so that the answer is
  /// the same on every machine. Plans that take longer are not compiled.
  double seconds = 20;
};

/// Why no plan of the question can be compiled; empty if they can.
std::string whyNotProven(const std::string &spec,
                         const planner::Question &question);

/// Gives the best candidates of `answer` their proofs, and leaves out those
/// that the compiler refuses or whose programs do not fit. The chosen plan may
/// become another one. An error if no plan is left. Does nothing if no plan can
/// be compiled. With a plan that was given (no search), its proof says whether
/// it fits.
Status proveAnswer(const ProofOptions &options,
                   const planner::Question &question, planner::Answer &answer);

} // namespace tessera
