#include "passes/sharding/PlacementReader.h"
#include "dialects/graph/GraphOps.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;

//===--- attributes -------------------------------------------------------===//

const Placement &PlacementReader::of(dist::ShardingAttr attr, Type type) const {
  const Placement *&placement = known[{attr, type}];
  if (!placement) {
    auto tensor = cast<RankedTensorType>(type);
    Placement read = attr ? Placement::fromAttr(attr, tensor, mesh)
                          : Placement::whole(tensor);
    read.normalize(mesh);
    placement = pool.intern(std::move(read));
  }
  return *placement;
}

const Placement &PlacementReader::ofArgument(func::FuncOp function,
                                             unsigned i) const {
  return of(
      function.getArgAttrOfType<dist::ShardingAttr>(i, dist::kShardingAttr),
      function.getArgumentTypes()[i]);
}

const Placement &PlacementReader::ofResult(func::FuncOp function,
                                           unsigned i) const {
  return of(
      function.getResultAttrOfType<dist::ShardingAttr>(i, dist::kShardingAttr),
      function.getResultTypes()[i]);
}

const Placement &PlacementReader::of(Value value) const {
  Type type = value.getType();
  auto made = [&](Operation *op, unsigned i) -> const Placement & {
    auto all = op->getAttrOfType<ArrayAttr>(dist::kShardingsAttr);
    return of(all ? cast<dist::ShardingAttr>(all[i]) : dist::ShardingAttr(),
              type);
  };
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    unsigned i = argument.getArgNumber();
    Operation *parent = argument.getOwner()->getParentOp();
    if (auto function = dyn_cast<func::FuncOp>(parent))
      return ofArgument(function, i);
    // The first argument of a loop's body is the induction variable.
    return i ? made(parent, i - 1) : of(dist::ShardingAttr(), type);
  }
  if (auto reshard = value.getDefiningOp<dist::ReshardOp>())
    return of(reshard.getTo(), type);
  return made(value.getDefiningOp(), cast<OpResult>(value).getResultNumber());
}

//===--- printing ---------------------------------------------------------===//

std::string PlacementReader::text(ArrayRef<unsigned> axes) const {
  auto names = llvm::map_range(axes, [&](unsigned axis) {
    return "\"" + mesh.axes[axis].getName().str() + "\"";
  });
  return "{" + llvm::join(names, ", ") + "}";
}

std::string PlacementReader::text(const DimPlacement &dim) const {
  if (dim.empty())
    return "{}";
  if (dim.size() == 1)
    return text(dim.front().axes);
  auto factors = llvm::map_range(dim, [&](const Factor &factor) {
    std::string size = std::to_string(factor.size);
    return factor.axes.empty() ? size : size + ":" + text(factor.axes);
  });
  return "{" + llvm::join(factors, ", ") + "}";
}

std::string PlacementReader::text(const Placement &placement) const {
  auto dims = llvm::map_range(
      placement.dims, [&](const DimPlacement &dim) { return text(dim); });
  std::string all = "[" + llvm::join(dims, ", ") + "]";
  if (!placement.partial.empty())
    all += " partial " + stringifyReduceKind(placement.kind).str() + " " +
           text(placement.partial);
  if (!placement.own.empty())
    all += " own " + text(placement.own);
  if (placement.room > 0)
    all += ", room " + std::to_string(placement.room);
  return all;
}
