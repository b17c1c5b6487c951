// iopddl INSTANCE SECONDS: the solver of the sharding search on problems of the
// ASPLOS/EuroSys 2025 contest. The last line is the answer.
#include "passes/sharding/solver/Solve.h"
#include "tools/iopddl/ReadIopddl.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

using namespace tessera;
using Clock = std::chrono::steady_clock;

int main(int argc, char **argv) {
  const Clock::time_point start = Clock::now();
  CLI::App app("Chooses one strategy for each node at the lowest cost within a "
               "memory limit; prints [i0, i1, ...] as the last line.");
  std::string instance;
  double seconds = 0;
  solver::Options options;
  options.threads = 2;
  options.steps = std::numeric_limits<std::uint64_t>::max();
  bool progress = false;
  app.add_option("INSTANCE", instance, "problem in JSON, plain or gzip'd")
      ->required();
  app.add_option("SECONDS", seconds, "time limit, reading included")
      ->required()
      ->check(CLI::Range(0.1, 1e6));
  app.add_option("--threads", options.threads)
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
  app.add_option("--steps", options.steps,
                 "maximum steps of each thread; if they end before SECONDS, "
                 "the answer depends only on seed, steps and threads");
  app.add_flag("--progress", progress,
               "print the time and cost of each better answer to stderr");
  CLI11_PARSE(app, argc, argv);

  // Time reserved for mapping the answer back to all nodes and printing it.
  const double margin = std::clamp(0.03 * seconds, 0.05, 1.0);
  options.deadline =
      start + std::chrono::duration_cast<Clock::duration>(
                  std::chrono::duration<double>(seconds - margin));
  StatusOr<solver::Problem> problem = iopddl::readProblem(instance);
  if (!problem.ok()) {
    fmt::print(stderr, "iopddl: {}\n", problem.message());
    return 1;
  }
  StatusOr<solver::Solution> solution =
      solver::solve(*problem, options, [&](solver::Cost cost) {
        const std::chrono::duration<double> time = Clock::now() - start;
        if (progress)
          fmt::print(stderr, "{:.2f} s: {}\n", time.count(), cost);
      });
  if (!solution.ok()) {
    fmt::print(stderr, "iopddl: {}: {}\n", instance, solution.message());
    return 1;
  }
  fmt::print("cost {}, lower bound {}\n{}\n", solution->cost,
             solution->lowerBound, iopddl::formatChoice(solution->choice));
  return 0;
}
