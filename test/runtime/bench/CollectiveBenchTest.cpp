#include "runtime/bench/CollectiveBench.h"

#include <gtest/gtest.h>

namespace tessera::bench {
namespace {

// Ranks that a launcher started write rows, which the process that started them
// reads.
TEST(CollectiveRows, AreReadAsTheyWerePrinted) {
  const std::vector<CollectiveTime> rows = {
      {{planner::HostCollective::allReduce, 4, 2, 1.0 / 3e5, 2e10 / 3}, 0.07},
      {{planner::HostCollective::send, 8, 8, 5e-300, 1.7e308}, 0}};
  const std::vector<CollectiveTime> read =
      readCollectiveTimes(printCollectiveTimes(rows));
  ASSERT_EQ(read.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(read[i].rate.kind, rows[i].rate.kind);
    EXPECT_EQ(read[i].rate.ranks, rows[i].rate.ranks);
    EXPECT_EQ(read[i].rate.group, rows[i].rate.group);
    EXPECT_EQ(read[i].rate.latency, rows[i].rate.latency);
    EXPECT_EQ(read[i].rate.bandwidth, rows[i].rate.bandwidth);
    EXPECT_EQ(read[i].spread, rows[i].spread);
  }
}

TEST(CollectiveRows, EndAtALineThatIsNone) {
  EXPECT_TRUE(readCollectiveTimes("").empty());
  EXPECT_EQ(readCollectiveTimes("0 2 2 1e-6 1e9 0\n1 2 2 1e-6").size(), 1U);
}

} // namespace
} // namespace tessera::bench
