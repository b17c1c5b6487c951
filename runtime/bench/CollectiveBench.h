// Seconds of collectives between the ranks of a job, as latency and bandwidth.
#pragma once
#include "hardware/Host.h"
#include "runtime/comm/Channel.h"

#include <string>
#include <vector>

namespace tessera::bench {

/// A collective in groups of one size, and how well it was measured.
struct CollectiveTime {
  planner::CollectiveRate rate;
  /// Of its repeats: the distance of the quartiles over the median, at worst.
  double spread = 0;
};

/// Runs every kind of collective in groups of 2, 4, … neighboring ranks, all
/// groups at once, over messages of 1 KiB to 4 MiB. All ranks call it and get
/// the same; a time is the slowest rank's, the median of several.
StatusOr<std::vector<CollectiveTime>> benchCollectives(comm::World &world);

/// Rows as text, for another process of this program: a line each.
std::string printCollectiveTimes(const std::vector<CollectiveTime> &rows);
/// What printCollectiveTimes wrote, up to the first line that is none.
std::vector<CollectiveTime> readCollectiveTimes(const std::string &text);

} // namespace tessera::bench
