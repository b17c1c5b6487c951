#include "test/parallelism/planner/PublishedRuns.h"

#include <cmath>

#include <gtest/gtest.h>

namespace tessera::planner::test {
namespace {

constexpr double tolerance = 0.10;

double offOf(const PublishedRun &run, double clock = 1) {
  return predicted(run, nullptr, nullptr, clock) / run.utilization - 1;
}

// How many are close. The tables of bench/results are what this prints.
int64_t printTable(const std::vector<PublishedRun> &runs) {
  int64_t close = 0;
  fmt::print("| run | source | plan | measured | predicted | off | assumed | "
             "why more than {:.0f} % |\n"
             "|---|---|---|---|---|---|---|---|\n",
             100 * tolerance);
  for (const PublishedRun &run : runs) {
    double off = offOf(run);
    close += std::abs(off) <= tolerance;
    fmt::print("| {} | {} | {} | {:.1f} % | {:.1f} % | {:+.1f} % | {} | {} |\n",
               run.name, run.source, run.plan, 100 * run.utilization,
               100 * predicted(run), 100 * off, run.assumed, run.miss);
  }
  return close;
}

TEST(PublishedRuns, ArePredicted) {
  EXPECT_GE(printTable(publishedRuns()), 15);
  for (const PublishedRun &run : publishedRuns()) {
    double off = offOf(run);
    EXPECT_EQ(std::abs(off) <= tolerance, run.miss.empty())
        << run.name << " is " << 100 * off
        << " % off; the list of misses must say so and why";
  }
}

// A chip has one constant that is chosen by looking at its runs, the sustained
// clock. Chosen by all other runs of the chip, it predicts a run as well.
TEST(PublishedRuns, ArePredictedByTheOthers) {
  int64_t close = 0;
  fmt::print("| run | clock by the others | off |\n|---|---|---|\n");
  for (const PublishedRun &run : publishedRuns()) {
    auto sameChip = [&](const PublishedRun &other) {
      return (other.name.find("A100") == std::string::npos) ==
             (run.name.find("A100") == std::string::npos);
    };
    double clock = 1;
    for (int iteration = 0; iteration < 5; ++iteration) {
      double sum = 0;
      int64_t count = 0;
      for (const PublishedRun &other : publishedRuns()) {
        if (other.name == run.name || !sameChip(other))
          continue;
        sum += std::log(1 + offOf(other, clock));
        ++count;
      }
      clock *= std::exp(-sum / double(count));
    }
    double off = offOf(run, clock);
    close += std::abs(off) <= tolerance;
    fmt::print("| {} | {:.3f} | {:+.1f} % |\n", run.name, clock, 100 * off);
  }
  EXPECT_GE(close, 14);
}

// Not at all fitted to.
TEST(PublishedRuns, SayWhatOthersMeasured) {
  EXPECT_GE(printTable(otherRuns()), 9);
}

TEST(PublishedRuns, FitIntoTheirGpus) {
  for (const PublishedRun &run : publishedRuns()) {
    Memory memory;
    predicted(run, nullptr, &memory);
    Cluster cluster =
        *loadCluster(std::string(TESSERA_SOURCE_DIR) + "/hardware/clusters/" +
                     run.cluster + ".yaml");
    EXPECT_EQ(memory.total() < cluster.gpu.memory, run.lessMemory.empty())
        << run.name << " takes " << memory.total();
  }
}

} // namespace
} // namespace tessera::planner::test
