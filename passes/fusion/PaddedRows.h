// Results of a cluster whose rows have unused elements at their ends, so that
// every row begins at an aligned address (passes/kernels, pad-rows).
#pragma once
#include "dialects/graph/GraphOps.h"

namespace tessera {

/// On a graph.pad that a cluster yields: nothing reads the padding, and the
/// kernel does not write it.
inline constexpr llvm::StringLiteral kUnreadAttr = "tile.unread";

/// The pad of a yielded value, if its padding is never read: at the end of the
/// last dimension. Null otherwise.
inline graph::PadOp paddedRows(mlir::Value yielded) {
  auto pad = yielded.getDefiningOp<graph::PadOp>();
  return pad && pad->hasAttr(kUnreadAttr) ? pad : graph::PadOp();
}

/// What a kernel writes of a yielded value.
inline mlir::Value withoutPadding(mlir::Value yielded) {
  graph::PadOp pad = paddedRows(yielded);
  return pad ? pad.getInput() : yielded;
}

} // namespace tessera
