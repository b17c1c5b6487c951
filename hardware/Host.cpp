#include "hardware/Host.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace tessera::planner {

std::int64_t Host::threadsOf(std::int64_t ranks) const {
  return std::max<std::int64_t>(cores / std::max<std::int64_t>(ranks, 1), 1);
}

double Host::speedupOf(std::int64_t threads) const {
  if (cores <= 1 || threads <= 1)
    return 1;
  return 1 + (speedup - 1) * double(threads - 1) / double(cores - 1);
}

double Host::uncached(double bytes) const {
  return cache > 0 && bytes > cache ? 1 - cache / bytes : 0;
}

const CollectiveRate *Host::collective(HostCollective kind, std::int64_t ranks,
                                       std::int64_t group) const {
  const CollectiveRate *best = nullptr;
  std::tuple<double, double> nearest;
  for (const CollectiveRate &each : collectives) {
    if (each.kind != kind)
      continue;
    const std::tuple distance(
        std::abs(std::log2(double(each.ranks) / double(ranks))),
        std::abs(std::log2(double(each.group) / double(group))));
    if (!best || distance < nearest)
      best = &each, nearest = distance;
  }
  return best;
}

} // namespace tessera::planner
