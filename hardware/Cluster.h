// A machine cluster: one kind of GPU, nested tiers of links, prices and failure
// rates.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hardware/Host.h"
#include "hardware/Roofline.h"
#include "runtime/support/Status.h"

namespace tessera::planner {

/// One GPU. Peaks are a data sheet's, dense; KernelCost says how much of them a
/// kernel reaches.
struct Gpu {
  std::string name;
  double memory = 0;          ///< bytes
  double memoryBandwidth = 0; ///< bytes per second
  double bf16 = 0;            ///< FLOP/s
  double fp8 = 0;             ///< FLOP/s; 0: none
  int64_t multiprocessors = 0;
  double clock = 0; ///< Hz, that of the peaks
  /// The fraction of that clock that tensor cores sustain under the power
  /// limit.
  double sustainedClock = 1;
  /// The fraction of `sustainedClock` that they sustain with fp8 operands,
  /// which take more power.
  double fp8Clock = 1;
  /// Standard deviation of the sustained clock between GPUs of a cluster, over
  /// the mean.
  double clockSpread = 0;
  /// Tensor cores run asynchronously to the threads that feed them (wgmma,
  /// tcgen05): the exponentials of attention overlap with its matmuls.
  bool asynchronous = false;
  double launch = 2e-6; ///< seconds between two kernels of a stream
  std::string target;   ///< of the compiler, such as cuda:sm_80; or empty
};

/// The links between GPUs. Tiers are nested: the first joins `span` GPUs, the
/// next several of such groups, the last all.
struct LinkTier {
  std::string name;
  int64_t span = 0; ///< GPUs; 0: all (the last tier)
  /// Bytes per second that one GPU can send while it receives as many, by the
  /// data sheet; absent while it is unknown whether `ambiguous` is a GPU's or a
  /// node's.
  std::optional<double> perGpu;
  std::string ambiguous; ///< the bandwidth as written, such as "200Gb/s"
  double efficiency = 1; ///< fraction of perGpu that large messages get
  double latency = 0;    ///< seconds per message, software included

  /// Bytes per second and GPU with which costs are computed.
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
  double checkpointBlocking = 2; ///< seconds for which training stops
  double restart = 600;          ///< seconds from a failure to the next step
  /// Of ranks on the cores of one machine; `gpu` and `links` are then what each
  /// of gpus() ranks has of it.
  std::optional<Host> host;

  int64_t gpus() const { return nodes * gpusPerNode; }
};

/// The bandwidth that a user gave for the links between nodes.
struct Internode {
  std::optional<double> perGpu;  ///< bytes per second
  std::optional<double> perNode; ///< bytes per second, for gpusPerNode GPUs
};

/// What passes read of it. Bytes and FLOP/s are whole numbers, and times whole
/// nanoseconds, at least one.
hardware::ClusterRates ratesOf(const Cluster &cluster);

/// As keys and values of YAML, in one line, without the name.
std::string printRates(const hardware::ClusterRates &rates);

/// Reads the text of a cluster file (docs/planning.md has the keys). Unknown
/// keys, missing ones and numbers without unit are errors:
/// "FILE:LINE: key 'links': ...".
StatusOr<Cluster> parseCluster(std::string_view text, const std::string &file);

/// Reads the file at `path`.
StatusOr<Cluster> loadCluster(const std::string &path);

/// Resolves an ambiguous bandwidth of a file, or overrides it: sets the first
/// tier outside of the node and scales the later tiers in proportion. An error
/// if both numbers are given, or if none is and the file's is ambiguous; it
/// says what to give.
Status resolveInternode(Cluster &cluster, const Internode &given);

/// `ranks` ranks on the cores of `host`: with more ranks than cores each has a
/// part of one.
Cluster clusterOf(std::string name, const Host &host, int64_t ranks);

/// `ranks` processes on one machine with `memory` bytes for all of them: a core
/// each, collectives through shared memory. The constants are round numbers,
/// not measurements, so that the choice is the same on every machine.
Cluster hostCluster(int64_t ranks, double memory);

/// The file that parseCluster reads as that cluster with a rank for each core.
std::string printHostFile(const std::string &name, const Host &host);

/// The same cluster with `gpus` GPUs in nodes of the same kind. An error if
/// that is not a whole number of nodes (fewer GPUs than a node are one smaller
/// node).
Status resize(Cluster &cluster, int64_t gpus);

} // namespace tessera::planner
