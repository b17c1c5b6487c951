// libFuzzer target: whatever the bytes, a problem is read or refused, what is
// read is valid, and the solver says something about it.
#include "passes/sharding/solver/Solve.h"
#include "tools/iopddl/ReadIopddl.h"

#include <cstdlib>

using namespace tessera;

/// A breach is a crash.
static void check(bool promise) {
  if (!promise)
    std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, std::size_t size) {
  StatusOr<solver::Problem> problem = iopddl::parseProblem(
      std::string_view(reinterpret_cast<const char *>(data), size), "input");
  if (!problem.ok()) {
    check(problem.message().size() < 1000);
    check(problem.message().find('\n') == std::string::npos);
    return 0;
  }
  check(solver::validate(*problem).ok());
  StatusOr<solver::Solution> solution = solver::solve(*problem, {.steps = 3});
  if (solution.ok())
    check(solver::evaluate(*problem, solution->choice).feasible);
  return 0;
}
