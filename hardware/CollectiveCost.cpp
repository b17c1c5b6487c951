#include "hardware/CollectiveCost.h"

#include <algorithm>
#include <cmath>

namespace tessera::planner {

CollectiveCost::CollectiveCost(const Cluster &cluster) {
  for (const LinkTier &tier : cluster.links)
    links.push_back({{tier.rate(), tier.latency}, tier.span});
}

hardware::Link CollectiveCost::slowest(RankGroup group) const {
  const std::vector<int64_t> shared = members(group);
  size_t tier = 0;
  while (tier + 1 < links.size() && shared[tier] < group.size)
    ++tier;
  return links[tier].link;
}

std::vector<int64_t> CollectiveCost::members(RankGroup group) const {
  std::vector<int64_t> result;
  for (const hardware::Tier &tier : links) {
    int64_t within =
        tier.span == 0
            ? group.size
            : std::clamp<int64_t>(tier.span / group.stride, 1, group.size);
    result.push_back(result.empty() ? within : std::max(within, result.back()));
  }
  return result;
}

// (n-1) alpha + (n-1)/n V/beta. The g members that a tier joins run g rings,
// each leaving the tier through another member's link, which so carries V/g.
double CollectiveCost::ring(double bytes,
                            const std::vector<int64_t> &shared) const {
  double ranks = double(shared.back());
  double slowest = 0, latency = 0, before = 1;
  for (size_t i = 0; i < links.size(); ++i) {
    // Of the n - 1 hops, those that this tier is the nearest for.
    double hops = ranks / before - ranks / double(shared[i]);
    if (hops > 0) {
      slowest = std::max(slowest, bytes * (ranks - 1) / ranks / before /
                                      links[i].link.bytes);
      latency += hops * links[i].link.latency;
    }
    before = double(shared[i]);
  }
  return latency + slowest;
}

double CollectiveCost::tiered(double bytes,
                              const std::vector<int64_t> &shared) const {
  double total = 0, before = 1;
  for (size_t i = 0; i < links.size(); ++i) {
    double parts = double(shared[i]) / before;
    if (parts > 1)
      total += (parts - 1) * links[i].link.latency +
               (parts - 1) / parts * bytes / before / links[i].link.bytes;
    before = double(shared[i]);
  }
  return total;
}

// Halves or doubles: few messages, each rank's link still carries V.
double CollectiveCost::tree(double bytes,
                            const std::vector<int64_t> &shared) const {
  double total = 0, before = 1;
  for (size_t i = 0; i < links.size(); ++i) {
    double parts = double(shared[i]) / before;
    if (parts > 1)
      total += std::ceil(std::log2(parts)) * links[i].link.latency +
               bytes / links[i].link.bytes;
    before = double(shared[i]);
  }
  return total;
}

// Parts for each tier leave through that tier's links, all at once.
double CollectiveCost::exchange(double bytes,
                                const std::vector<int64_t> &shared) const {
  double ranks = double(shared.back());
  double slowest = 0, latency = 0, before = 1;
  for (size_t i = 0; i < links.size(); ++i) {
    double partners = double(shared[i]) - before;
    if (partners > 0) {
      slowest =
          std::max(slowest, bytes * partners / ranks / links[i].link.bytes);
      latency = std::max(latency, links[i].link.latency);
    }
    before = double(shared[i]);
  }
  return latency + slowest;
}

double CollectiveCost::seconds(Collective kind, double bytes,
                               RankGroup group) const {
  if (group.size <= 1 || bytes <= 0)
    return 0;
  std::vector<int64_t> shared = members(group);
  if (kind == Collective::AllToAll)
    return exchange(bytes, shared);
  double once = std::min(
      {ring(bytes, shared), tiered(bytes, shared), tree(bytes, shared)});
  return kind == Collective::AllReduce ? 2 * once : once;
}

double CollectiveCost::dispatch(double tokens, double copies, double tokenBytes,
                                RankGroup group) const {
  if (group.size <= 1)
    return 0;
  std::vector<int64_t> shared = members(group);
  double everyCopy = exchange(tokens * copies * tokenBytes, shared);
  double inside = double(shared.front()), ranks = double(group.size);
  double nodes = ranks / inside;
  if (nodes <= 1 || links.size() < 2)
    return everyCopy;
  // Nodes that a token's copies reach, were experts drawn with replacement.
  double reached = nodes * (1 - std::pow(1 - 1 / nodes, copies));
  double remote = tokens * reached * (nodes - 1) / nodes * tokenBytes;
  double oncePerNode =
      std::max(remote / links[1].link.bytes,
               tokens * copies * tokenBytes / links[0].link.bytes) +
      links[0].link.latency + links[1].link.latency;
  return std::min(everyCopy, oncePerNode);
}

double CollectiveCost::send(double bytes, int64_t stride) const {
  for (const hardware::Tier &tier : links)
    if (tier.span == 0 || stride < tier.span)
      return tier.link.seconds(bytes);
  return 0;
}

} // namespace tessera::planner
