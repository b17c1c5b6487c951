// A decomposed all-gather is n - 1 sends, each directly to its receiver;
// matmuls read the chunks as they arrive, the device's own first. A decomposed
// reduce-scatter is matmuls of the chunks, the device's own last; each result
// is sent directly to its owner, which adds all of them. So no send waits for
// another, and chunks are rounded once and added in f32, as reduce_scatter
// does.
#include "passes/sharding/LocalCollectiveMatmul.h"
#include "dialects/dist/CollectiveMatmulAttr.h"
#include "passes/sharding/Resharder.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::Emitter;
using graph::tensorType;

static Type wideOf(Type element) {
  if (element.isF64())
    return element;
  return Float32Type::get(element.getContext());
}

static RankedTensorType withSize(RankedTensorType type, int64_t dim,
                                 int64_t size) {
  SmallVector<int64_t> shape(type.getShape());
  shape[dim] = size;
  return type.clone(shape);
}

// The product of the dimensions before this one.
static int64_t timesOf(RankedTensorType type, int64_t dim) {
  int64_t times = 1;
  for (int64_t size : type.getShape().take_front(dim))
    times *= size;
  return times;
}

//===--- chunk order and positions ----------------------------------------===//

// Sends to the device that many positions after this one along the axis.
Value LocalCollectiveMatmul::pass(Emitter &e, Value part, unsigned axis,
                                  int64_t positions) {
  int64_t n = devices(axis);
  SmallVector<int64_t> targets;
  for (int64_t i = 0; i < n; ++i)
    targets.push_back((i + positions + n) % n);
  OpBuilder &b = e.builder();
  return b.create<dist::PermuteOp>(
      e.location(), part.getType(), part, FlatSymbolRefAttr::get(mesh.name),
      Resharder(e, mesh, at).refs(axis), b.getDenseI64ArrayAttr(targets));
}

// The owner of chunk k; also the number of the chunk that belongs to device k:
// both are (r - k) mod n on device r.
Value LocalCollectiveMatmul::owners(Emitter &e, unsigned axis) {
  int64_t n = devices(axis);
  Value own = Resharder(e, mesh, at).offsetOf(Factor{n, {axis}});
  auto type = RankedTensorType::get({n}, e.builder().getI32Type());
  Value positions = e.broadcastScalar(own, {n}), parts = e.iota(type, 0);
  // Without a mask, so that it depends only on offsets: all layers share it.
  Value isBefore =
      e.min(e.max(e.sub(parts, positions), e.zeros(type)), e.splat(1, type));
  return e.add(e.sub(positions, parts),
               e.mul(isBefore, e.splat(static_cast<double>(n), type)));
}

// The rows that reorder chunks [n, outer] to positions [outer, n], or back.
Value LocalCollectiveMatmul::rowsOf(Emitter &e, unsigned axis, int64_t outer,
                                    bool together) {
  int64_t n = devices(axis);
  SmallVector<int64_t> shape = together ? SmallVector<int64_t>{outer, n}
                                        : SmallVector<int64_t>{n, outer};
  Value owner = owners(e, axis);
  if (outer == 1)
    return e.reshape(owner, shape);
  auto type = RankedTensorType::get(shape, e.builder().getI32Type());
  Value parts = e.broadcast(owner, together ? 1 : 0, shape),
        rows = e.iota(type, together ? 0 : 1);
  auto times = [&](Value x, int64_t count) {
    return e.mul(x, e.splat(static_cast<double>(count), type));
  };
  return together ? e.add(times(parts, outer), rows)
                  : e.add(times(rows, n), parts);
}

Value LocalCollectiveMatmul::together(Emitter &e, const Parts &from,
                                      Type type) {
  auto part = tensorType(from.parts.front());
  auto n = static_cast<int64_t>(from.parts.size());
  int64_t outer = timesOf(part, from.dim);
  int64_t inner = part.getNumElements() / outer;
  // Matmuls write into the pack if it has no gaps.
  auto all =
      RankedTensorType::get({n * part.getNumElements()}, part.getElementType());
  SmallVector<Type> types(n, part);
  Value table;
  if (dist::packingOf(types, 1).pieceSize == all.getNumElements()) {
    table = e.builder().create<dist::PackOp>(e.location(), all, from.parts,
                                             e.builder().getI64IntegerAttr(1));
  } else {
    SmallVector<Value> rows = llvm::map_to_vector(
        from.parts, [&](Value x) { return e.reshape(x, {outer, inner}); });
    table = e.concat(rows, 0);
  }
  Value placed = e.embedding(e.reshape(table, {n * outer, inner}),
                             rowsOf(e, from.axis, outer, true));
  return e.reshape(placed, cast<RankedTensorType>(type).getShape());
}

const LocalCollectiveMatmul::Parts *
LocalCollectiveMatmul::partsOf(Value value) const {
  auto found = inParts.find(value);
  return found == inParts.end() ? nullptr : &found->second;
}

// The device's shard of a value; joins its chunks if necessary.
Value LocalCollectiveMatmul::whole(Emitter &e, Value value) {
  if (const Parts *parts = partsOf(value); parts && !map.contains(value))
    map.map(value, together(e, *parts, shares.typeOf(value)));
  return map.lookup(value);
}

// The chunks of a value along a dimension that the device has whole.
const LocalCollectiveMatmul::Parts &LocalCollectiveMatmul::apart(Emitter &e,
                                                                 Value value,
                                                                 unsigned axis,
                                                                 int64_t dim) {
  if (const Parts *known = partsOf(value);
      known && known->axis == axis && known->dim == dim)
    return *known;
  Parts &made = takenApart[{value.getAsOpaquePointer(), dim,
                            e.builder().getInsertionBlock()}];
  if (!made.parts.empty())
    return made;
  Value own = whole(e, value);
  auto type = tensorType(own);
  int64_t n = devices(axis), outer = timesOf(type, dim);
  int64_t inner = type.getNumElements() / outer / n;
  RankedTensorType part = withSize(type, dim, type.getDimSize(dim) / n);
  Value sorted = e.embedding(e.reshape(own, {outer * n, inner}),
                             rowsOf(e, axis, outer, false));
  made.axis = axis, made.dim = dim;
  for (int64_t k = 0; k < n; ++k)
    made.parts.push_back(e.reshape(
        e.slice(sorted, {k, 0, 0}, {1, outer, inner}), part.getShape()));
  return made;
}

// The operand of a matmul of chunk k.
Value LocalCollectiveMatmul::operand(Emitter &e, Value value, StringRef term,
                                     char loopDim, unsigned axis,
                                     int64_t part) {
  size_t dim = term.find(loopDim);
  if (dim == StringRef::npos)
    return whole(e, value);
  return apart(e, value, axis, static_cast<int64_t>(dim)).parts[part];
}

void LocalCollectiveMatmul::settle(Operation *op, OpBuilder &builder) {
  if (inParts.empty())
    return;
  op->walk([&](Operation *inner) {
    for (Value value : inner->getOperands())
      if (partsOf(value)) {
        Emitter e(builder, value.getLoc());
        whole(e, value);
      }
  });
}

//===--- gathers ----------------------------------------------------------===//

void LocalCollectiveMatmul::emitGather(dist::ReshardOp op,
                                       const DecomposedReshard &how,
                                       Emitter &e) {
  Parts made{how.axis, how.dim, {whole(e, op.getInput())}};
  Value own = made.parts.front();
  for (int64_t k = 1; k < how.devices; ++k)
    made.parts.push_back(pass(e, own, how.axis, k));
  inParts[op.getResult()] = std::move(made);
}

// A matmul on a chunked tensor gives a chunked tensor, or the sum of all
// chunks.
bool LocalCollectiveMatmul::emitProduct(graph::EinsumOp op,
                                        OpBuilder &builder) {
  // The decomposed reduce-scatter after it computes it.
  if (op->hasOneUse())
    if (auto reshard = dyn_cast<dist::ReshardOp>(*op->user_begin());
        reshard && reshard->hasAttr(dist::kCollectiveMatmulAttr)) {
      std::string why;
      auto how = matchDecomposedReshard(reshard, reader, why);
      if (how && !how->gathers)
        return true;
    }
  // Only gathered tensors arrive in chunks: a matmul on tensors computed from
  // them has nothing to overlap with.
  auto gathered = [&](Value value) {
    return value.getDefiningOp<dist::ReshardOp>() ? partsOf(value) : nullptr;
  };
  graph::Einsum equation = einsumOf(op);
  const Parts *lhs = gathered(op.getLhs());
  const Parts *lead = lhs ? lhs : gathered(op.getRhs());
  if (!lead)
    return false;
  char loopDim = (lhs ? equation.lhs : equation.rhs)[lead->dim];
  unsigned axis = lead->axis;
  Emitter e(builder, op.getLoc());
  RankedTensorType type = shares.typeOf(op.getResult());
  size_t dim = equation.out.find(loopDim);
  bool isSum = dim == std::string::npos;
  Type element = isSum ? wideOf(type.getElementType()) : type.getElementType();
  Parts made{axis, static_cast<int64_t>(dim), {}};
  for (int64_t k = 0, n = devices(axis); k < n; ++k) {
    Value part = e.einsum(
        op.getEquation(),
        operand(e, op.getLhs(), equation.lhs, loopDim, axis, k),
        operand(e, op.getRhs(), equation.rhs, loopDim, axis, k), element);
    made.parts.push_back(isSum && k ? e.add(made.parts.back(), part) : part);
  }
  if (isSum)
    map.map(op.getResult(),
            e.convert(made.parts.back(), type.getElementType()));
  else
    inParts[op.getResult()] = std::move(made);
  return true;
}

// Elementwise ops of chunked tensors, and of operands that are the same for all
// chunks, are chunked.
bool LocalCollectiveMatmul::emitElementwise(Operation *op, OpBuilder &builder) {
  if (!isa<graph::Elementwise>(op))
    return false;
  const Parts *lead = nullptr;
  for (Value value : op->getOperands())
    if (const Parts *parts = partsOf(value); parts && !lead)
      lead = parts;
  if (!lead)
    return false;
  Parts made{lead->axis, lead->dim, {}};
  SmallVector<Value> like(lead->parts); // emitting may invalidate `lead`
  if (!staysChunked(op, made.dim, [&](Value value) {
        const Parts *parts = partsOf(value);
        return parts && parts->axis == made.axis && parts->dim == made.dim;
      }))
    return false;
  Emitter e(builder, op->getLoc());
  NamedAttrList attrs(op->getDiscardableAttrDictionary());
  attrs.erase(dist::kShardingsAttr);
  Type element = tensorType(op->getResult(0)).getElementType();
  for (auto [k, part] : llvm::enumerate(like)) {
    ArrayRef<int64_t> shape = tensorType(part).getShape();
    SmallVector<Value> operands;
    for (Value value : op->getOperands()) {
      if (const Parts *parts = partsOf(value))
        operands.push_back(parts->parts[k]);
      else if (auto broadcast = value.getDefiningOp<graph::BroadcastOp>())
        operands.push_back(e.broadcast(whole(e, broadcast.getInput()),
                                       broadcast.getDims(), shape));
      else
        operands.push_back(builder.create<graph::ConstantOp>(
            op->getLoc(),
            resizeSplat(value.getDefiningOp<graph::ConstantOp>().getValue(),
                        RankedTensorType::get(
                            shape, tensorType(value).getElementType()))));
    }
    Operation *clone = builder.insert(Operation::create(
        op->getLoc(), op->getName(), RankedTensorType::get(shape, element),
        operands, attrs.getDictionary(op->getContext()),
        op->getPropertiesStorage(), {}, /*numRegions=*/0));
    made.parts.push_back(clone->getResult(0));
  }
  inParts[op->getResult(0)] = std::move(made);
  return true;
}

//===--- scatters ---------------------------------------------------------===//

void LocalCollectiveMatmul::emitScatter(dist::ReshardOp op,
                                        const DecomposedReshard &how,
                                        Emitter &e) {
  auto product = op.getInput().getDefiningOp<graph::EinsumOp>();
  graph::Einsum equation = einsumOf(product);
  char loopDim = equation.out[how.dim];
  Type element = tensorType(product.getResult()).getElementType(),
       wide = wideOf(element);
  auto compute = [&](int64_t k, Type type) {
    return e.einsum(
        product.getEquation(),
        operand(e, product.getLhs(), equation.lhs, loopDim, how.axis, k),
        operand(e, product.getRhs(), equation.rhs, loopDim, how.axis, k), type);
  };
  SmallVector<Value> came;
  for (int64_t k = 1; k < how.devices; ++k)
    came.push_back(pass(e, compute(k, element), how.axis, -k));
  Value sum = compute(0, wide);
  for (Value part : came)
    sum = e.add(sum, e.convert(part, wide));
  map.map(op.getResult(), e.convert(sum, element));
}

bool LocalCollectiveMatmul::emitReshard(dist::ReshardOp op,
                                        OpBuilder &builder) {
  if (!op->hasAttr(dist::kCollectiveMatmulAttr))
    return false;
  std::string why;
  std::optional<DecomposedReshard> how =
      matchDecomposedReshard(op, reader, why);
  if (!how)
    return false;
  Emitter e(builder, op.getLoc());
  if (how->gathers)
    emitGather(op, *how, e);
  else
    emitScatter(op, *how, e);
  return true;
}

bool LocalCollectiveMatmul::emit(Operation *op, OpBuilder &builder) {
  if (auto reshard = dyn_cast<dist::ReshardOp>(op))
    return emitReshard(reshard, builder);
  if (auto product = dyn_cast<graph::EinsumOp>(op))
    return emitProduct(product, builder);
  return !inParts.empty() && emitElementwise(op, builder);
}
