// What GPUs multiply-add at most, by their makers' data sheets: the peaks that
// a run of ours cannot measure without the very kernels it is to judge.
#pragma once
#include <string_view>

namespace tessera::hardware {

/// Dense FLOP/s, a multiply-add counting two, sums in fp32.
struct Peaks {
  double bf16 = 0, tf32 = 0; ///< tensor cores
  double fp32 = 0;           ///< without them
};

struct Chip {
  std::string_view name; ///< as the driver calls it, or a part of that
  Peaks peaks;
};

/// The chip that a device describes itself as; null for one that the table
/// lacks.
const Chip *findChip(std::string_view description);

} // namespace tessera::hardware
