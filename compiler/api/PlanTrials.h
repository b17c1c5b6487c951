// What `tessera plan` prints of a plan comes from compiled programs: the search
// ranks by closed forms, and its best plans are compiled in order.
#pragma once
#include "compiler/api/TrialWalk.h"
#include <string>
#include <vector>

namespace tessera {

/// How to compile plans.
struct TrialOptions {
  std::string spec, recipe;     ///< as CompileRequest has them
  std::vector<std::string> set; ///< of the recipe
  size_t count = 1;             ///< plans that fit to find
  /// Seconds of one processor for all of them, estimated, so that the answer is
  /// the same on every machine. Plans that take longer are not compiled. Until
  /// one fits it may take twice that.
  double seconds = 14;
  FindProgram find = nullptr; ///< absent: compiles them
};

/// Why no plan of the question can be compiled; empty if they can.
std::string whyNotTried(const std::string &spec,
                        const planner::Question &question);

/// Gives the best candidates of `answer` the numbers of their programs, and
/// leaves out those that the compiler refuses or whose programs do not fit. The
/// chosen plan may become another one. An error if no plan is left. Does
/// nothing if no plan can be compiled. With a plan that was given (no search),
/// they say whether it fits.
Status tryPlans(const TrialOptions &options, const planner::Question &question,
                planner::Answer &answer);

} // namespace tessera
