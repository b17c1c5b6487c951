// An exchange of experts' rows in buffers of one size: an all-to-all whose
// sizes the host knows, so that on GPUs it is a node of a graph, as other
// collectives are. A lookup brings each row to its place among those for the
// same device, and another brings it from there to where it belongs.
#pragma once
#include "dialects/graph/Build.h"
#include "passes/sharding/LocalOps.h"

namespace tessera::sharding {

class PaddedExchange {
public:
  struct Devices {
    int64_t count; ///< that exchange with one another
    int64_t slot;  ///< rows from one to another
    mlir::FlatSymbolRefAttr mesh;
    mlir::ArrayAttr axes;
  };
  PaddedExchange(graph::Emitter &e, Devices devices) : e(e), devices(devices) {}

  /// `rows` [n, width] → [most, width], with zeros where no row comes.
  mlir::Value emit(mlir::Value rows, const RowMoves &moves, int64_t most);

private:
  mlir::Value packed(mlir::Value rows, const RowMoves &moves);
  mlir::Value unpacked(mlir::Value slots, const RowMoves &moves, int64_t most);
  mlir::RankedTensorType i32(llvm::ArrayRef<int64_t> shape) {
    return mlir::RankedTensorType::get(shape, e.builder().getI32Type());
  }

  graph::Emitter &e;
  Devices devices;
};

/// Of each row [n] of x [m, n] the sums of the entries before each.
mlir::Value exclusiveSums(graph::Emitter &e, mlir::Value x);

} // namespace tessera::sharding
