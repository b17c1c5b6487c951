// Collective matmul: matmuls on gathered operands, or with reduce-scattered
// results, in chunks that are computed while other chunks are sent (Wang et
// al., ASPLOS 2023).
#pragma once
#include "dialects/graph/Build.h"
#include "passes/sharding/DecomposedReshard.h"
#include "passes/sharding/LocalOps.h"
#include <map>

namespace tessera::sharding {

/// Emits one device's ops on chunked tensors. Of a dimension sharded over n
/// devices of an axis, chunk k belongs to the device k positions before this
/// one. Chunks are sent and received in that order; their positions in the
/// tensor follow from an index that is known at run time.
class LocalCollectiveMatmul {
public:
  LocalCollectiveMatmul(const Mesh &mesh, const Coordinates &at,
                        const Shares &shares, mlir::IRMapping &map)
      : mesh(mesh), at(at), shares(shares), reader(mesh), map(map) {}

  /// Emits an op that is decomposed; false for any other.
  bool emit(mlir::Operation *op, mlir::OpBuilder &builder);
  /// Joins the operands of the op that exist only as chunks.
  void settle(mlir::Operation *op, mlir::OpBuilder &builder);

private:
  struct Parts {
    unsigned axis;
    int64_t dim;
    llvm::SmallVector<mlir::Value> parts;
  };

  int64_t devices(unsigned axis) const { return mesh.size(axis); }
  mlir::Value pass(graph::Emitter &e, mlir::Value part, unsigned axis,
                   int64_t positions);
  mlir::Value owners(graph::Emitter &e, unsigned axis);
  mlir::Value rowsOf(graph::Emitter &e, unsigned axis, int64_t outer,
                     bool together);
  mlir::Value together(graph::Emitter &e, const Parts &from, mlir::Type type);
  mlir::Value whole(graph::Emitter &e, mlir::Value value);
  const Parts &apart(graph::Emitter &e, mlir::Value value, unsigned axis,
                     int64_t dim);
  mlir::Value operand(graph::Emitter &e, mlir::Value value,
                      llvm::StringRef term, char loopDim, unsigned axis,
                      int64_t part);
  const Parts *partsOf(mlir::Value value) const;

  bool emitReshard(dist::ReshardOp op, mlir::OpBuilder &builder);
  void emitGather(dist::ReshardOp op, const DecomposedReshard &how,
                  graph::Emitter &e);
  void emitScatter(dist::ReshardOp op, const DecomposedReshard &how,
                   graph::Emitter &e);
  bool emitProduct(graph::EinsumOp op, mlir::OpBuilder &builder);
  bool emitElementwise(mlir::Operation *op, mlir::OpBuilder &builder);

  const Mesh &mesh;
  const Coordinates &at;
  const Shares &shares;
  PlacementReader reader;
  mlir::IRMapping &map;
  llvm::DenseMap<mlir::Value, Parts> inParts; ///< by whole value
  /// Whole values that were split, by dimension and block of the split.
  std::map<std::tuple<void *, int64_t, mlir::Block *>, Parts> takenApart;
};

} // namespace tessera::sharding
