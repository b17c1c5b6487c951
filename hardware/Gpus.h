// Peak FLOP/s of GPUs, from their data sheets: a benchmark cannot measure them
// without the kernels that it evaluates.
#pragma once
#include <string_view>

namespace tessera::hardware {

/// Dense FLOP/s, a multiply-add counting two, sums in fp32.
struct Peaks {
  double bf16 = 0, tf32 = 0; ///< tensor cores
  double fp32 = 0;           ///< without them
};

struct Chip {
  std::string_view name; ///< the driver's name of it, or a part of that
  Peaks peaks;
};

/// The chip by the name that a device reports; null if it is not in the table.
const Chip *findChip(std::string_view description);

} // namespace tessera::hardware
