// How much memory a kernel has to move, whatever it does with it.
#pragma once
#include "dialects/tile/TileOps.h"

namespace tessera {

/// Bytes that all blocks of `kernel` read and write at least, each once: of
/// every buffer what its views reach, twice where it is read and written.
/// Buffers that are reached by indices out of memory, such as embedding tables,
/// do not count but for what the skeleton says of them (kGatheredBytesAttr). 0
/// where sizes are dynamic.
int64_t countTraffic(tile::KernelOp kernel);

} // namespace tessera
