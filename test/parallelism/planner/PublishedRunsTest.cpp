#include "test/parallelism/planner/PublishedRuns.h"

#include <cmath>

#include <gtest/gtest.h>

namespace tessera::planner::test {
namespace {

constexpr double tolerance = 0.20;

// The table of bench/results is what this prints.
TEST(PublishedRuns, ArePredicted) {
  int64_t within = 0;
  fmt::print("| run | source | plan | measured | predicted | off | assumed | "
             "why more than 20 % |\n"
             "|---|---|---|---|---|---|---|---|\n");
  for (const PublishedRun &run : publishedRuns()) {
    double share = predicted(run);
    double off = share / run.utilization - 1;
    bool close = std::abs(off) <= tolerance;
    within += close;
    fmt::print("| {} | {} | {} | {:.1f} % | {:.1f} % | {:+.1f} % | {} | {} |\n",
               run.name, run.source, run.plan, 100 * run.utilization,
               100 * share, 100 * off, run.assumed, run.miss);
    EXPECT_EQ(close, run.miss.empty())
        << run.name << " is " << 100 * off
        << " % off; the list of misses must say so and why";
  }
  EXPECT_GE(within, 13);
}

TEST(PublishedRuns, FitIntoTheirGpus) {
  for (const PublishedRun &run : publishedRuns()) {
    Memory memory;
    predicted(run, nullptr, &memory);
    Cluster cluster =
        *loadCluster(std::string(TESSERA_SOURCE_DIR) + "/hardware/clusters/" +
                     run.cluster + ".yaml");
    EXPECT_LT(memory.total(), cluster.gpu.memory) << run.name;
  }
}

} // namespace
} // namespace tessera::planner::test
