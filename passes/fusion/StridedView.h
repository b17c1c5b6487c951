// Views as offsets and strides: what skeletons that read whole tiles of an
// operand take in place.
#pragma once
#include "dialects/graph/GraphOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <optional>

namespace tessera {

/// A strided view of a dense buffer: what the view ops (slice, reshape,
/// transpose, broadcast) between a buffer and its use amount to. Element
/// (i0, i1, …) of the view is element offset + Σ i·strides of the buffer; a
/// stride of 0 repeats.
struct View {
  mlir::Value base; ///< the dense buffer
  int64_t offset = 0;
  llvm::SmallVector<int64_t> shape, strides;
};

/// Follows view ops from `value` back to a value that `isBuffer` takes; nullopt
/// where the chain is not strided (a reshape across a gap) or starts at
/// something else.
std::optional<View> traceView(mlir::Value value,
                              llvm::function_ref<bool(mlir::Value)> isBuffer);

/// Inside of a cluster, whose arguments are the buffers.
inline std::optional<View> traceView(mlir::Value value) {
  return traceView(value, llvm::IsaPred<mlir::BlockArgument>);
}

} // namespace tessera
