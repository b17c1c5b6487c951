// The arithmetic of reductions.
#pragma once
#include "runtime/comm/Collective.h"

#include <span>

namespace tessera::comm {

/// result[i] = ((c0[i] ∘ c1[i]) ∘ c2[i]) ∘ …, i < count, as Reduction says; c
/// are the contributions, one at least. The result may be one of them, and must
/// not overlap them otherwise. Nothing need be aligned.
void reduceInOrder(ElementType type, Reduction reduction,
                   std::span<const std::byte *const> contributions,
                   std::byte *result, std::uint64_t count);

} // namespace tessera::comm
