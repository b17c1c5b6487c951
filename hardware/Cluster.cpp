#include "hardware/Cluster.h"

#include <algorithm>
#include <cmath>

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

// The planner's closed forms know a GPU and its links: a rank's part of the
// cores, and the ring of all ranks.
Cluster clusterOf(std::string name, const Host &host, int64_t ranks) {
  Cluster cluster;
  cluster.name = std::move(name);
  cluster.nodes = 1;
  cluster.gpusPerNode = ranks;
  const KernelRate &matmul = host.kernel(KernelKind::matmul),
                   &other = host.kernel(KernelKind::elementwise);
  const double part = std::min(1.0, double(host.cores) / double(ranks)) *
                      host.speedupOf(host.threadsOf(ranks));
  Gpu &core = cluster.gpu;
  core.name = host.processor;
  core.target = "cpu";
  core.memory = host.memory / double(ranks);
  core.memoryBandwidth = other.bytes * part;
  core.bf16 = matmul.flops * part;
  core.multiprocessors = 1;
  core.clock = 1e9;
  core.launch = matmul.launch / part;
  LinkTier tier{"shared memory", 0, 2e9, "", 1, 10e-6};
  if (const CollectiveRate *gather =
          host.collective(HostCollective::allGather, ranks, ranks)) {
    const double members = double(gather->group);
    const double turns = std::max(members - 1, 1.0);
    tier.latency = gather->latency / turns;
    tier.perGpu = gather->bandwidth * turns / std::max(members, 2.0);
  }
  cluster.links = {tier};
  cluster.host = host;
  return cluster;
}

hardware::ClusterRates ratesOf(const Cluster &cluster) {
  auto nanoseconds = [](double seconds) {
    return std::max(std::round(seconds * 1e9), 1.0) * 1e-9;
  };
  const Gpu &gpu = cluster.gpu;
  hardware::ClusterRates rates;
  rates.name = cluster.name;
  rates.device = {std::round(gpu.bf16 * gpu.sustainedClock),
                  std::round(gpu.memoryBandwidth)};
  rates.launch = nanoseconds(gpu.launch);
  for (const LinkTier &tier : cluster.links)
    rates.links.push_back(
        {{std::round(tier.rate()), nanoseconds(tier.latency)}, tier.span});
  rates.links.back().span = 0;
  return rates;
}

std::string printRates(const hardware::ClusterRates &rates) {
  std::string links;
  for (const hardware::Tier &tier : rates.links)
    links += fmt::format("{}{{{}bandwidth: {:.0f}B/s, latency: {:.0f}ns}}",
                         links.empty() ? "" : ", ",
                         tier.span ? fmt::format("span: {}, ", tier.span) : "",
                         tier.link.bytes, tier.link.latency * 1e9);
  return fmt::format("flops: {:.0f}FLOP/s, memory: {:.0f}B/s, "
                     "launch: {:.0f}ns, links: [{}]",
                     rates.device.flops, rates.device.bytes, rates.launch * 1e9,
                     links);
}

Cluster hostCluster(int64_t ranks, double memory) {
  Cluster cluster;
  cluster.name = "this machine";
  cluster.nodes = 1;
  cluster.gpusPerNode = ranks;
  Gpu &core = cluster.gpu;
  core.name = "core";
  core.memory = memory / double(ranks);
  core.memoryBandwidth = 10e9; // of a server's channels, per core
  core.bf16 = 50e9;            // AVX2 or AVX-512 on tiles that fit the cache
  core.multiprocessors = 1;
  core.clock = 2.5e9;
  core.launch = 2e-6; // the start of a task on a thread pool
  // A message is copied in and out of a shared segment, by the cores that
  // would compute.
  cluster.links = {{"shared memory", 0, 2e9, "", 1, 10e-6}};
  return cluster;
}

Status resize(Cluster &cluster, int64_t gpus) {
  if (gpus < 1 || gpus > (1 << 20))
    return Status::error("--gpus {}: expected 1 to {}", gpus, 1 << 20);
  if (cluster.host) {
    cluster = clusterOf(cluster.name, *cluster.host, gpus);
    return Status::success();
  }
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

const tessera::hardware::ClusterRates &tessera::hardware::defaultRates() {
  static const ClusterRates rates = {"default",
                                     {.flops = 400e12, .bytes = 3e12},
                                     3e-6,
                                     {{{.bytes = 100e9, .latency = 3e-6}, 0}}};
  return rates;
}
