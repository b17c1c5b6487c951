// Reductions of a whole tensor to one number, in two launches: blocks of fixed
// size to partial results, then one block over those. The result does not
// depend on the number of threads. CPUs add a dense f32 tensor up in f64
// and round once, so that a loss does not depend on where in a chunk of the
// head its tokens are.
#include "mlir/IR/Builders.h"
#include "passes/kernels/reduction/Reductions.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

static void nothing(EmitScope &) {}

static SmallVector<unsigned> reductionsOf(const ExprPiece &piece) {
  SmallVector<unsigned> nodes;
  for (const ExprPiece::Root &root : piece.roots)
    nodes.push_back(root.node);
  return nodes;
}

static SmallVector<Value> neutrals(EmitScope &level, ArrayRef<unsigned> nodes,
                                   llvm::function_ref<Type(Type)> elementOf) {
  SmallVector<Value> values;
  for (unsigned node : nodes) {
    const ExprNode &reduction = level.target.piece.nodes[node];
    values.push_back(neutral(level.builder, level.loc(), kindOf(reduction),
                             elementOf(heldElement(reduction.element))));
  }
  return values;
}

// In which a flat sum of `held` grows.
static Type sumElement(Type held, const TileTarget &target) {
  return held.isF32() && !target.gpu ? Float64Type::get(held.getContext())
                                     : held;
}

// `x`, a scalar or a vector, with elements of type `element`.
static Value convertFloats(OpBuilder &b, Location loc, Value x, Type element) {
  Type from = getElementTypeOrSelf(x.getType()), to = element;
  if (from == element)
    return x;
  if (auto vector = dyn_cast<VectorType>(x.getType()))
    to = vector.clone(element);
  if (from.isF32())
    return b.create<arith::ExtFOp>(loc, to, x);
  return b.create<arith::TruncFOp>(loc, to, x);
}

//===--- partial results --------------------------------------------------===//

// Elements [begin, end) of the last dimension: full tiles, then one at a time.
static SmallVector<Value> reduceRange(EmitScope &level,
                                      ArrayRef<unsigned> nodes, Value begin,
                                      Value end, const TileTarget &target) {
  OpBuilder &b = level.builder;
  Location loc = level.loc();
  const ExprPiece &piece = level.target.piece;
  unsigned dim = piece.rank() - 1;
  int64_t width = tileWidth(target, piece);
  auto accumulate = [&](Value from, Value to, int64_t step, ValueRange inits) {
    auto loop =
        b.create<scf::ForOp>(loc, from, to, emitIndex(b, loc, step), inits);
    b.setInsertionPoint(loop);
    EmitScope inner(level, OpBuilder::atBlockEnd(loop.getBody()));
    inner.setIndex(dim, loop.getInductionVar());
    if (step > 1)
      inner.setTile({{dim, step}});
    SmallVector<Value> next;
    for (auto [i, node] : llvm::enumerate(nodes)) {
      Value sum = loop.getRegionIterArg(i);
      Value x = convertFloats(inner.builder, loc,
                              inner.emitTile(piece.nodes[node].operands[0]),
                              getElementTypeOrSelf(sum.getType()));
      next.push_back(
          combine(inner.builder, loc, kindOf(piece.nodes[node]), sum, x));
    }
    inner.builder.create<scf::YieldOp>(loc, next);
    b.setInsertionPointAfter(loop);
    return SmallVector<Value>(loop.getResults());
  };
  Value length = b.create<arith::SubIOp>(loc, end, begin);
  Value rest = b.create<arith::RemUIOp>(loc, length, emitIndex(b, loc, width));
  Value whole = b.create<arith::SubIOp>(loc, end, rest);
  auto elementOf = [&](Type held) { return sumElement(held, target); };
  SmallVector<Value> scalars = neutrals(level, nodes, elementOf), tiles;
  for (Value scalar : scalars)
    tiles.push_back(b.create<tile::BroadcastOp>(
        loc, VectorType::get({width}, scalar.getType()), scalar,
        ArrayRef<int64_t>()));
  tiles = accumulate(begin, whole, width, tiles);
  for (auto [i, node] : llvm::enumerate(nodes))
    scalars[i] =
        combine(b, loc, kindOf(piece.nodes[node]), scalars[i],
                reduceTile(b, loc, kindOf(piece.nodes[node]), tiles[i]));
  return accumulate(whole, end, 1, scalars);
}

static Type asHeld(Type held) { return held; }

// Rows of a strided tensor: `grid` counts the leading reduced dimensions.
static SmallVector<Value> reduceRows(EmitScope &level, ArrayRef<unsigned> nodes,
                                     const RowGrid &grid, Value block,
                                     const TileTarget &target) {
  OpBuilder &b = level.builder;
  Location loc = level.loc();
  const ExprPiece &piece = level.target.piece;
  Value perBlock = emitIndex(b, loc, grid.perBlock);
  Value begin = b.create<arith::MulIOp>(loc, block, perBlock);
  Value end = b.create<arith::MinUIOp>(
      loc, b.create<arith::AddIOp>(loc, begin, perBlock),
      emitIndex(b, loc, grid.rows));
  auto loop = b.create<scf::ForOp>(loc, begin, end, emitIndex(b, loc, 1),
                                   neutrals(level, nodes, asHeld));
  b.setInsertionPoint(loop);
  EmitScope row(level, OpBuilder::atBlockEnd(loop.getBody()));
  setRowIndices(row, grid, loop.getInductionVar());
  SmallVector<Value> next =
      reduceOver(row, nodes, piece.rank() - 1, loop.getRegionIterArgs(), target,
                 nothing, nothing);
  row.builder.create<scf::YieldOp>(loc, next);
  b.setInsertionPointAfter(loop);
  return SmallVector<Value>(loop.getResults());
}

namespace {

// The first launch.
struct Partial {
  ClusterOp cluster;
  const ExprPiece &piece;
  bool flat;
  RowGrid grid; ///< not flat: all dimensions but the last

  void build(tile::KernelOp kernel, const ClusterLaunch &launch,
             const TileTarget &target, OpBuilder &b) const;
};

} // namespace

void Partial::build(tile::KernelOp kernel, const ClusterLaunch &launch,
                    const TileTarget &target, OpBuilder &b) const {
  Location loc = kernel.getLoc();
  EmitTarget emitTarget{piece, launch.argumentBuffers(kernel), loc};
  SmallVector<unsigned> nodes = reductionsOf(piece);
  Value block = kernel.getBlockNumber();
  EmitScope level(emitTarget, b);
  SmallVector<Value> sums;
  if (flat) {
    level.setIndex(0, emitIndex(level.builder, loc, 0));
    OpBuilder &lb = level.builder;
    Value size = emitIndex(lb, loc, blockElements(target));
    Value begin = lb.create<arith::MulIOp>(loc, block, size);
    Value end = lb.create<arith::MinUIOp>(
        loc, lb.create<arith::AddIOp>(loc, begin, size), kernel.getSizes()[0]);
    sums = reduceRange(level, nodes, begin, end, target);
  } else {
    sums = reduceRows(level, nodes, grid, block, target);
  }
  SmallVector<Value> results = launch.resultBuffers(kernel);
  for (auto [sum, buffer] : llvm::zip_equal(sums, results))
    level.builder.create<memref::StoreOp>(
        loc,
        convertFloats(level.builder, loc, sum,
                      cast<MemRefType>(buffer.getType()).getElementType()),
        buffer, block);
}

//===--- the last block ---------------------------------------------------===//

// One block over all partial results of one reduction, unless there is only one
// and it has the result's type.
static llvm::Expected<Value> reducePartials(ReduceOp op, Operation *at,
                                            Value partials,
                                            TilingContext &context) {
  RankedTensorType type = tensorType(op.getResult());
  if (partials.getType() == RankedTensorType::get({1}, type.getElementType()))
    return OpBuilder(at)
        .create<ReshapeOp>(at->getLoc(), type, partials)
        .getResult();
  Type held = tensorType(partials).getElementType();
  LaunchSpec spec;
  spec.name = ("partial_" + stringifyReduceKind(op.getKind())).str();
  spec.skeleton = tile::Skeleton::reduce_all;
  spec.summary = "partial results to one";
  spec.buffers = {MemRefType::get({ShapedType::kDynamic}, held),
                  bufferType(type)};
  spec.access = {tile::Access::read, tile::Access::write};
  spec.sizes = {tensorType(partials).getNumElements()};
  spec.blocks = 1;
  spec.key = stringifyReduceKind(op.getKind());
  spec.build = [&](tile::KernelOp kernel, const TileTarget &target,
                   OpBuilder &b) -> llvm::Error {
    ExprPiece piece;
    piece.sizes = {1, std::numeric_limits<int64_t>::max()};
    piece.groups = {1, 1};
    ExprNode load{ExprNode::load, held};
    load.address = Linear::index(1, 2);
    load.dims = 2;
    ExprNode reduce{ExprNode::reduce, held, op, {0}};
    reduce.dims = 1;
    piece.nodes = {load, reduce};
    EmitTarget emitTarget{piece, {kernel.getBuffers()[0]}, kernel.getLoc()};
    EmitScope level(emitTarget, b);
    level.setIndex(0, emitIndex(level.builder, kernel.getLoc(), 0));
    Value zero = emitIndex(level.builder, kernel.getLoc(), 0);
    Value sum = reduceRange(level, {1}, zero, kernel.getSizes()[0], target)[0];
    sum = convertFloats(level.builder, kernel.getLoc(), sum,
                        heldElement(type.getElementType()));
    level.store(sum, type.getElementType(), kernel.getBuffers()[1],
                Linear::zero(2));
    return llvm::Error::success();
  };
  llvm::Expected<SmallVector<Value>> launched =
      context.launch(at, spec, partials, type);
  if (!launched)
    return launched.takeError();
  return launched->front();
}

//===--- entry ------------------------------------------------------------===//

llvm::Expected<SmallVector<Value>>
tessera::tileReduceAll(ClusterOp cluster, TilingContext &context) {
  llvm::Expected<ClusterExpression> expression = buildExpression(cluster);
  if (!expression)
    return expression.takeError();
  ExprPiece &piece = expression->pieces.front();
  int64_t last = piece.sizes.back();
  Partial partial{cluster,
                  piece,
                  piece.rank() == 2 && loadsAreFlat(cluster, piece, 1),
                  {piece.rank() - 1, expression->reduced / last,
                   partsOf(blockElements(context.target()), last)}};
  int64_t blocks = partial.flat ? partsOf(expression->reduced,
                                          blockElements(context.target()))
                                : partial.grid.blocks();
  SmallVector<Type> types;
  SmallVector<ReduceOp> reductions;
  for (unsigned node : reductionsOf(piece)) {
    auto op = dyn_cast<ReduceOp>(piece.nodes[node].op);
    if (!op)
      return llvm::createStringError("a result is not a reduction");
    reductions.push_back(op);
    Type held = heldElement(tensorType(op.getResult()).getElementType());
    if (partial.flat && blocks > 1)
      held = sumElement(held, context.target());
    types.push_back(RankedTensorType::get({blocks}, held));
  }
  ClusterLaunch launch(cluster, *expression, tile::Skeleton::reduce_all, types);
  launch.spec.reuse.clear();
  launch.spec.blocks = blocks;
  if (partial.flat) {
    launch.makeFlat(expression->reduced);
    launch.makeResultsDynamic();
    piece.sizes.back() = std::numeric_limits<int64_t>::max();
    launch.spec.key = expression->key();
  }
  launch.spec.build = [&](tile::KernelOp kernel, const TileTarget &target,
                          OpBuilder &b) -> llvm::Error {
    partial.build(kernel, launch, target, b);
    return llvm::Error::success();
  };
  llvm::Expected<SmallVector<Value>> partials = launch.emit(context);
  if (!partials)
    return partials.takeError();
  SmallVector<Value> results;
  for (auto [op, value] : llvm::zip_equal(reductions, *partials)) {
    llvm::Expected<Value> sum = reducePartials(op, cluster, value, context);
    if (!sum)
      return sum.takeError();
    results.push_back(*sum);
  }
  return results;
}
