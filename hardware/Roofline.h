// Seconds of work on one device and of messages between two: a roofline and the
// alpha-beta model. Passes compare choices by it; parallelism/planner has finer
// models of kernels and collectives for a given cluster.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>

namespace tessera::hardware {

struct Device {
  double flops = 0; ///< FLOP/s
  double bytes = 0; ///< bytes per second of its memory
  double seconds(double work, double traffic) const {
    return std::max(work / flops, traffic / bytes);
  }
};

/// One direction of the link between two devices.
struct Link {
  double bytes = 0;   ///< per second
  double latency = 0; ///< seconds per message
  double seconds(double size) const { return latency + size / bytes; }
};

/// The default without a cluster: a GPU of the Hopper class, in round numbers.
/// Choices depend on ratios more than on the numbers themselves.
inline constexpr Device kDefaultDevice = {.flops = 400e12, .bytes = 3e12};

/// By dist::LinkTier: memory of one machine, NVLink, a rail's switch, the
/// spine.
inline constexpr std::array<Link, 4> kDefaultLinks = {
    Link{.bytes = 100e9, .latency = 3e-6},
    Link{.bytes = 300e9, .latency = 3e-6}, Link{.bytes = 50e9, .latency = 8e-6},
    Link{.bytes = 25e9, .latency = 15e-6}};

template <typename Tier> constexpr const Link &defaultLink(Tier tier) {
  return kDefaultLinks[static_cast<std::size_t>(tier)];
}

} // namespace tessera::hardware
