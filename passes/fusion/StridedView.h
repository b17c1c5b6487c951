// Views as offsets and strides: the operands that skeletons read in place, in
// whole tiles.
#pragma once
#include "dialects/graph/GraphOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <optional>

namespace tessera {

/// A strided view of a dense buffer: the result of the view ops (slice,
/// reshape, transpose, broadcast) between a buffer and its use. Element (i0,
/// i1, …) of the view is element offset + Σ i·strides of the buffer; a stride
/// of 0 repeats.
struct View {
  mlir::Value base; ///< the dense buffer
  int64_t offset = 0;
  llvm::SmallVector<int64_t> shape, strides;
};

/// Follows view ops from `value` back to a value that `isBuffer` accepts;
/// nullopt if the chain is not strided (a reshape across a gap) or starts
/// elsewhere.
std::optional<View> traceView(mlir::Value value,
                              llvm::function_ref<bool(mlir::Value)> isBuffer);

/// Inside of a cluster, whose arguments are the buffers.
inline std::optional<View> traceView(mlir::Value value) {
  return traceView(value, llvm::IsaPred<mlir::BlockArgument>);
}

} // namespace tessera
