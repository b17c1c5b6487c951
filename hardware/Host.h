// One machine whose cores run ranks, as `tessera doctor --calibrate` measures
// it.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::planner {

/// Kernels of the compiler that reach alike parts of a processor's peak.
enum class KernelKind : std::uint8_t {
  matmul,
  matmulBf16, ///< with an operand or a result in bf16
  attention,
  elementwise, ///< the rest: bound by memory, or by exponentials
};
inline constexpr std::array<std::string_view, 4> kKernelKinds = {
    "matmul", "matmul_bf16", "attention", "elementwise"};

/// Seconds of a kernel on one core: a launch, its FLOPs and its bytes.
struct KernelRate {
  double launch = 0; ///< seconds
  double flops = 0;  ///< FLOP/s; 0: they take no time
  double bytes = 0;  ///< bytes per second; 0: they take no time

  double seconds(double work, double traffic) const {
    return launch + (flops > 0 ? work / flops : 0) +
           (bytes > 0 ? traffic / bytes : 0);
  }
};

/// Bytes per second of plain loops over more memory than a cache holds.
struct MemoryRate {
  double read = 0, write = 0;
  double copy = 0; ///< read plus written
};

enum class HostCollective : std::uint8_t {
  allReduce,
  allGather,
  reduceScatter,
  allToAll,
  send,
};
inline constexpr std::array<std::string_view, 5> kHostCollectives = {
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"};

/// Seconds of a collective in groups of `group` ranks while all `ranks` of the
/// machine do the same: latency + bytes / bandwidth. `bytes` is the larger of a
/// rank's operand and its result, of a send the message.
struct CollectiveRate {
  HostCollective kind = HostCollective::allReduce;
  std::int64_t ranks = 0, group = 0;
  double latency = 0;   ///< seconds
  double bandwidth = 0; ///< bytes per second

  double seconds(double bytes) const { return latency + bytes / bandwidth; }
};

struct Host {
  std::string processor;
  std::int64_t cores = 0;
  double memory = 0;  ///< bytes, of all ranks together
  double cache = 0;   ///< bytes of the last level, of all cores; 0: unknown
  double speedup = 1; ///< of kernels on all cores over one
  MemoryRate core, all;
  std::array<KernelRate, kKernelKinds.size()> kernels; ///< by KernelKind
  std::vector<CollectiveRate> collectives;

  const KernelRate &kernel(KernelKind kind) const {
    return kernels[static_cast<std::size_t>(kind)];
  }
  /// Threads of each of `ranks` ranks: what the runtime starts.
  std::int64_t threadsOf(std::int64_t ranks) const;
  /// How much faster than on one core kernels are on `threads` of them.
  double speedupOf(std::int64_t threads) const;
  /// The part of a working set of `bytes`, of all ranks, that comes from memory
  /// whenever a step returns to it.
  double uncached(double bytes) const;
  /// The measured row that is nearest in ranks, then in its group's size; null
  /// if the kind was not measured.
  const CollectiveRate *collective(HostCollective kind, std::int64_t ranks,
                                   std::int64_t group) const;
};

} // namespace tessera::planner
