// What attributes say of placements, and placements in words.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/sharding/PlacementPool.h"
#include "llvm/ADT/DenseMap.h"

namespace tessera::sharding {

/// Reads a module whose shardings are those of one mesh. Equal placements are
/// one object, which lives as long as the reader.
class PlacementReader {
public:
  explicit PlacementReader(const Mesh &mesh) : mesh(mesh) {}

  /// As the attribute says of whoever makes the value; whole without one.
  const Placement &of(mlir::Value value) const;
  /// Null: whole.
  const Placement &of(dist::ShardingAttr attr, mlir::Type type) const;
  /// Of a function's argument or result, as its signature says.
  const Placement &ofArgument(mlir::func::FuncOp function, unsigned i) const;
  const Placement &ofResult(mlir::func::FuncOp function, unsigned i) const;

  /// As #dist.sharding writes it: {"data", "tensor"}, {3, 128:{"tensor"}},
  /// [{"data"}, {}] partial sum {"tensor"} own {"data"}.
  std::string text(llvm::ArrayRef<unsigned> axes) const;
  std::string text(const DimPlacement &dim) const;
  std::string text(const Placement &placement) const;

  const Mesh &mesh;

private:
  mutable PlacementPool pool;
  mutable llvm::DenseMap<std::pair<mlir::Attribute, mlir::Type>,
                         const Placement *>
      known;
};

} // namespace tessera::sharding
