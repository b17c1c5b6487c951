// Peak FLOP/s of GPUs, from their data sheets: a benchmark cannot measure them
// without the kernels that it evaluates. Of some also their multiprocessors and
// the latencies of memory, which others have measured.
#pragma once
#include "hardware/Roofline.h"
#include <cstdint>
#include <string_view>

namespace tessera::hardware {

/// Dense FLOP/s, a multiply-add counting two, sums in fp32.
struct Peaks {
  double bf16 = 0, tf32 = 0; ///< tensor cores
  double fp32 = 0;           ///< without them
};

/// What bounds the blocks that are in flight, and how long each waits.
struct Multiprocessors {
  std::string_view target;              ///< of code for it: "cuda:sm_90a"
  std::int64_t count = 0;               ///< SMs
  double clock = 0;                     ///< of SMs at most, in hertz
  std::int64_t threads = 0, blocks = 0; ///< of an SM at once, at most
  std::int64_t registers = 0;           ///< of an SM, 4 bytes each
  std::int64_t sharedBytes = 0;         ///< of an SM, for all blocks
  double l1Bytes = 0;                   ///< of an SM, shared memory included
  double l1Latency = 0, l2Latency = 0, memoryLatency = 0; ///< of loads: cycles
  double l2Bytes = 0;
  double memoryBandwidth = 0; ///< bytes per second
};

struct Chip {
  std::string_view name; ///< the driver's name of it, or a part of that
  Peaks peaks;
  const Multiprocessors *sm = nullptr; ///< null: unknown
  Link nvlink = {};                    ///< where `sm` is known
};

/// The chip by the name that a device reports; null if it is not in the table.
const Chip *findChip(std::string_view description);
/// The chip that bounds are computed for where a target's code runs, with
/// multiprocessors: an H200 for "cuda:sm_90a"; null if there is none.
const Chip *chipOfTarget(std::string_view target);

} // namespace tessera::hardware
