// What attributes say of placements, and placements in words.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/sharding/Placement.h"

namespace tessera::sharding {

/// Reads a module whose shardings are those of one mesh.
class PlacementReader {
public:
  explicit PlacementReader(const Mesh &mesh) : mesh(mesh) {}

  /// As the attribute says of whoever makes the value; whole without one.
  Placement of(mlir::Value value) const;
  /// Null: whole.
  Placement of(dist::ShardingAttr attr, mlir::RankedTensorType type) const;
  /// Of a function's argument or result, as its signature says.
  Placement ofArgument(mlir::func::FuncOp function, unsigned i) const;
  Placement ofResult(mlir::func::FuncOp function, unsigned i) const;

  /// As #dist.sharding writes it: {"data", "tensor"}, {3, 128:{"tensor"}},
  /// [{"data"}, {}] partial sum {"tensor"} own {"data"}.
  std::string text(llvm::ArrayRef<unsigned> axes) const;
  std::string text(const DimPlacement &dim) const;
  std::string text(const Placement &placement) const;

  const Mesh &mesh;
};

} // namespace tessera::sharding
