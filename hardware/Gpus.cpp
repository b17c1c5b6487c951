#include "hardware/Gpus.h"

namespace tessera::hardware {
namespace {

constexpr double kTera = 1e12;

// Counts and sizes are those of NVIDIA's architecture white papers and of the
// CUDA C++ Programming Guide, "Technical Specifications per Compute
// Capability". Latencies are of one thread that chases a pointer, with nothing
// else running: https://github.com/markdewing/AI_kernels, latency/README.md at
// 0d701add, of an H100 SXM (40, 291, 700 cycles) and an A100 SXM (39, 210,
// 550). An H200 has the H100's SMs and L2 cache.
constexpr Multiprocessors kH200{.target = "cuda:sm_90a",
                                .count = 132,
                                .clock = 1.98e9,
                                .threads = 2048,
                                .blocks = 32,
                                .registers = 65536,
                                .sharedBytes = 228 << 10,
                                .l1Bytes = 256 << 10,
                                .l1Latency = 40,
                                .l2Latency = 291,
                                .memoryLatency = 700,
                                .l2Bytes = 50e6,
                                .memoryBandwidth = 4.8e12};
constexpr Multiprocessors kA100{.target = "cuda:sm_80",
                                .count = 108,
                                .clock = 1.41e9,
                                .threads = 2048,
                                .blocks = 32,
                                .registers = 65536,
                                .sharedBytes = 164 << 10,
                                .l1Bytes = 192 << 10,
                                .l1Latency = 39,
                                .l2Latency = 210,
                                .memoryLatency = 550,
                                .l2Bytes = 40e6,
                                .memoryBandwidth = 2.039e12};

// Data sheets have the bandwidth of both directions together; the latency of a
// message is a round number.
constexpr double kNvlinkLatency = 3e-6;

// A name that is a prefix of others comes after them.
constexpr Chip kChips[] = {
    {"B200", {2250 * kTera, 1125 * kTera, 75 * kTera}},
    {"GH200", {989 * kTera, 494 * kTera, 67 * kTera}},
    {"H200",
     {989 * kTera, 494 * kTera, 67 * kTera},
     &kH200,
     {.bytes = 450e9, .latency = kNvlinkLatency}},
    {"H100 PCIe", {756 * kTera, 378 * kTera, 51 * kTera}},
    {"H100", {989 * kTera, 494 * kTera, 67 * kTera}},
    {"A100",
     {312 * kTera, 156 * kTera, 19.5 * kTera},
     &kA100,
     {.bytes = 300e9, .latency = kNvlinkLatency}},
    {"L40S", {362 * kTera, 183 * kTera, 91.6 * kTera}},
    {"A10", {125 * kTera, 62.5 * kTera, 31.2 * kTera}},
    {"RTX 4090", {165.2 * kTera, 82.6 * kTera, 82.6 * kTera}},
    {"RTX 3090", {71 * kTera, 35.6 * kTera, 35.6 * kTera}},
};

} // namespace

const Chip *findChip(std::string_view description) {
  for (const Chip &chip : kChips)
    if (description.find(chip.name) != description.npos)
      return &chip;
  return nullptr;
}

const Chip *chipOfTarget(std::string_view target) {
  for (const Chip &chip : kChips)
    if (chip.sm && chip.sm->target == target)
      return &chip;
  return nullptr;
}

} // namespace tessera::hardware
