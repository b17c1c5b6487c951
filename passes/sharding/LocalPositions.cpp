// Ops that depend on the position of an element, along a sharded dimension: the
// positions of a shard are those of its elements in the whole tensor.
#include "passes/sharding/LocalOps.h"
#include "passes/sharding/Resharder.h"
#include <functional>

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::Emitter;
using graph::tensorType;

// The global positions of a shard's elements along a dimension: i32[local
// size].
static Value positionsOf(Emitter &e, const LocalOp &local,
                         const DimPlacement &dim) {
  Resharder resharder(e, local.mesh, local.at);
  SmallVector<int64_t> sizes;
  for (const Factor &factor : dim)
    sizes.push_back(factor.rangeAt(local.mesh, local.at).size);
  auto type = RankedTensorType::get(sizes, e.builder().getI32Type());
  Value positions = e.zeros(type);
  int64_t step = 1;
  for (size_t i = dim.size(); i-- > 0; step *= dim[i].size) {
    Value at = e.iota(type, static_cast<int64_t>(i));
    if (dim[i].isCut())
      at = e.add(at, e.broadcastScalar(resharder.offsetOf(dim[i]), sizes));
    positions =
        e.add(positions, e.mul(at, e.splatLike(static_cast<double>(step), at)));
  }
  return e.reshape(positions, {type.getNumElements()});
}

FailureOr<bool> sharding::emitLocalRope(LocalOp &local) {
  auto op = dyn_cast<graph::RopeOp>(local.op);
  if (!op || op.getPositions())
    return false;
  DimPlacement tokens = local.placementOf(op.getInput()).dims[1];
  if (llvm::none_of(tokens, std::mem_fn(&Factor::isCut)))
    return false;
  Emitter e(local.builder, op.getLoc());
  RankedTensorType type = local.localType(op.getResult());
  Value positions = e.broadcast(positionsOf(e, local, tokens), {1},
                                type.getShape().take_front(2));
  auto clone = cast<graph::RopeOp>(local.builder.clone(*op, local.map));
  clone->removeAttr(dist::kShardingsAttr);
  clone.getPositionsMutable().assign(positions);
  clone.getResult().setType(type);
  local.map.map(op.getResult(), clone.getResult());
  return true;
}

FailureOr<bool> sharding::emitLocalIota(LocalOp &local) {
  auto op = dyn_cast<graph::IotaOp>(local.op);
  if (!op)
    return false;
  auto counted = static_cast<int64_t>(op.getDim());
  DimPlacement dim = local.placementOf(op.getResult()).dims[counted];
  if (llvm::none_of(dim, std::mem_fn(&Factor::isCut)))
    return false;
  Emitter e(local.builder, op.getLoc());
  RankedTensorType type = local.localType(op.getResult());
  Value numbers = e.convert(positionsOf(e, local, dim), type.getElementType());
  local.map.map(op.getResult(), e.broadcast(numbers, counted, type.getShape()));
  return true;
}
