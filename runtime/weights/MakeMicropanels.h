// Micropanels of a model's weights (runtime/support/QuantizedLayout.h), from
// whatever a file has.
#pragma once
#include "runtime/weights/ModelState.h"

#include <functional>
#include <span>

namespace tessera {

/// Fills one micropanel: `layout.words()` × 16 words and, where there are
/// scales, `layout.scaleRows()` × 16 of them. Of a micropanel that lacks rows
/// all are q = 0 with scales of 0 before; of others what is there is not said.
/// Called by several threads, each with its own number, which is less than
/// hal::availableProcessors().
using MakeMicropanel =
    std::function<Status(int64_t micropanel, std::span<uint32_t> words,
                         std::span<uint16_t> scales, unsigned thread)>;

/// All micropanels of a matrix on all processors, to where they stay if the
/// state is in memory, otherwise by way of a buffer for a few of them. `scales`
/// is null where the layout has none. Of a stack's matrix (matricesOf)
/// `micropanel` counts from its own first one.
Status makeMicropanels(ModelState &model, const StateTensor &values,
                       const StateTensor *scales, const MakeMicropanel &make);

} // namespace tessera
