// Seconds of a collective on nested tiers of links: alpha-beta, with the
// algorithm that suits the size (Thakur et al. 2005; Chan et al. 2007).
#pragma once
#include <cstdint>
#include <vector>

#include "hardware/Cluster.h"
#include "hardware/Roofline.h"

namespace tessera::planner {

/// `size` ranks at distance `stride`. Ranks are numbered so that those of the
/// nearest links follow one another.
struct RankGroup {
  int64_t size = 1;
  int64_t stride = 1;
};

enum class Collective { AllGather, ReduceScatter, AllReduce, AllToAll };

class CollectiveCost {
public:
  explicit CollectiveCost(const Cluster &cluster);
  explicit CollectiveCost(std::vector<hardware::Tier> links)
      : links(std::move(links)) {}

  /// `bytes` is the size of a rank's result (all-gather), of its operand
  /// (reduce-scatter, all-reduce), or of all it sends and keeps (all-to-all).
  /// The best of one ring over all ranks, with as many rings as a node has
  /// members; a ring in each tier, one after another; and for small messages a
  /// tree. A group of one costs nothing.
  double seconds(Collective kind, double bytes, RankGroup group) const;

  /// All-to-all of tokens to experts: `tokens` of `tokenBytes`, each to
  /// `copies` experts anywhere in the group. Either every copy is sent, or one
  /// to each node that needs any, which forwards it inside (as DeepEP does).
  double dispatch(double tokens, double copies, double tokenBytes,
                  RankGroup group) const;

  /// One message between ranks at distance `stride`.
  double send(double bytes, int64_t stride) const;

  /// How many of the group share a tier with each of its members, tier by tier.
  std::vector<int64_t> members(RankGroup group) const;
  /// The links of the last tier that the group needs.
  hardware::Link slowest(RankGroup group) const;

private:
  double ring(double bytes, const std::vector<int64_t> &shared) const;
  double tiered(double bytes, const std::vector<int64_t> &shared) const;
  double tree(double bytes, const std::vector<int64_t> &shared) const;
  double exchange(double bytes, const std::vector<int64_t> &shared) const;

  std::vector<hardware::Tier> links;
};

} // namespace tessera::planner
