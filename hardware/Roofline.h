// Seconds of work on one device and of messages between two: a roofline and the
// alpha-beta model. Passes compare choices by it; CollectiveCost has those of
// groups, parallelism/planner a finer model of kernels.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::hardware {

struct Device {
  double flops = 0; ///< FLOP/s
  double bytes = 0; ///< bytes per second of its memory
  double seconds(double work, double traffic) const {
    return std::max(work / flops, traffic / bytes);
  }
  bool operator==(const Device &) const = default;
};

/// One direction of the link between two devices.
struct Link {
  double bytes = 0;   ///< per second
  double latency = 0; ///< seconds per message
  double seconds(double size) const { return latency + size / bytes; }
  bool operator==(const Link &) const = default;
};

/// Links that connect groups of `span` devices, which follow one another.
struct Tier {
  Link link;
  int64_t span = 0; ///< 0: all
  bool operator==(const Tier &) const = default;
};

/// What passes need to know of a cluster.
struct ClusterRates {
  std::string name;
  Device device;           ///< in bf16, sustained
  double launch = 0;       ///< seconds between two kernels
  std::vector<Tier> links; ///< nested, the nearest first; the last spans all
  bool operator==(const ClusterRates &) const = default;
};

/// For choices without a cluster file: GPUs of the Hopper class on one kind of
/// link, in round numbers. Choices depend on ratios more than on the numbers.
const ClusterRates &defaultRates();

} // namespace tessera::hardware
