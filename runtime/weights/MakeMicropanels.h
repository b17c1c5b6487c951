// Builds micropanels of a model's weights (runtime/support/QuantizedLayout.h)
// from any format of a file.
#pragma once
#include "runtime/weights/ModelState.h"

#include <functional>
#include <span>

namespace tessera {

/// Fills one micropanel: `layout.words()` × 16 words and, where there are
/// scales, `layout.scaleRows()` × 16 of them (words are two each). A
/// micropanel that lacks rows is passed with q = 0 and scales of 0; the
/// contents of others are undefined. Called by several threads, each with its
/// own number below hal::availableProcessors().
using MakeMicropanel =
    std::function<Status(int64_t micropanel, std::span<uint32_t> words,
                         std::span<uint16_t> scales, unsigned thread)>;

/// Makes all micropanels of a matrix on all processors: in place if the state
/// is in host memory, otherwise through a buffer for a few of them. A process
/// with a shard makes only those of which it stores a part. `scales` is
/// null if the layout has none. For a matrix of a stack (matricesOf),
/// `micropanel` counts from its own first one.
Status makeMicropanels(ModelState &model, const StateTensor &values,
                       const StateTensor *scales, const MakeMicropanel &make);

} // namespace tessera
