#include "hardware/Cluster.h"

#include <fmt/format.h>

#include "hardware/Quantity.h"

namespace tessera::planner {

Status resolveInternode(Cluster &cluster, const Internode &given) {
  if (given.perGpu && given.perNode)
    return Status::error("--internode-per-gpu and --internode-per-node say the "
                         "same thing in two ways; give one");
  std::optional<double> rate = given.perGpu;
  if (given.perNode)
    rate = *given.perNode / double(cluster.gpusPerNode);
  double scale = 1;
  if (rate && cluster.links.size() > 1)
    if (std::optional<double> before = cluster.links[1].perGpu)
      scale = *rate / *before;
  for (size_t i = 1; i < cluster.links.size(); ++i) {
    LinkTier &tier = cluster.links[i];
    if (rate && (i == 1 || !tier.perGpu))
      tier.perGpu = rate;
    else if (tier.perGpu)
      *tier.perGpu *= scale;
    if (!tier.perGpu)
      return Status::error(
          "{}: {} between nodes may be a GPU's or a whole node's, which differ "
          "{} times; give --internode-per-gpu {} or --internode-per-node {}",
          cluster.name, tier.ambiguous, cluster.gpusPerNode, tier.ambiguous,
          tier.ambiguous);
  }
  if (rate && cluster.links.size() < 2)
    return Status::error(
        "{}: has one node, so nothing is between nodes; remove "
        "{}",
        cluster.name,
        given.perGpu ? "--internode-per-gpu" : "--internode-per-node");
  return Status::success();
}

Status resize(Cluster &cluster, int64_t gpus) {
  if (gpus < 1 || gpus > (1 << 20))
    return Status::error("--gpus {}: expected 1 to {}", gpus, 1 << 20);
  if (gpus < cluster.gpusPerNode) {
    cluster.nodes = 1;
    cluster.gpusPerNode = gpus;
    return Status::success();
  }
  if (gpus % cluster.gpusPerNode != 0)
    return Status::error("--gpus {}: {} has nodes of {}; give a multiple", gpus,
                         cluster.name, cluster.gpusPerNode);
  cluster.nodes = gpus / cluster.gpusPerNode;
  if (cluster.nodes > 1 && cluster.links.size() < 2)
    return Status::error("--gpus {}: {} has no links between nodes; describe "
                         "them in its file",
                         gpus, cluster.name);
  return Status::success();
}

} // namespace tessera::planner
