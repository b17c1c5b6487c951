// The table of hyperparameters that a step program reads at run time. They live
// in one state tensor, `hyper` f32[16] of role counter, so that `--set
// optimizer.lr=…` takes effect without recompiling and a checkpoint carries
// what it was trained with. The compiler reads the slots, the runtime writes
// them before the first step; both include this header and nothing else knows
// the numbers.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tessera {

inline constexpr const char *kHyperTensor = "hyper";
inline constexpr std::size_t kHyperSlots = 16;

/// Index into `hyper`. Slots that a program has no use for (betas under SGD)
/// are written all the same.
enum class HyperSlot : std::uint8_t {
  lr = 0,          ///< at the top of the schedule
  beta1 = 1,       ///< AdamW, of the first moment
  beta2 = 2,       ///< AdamW, of the second moment
  eps = 3,         ///< AdamW, added to the root of the second moment
  weightDecay = 4, ///< decoupled; tensors of rank ≥ 2
  clip = 5,        ///< bound of the global gradient norm; 0: no clipping
  momentum = 6,    ///< SGD
  warmup = 7,      ///< steps from 0 to lr
  total = 8,       ///< step at which lr has fallen to minRatio × lr
  minRatio = 9,    ///< of the schedule's end
  // 10 … 15 are zero.
};

} // namespace tessera
