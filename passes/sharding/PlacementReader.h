// Reads placements from attributes, and prints them.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/sharding/PlacementPool.h"
#include "llvm/ADT/DenseMap.h"

namespace tessera::sharding {

/// For a module whose shardings are on one mesh. Equal placements are one
/// object, which lives as long as the reader.
class PlacementReader {
public:
  explicit PlacementReader(const Mesh &mesh) : mesh(mesh) {}

  /// From the attribute of the value's producer; replicated without one.
  const Placement &of(mlir::Value value) const;
  /// Null means replicated.
  const Placement &of(dist::ShardingAttr attr, mlir::Type type) const;
  /// From a function's signature.
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
