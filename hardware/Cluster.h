// The machines that a plan is for: one kind of GPU, nested tiers of links, what
// an hour costs and how often something breaks.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/support/Status.h"

namespace tessera::planner {

/// One GPU. Peaks are a data sheet's, dense; what a kernel gets of them is
/// KernelCost's business.
struct Gpu {
  std::string name;
  double memory = 0;          ///< bytes
  double memoryBandwidth = 0; ///< bytes a second
  double bf16 = 0;            ///< FLOP/s
  double fp8 = 0;             ///< FLOP/s; 0: it has none
  int64_t multiprocessors = 0;
  double clock = 0; ///< Hz, that of the peaks
  /// The share of that clock at which tensor cores run for hours under the
  /// power limit.
  double sustainedClock = 1;
  /// Tensor cores work beside the threads that feed them (wgmma, tcgen05): the
  /// exponentials of attention hide behind its products.
  bool asynchronous = false;
  double launch = 2e-6; ///< seconds between two kernels of a stream
};

/// What lies between two GPUs. Tiers are nested: the first joins `span` GPUs,
/// the next several of such groups, the last all.
struct LinkTier {
  std::string name;
  int64_t span = 0; ///< GPUs; 0: all (the last tier)
  /// Bytes a second that one GPU can send while it receives as many, as the
  /// data sheet has it; absent as long as nobody said whether `ambiguous` is a
  /// GPU's or a node's.
  std::optional<double> perGpu;
  std::string ambiguous; ///< the figure as written, such as "200Gb/s"
  double efficiency = 1; ///< share of perGpu that large messages get
  double latency = 0;    ///< seconds a message, software included

  /// Bytes a second and GPU that a cost is computed with.
  double rate() const { return perGpu.value_or(0) * efficiency; }
};

struct Cluster {
  std::string name;
  int64_t nodes = 0;
  int64_t gpusPerNode = 0;
  Gpu gpu;
  std::vector<LinkTier> links; ///< at least one; spans grow
  double pricePerGpuHour = 0;  ///< in the file's currency; 0: not given
  double gpuMtbf = 0;          ///< seconds between failures of one GPU; 0: none
  double checkpointBlocking = 2; ///< seconds that training stands still
  double restart = 600;          ///< seconds from a failure to the next step

  int64_t gpus() const { return nodes * gpusPerNode; }
};

/// Which figure a user gave for the links between nodes.
struct Internode {
  std::optional<double> perGpu;  ///< bytes a second
  std::optional<double> perNode; ///< bytes a second, for gpusPerNode GPUs
};

/// Reads the text of a cluster file (docs/planning.md has the keys). Unknown
/// keys, missing ones and figures without unit are errors:
/// "FILE:LINE: key 'links': ...".
StatusOr<Cluster> parseCluster(std::string_view text, const std::string &file);

/// Reads the file at `path`.
StatusOr<Cluster> loadCluster(const std::string &path);

/// Answers what a file left open, or overrides it: sets the tier behind the
/// node and scales those behind that along. Error if both figures are given, or
/// if none is and the file's is ambiguous; it says what to give.
Status resolveInternode(Cluster &cluster, const Internode &given);

/// The same cluster with `gpus` GPUs in nodes of the same kind. Error if that
/// is no whole number of nodes (fewer GPUs than a node are one smaller node).
Status resize(Cluster &cluster, int64_t gpus);

} // namespace tessera::planner
