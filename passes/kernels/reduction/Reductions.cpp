#include "passes/kernels/reduction/Reductions.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/kernels/gpu/InFlight.h"

using namespace mlir;
using namespace tessera;
using graph::ReduceKind;

Value tessera::neutral(OpBuilder &b, Location loc, ReduceKind kind, Type held) {
  TypedAttr value = b.getZeroAttr(held);
  if (kind != ReduceKind::sum) {
    bool smallest = kind == ReduceKind::max;
    if (auto type = dyn_cast<FloatType>(held)) {
      value = FloatAttr::get(
          type, APFloat::getInf(type.getFloatSemantics(), smallest));
    } else {
      unsigned width = held.getIntOrFloatBitWidth();
      value =
          b.getIntegerAttr(held, smallest ? APInt::getSignedMinValue(width)
                                          : APInt::getSignedMaxValue(width));
    }
  }
  return b.create<arith::ConstantOp>(loc, value);
}

template <typename Float, typename Int>
static Value create(OpBuilder &b, Location loc, Value x, Value y) {
  if (isa<FloatType>(getElementTypeOrSelf(x)))
    return b.create<Float>(loc, x, y);
  return b.create<Int>(loc, x, y);
}

Value tessera::combine(OpBuilder &b, Location loc, ReduceKind kind, Value x,
                       Value y) {
  switch (kind) {
  case ReduceKind::sum:
    return create<arith::AddFOp, arith::AddIOp>(b, loc, x, y);
  case ReduceKind::max:
    return create<arith::MaximumFOp, arith::MaxSIOp>(b, loc, x, y);
  case ReduceKind::min:
    return create<arith::MinimumFOp, arith::MinSIOp>(b, loc, x, y);
  }
  llvm_unreachable("all kinds are handled");
}

Value tessera::reduceTile(OpBuilder &b, Location loc, ReduceKind kind,
                          Value value) {
  auto type = dyn_cast<VectorType>(value.getType());
  if (!type)
    return value;
  Value single = b.create<tile::ReduceOp>(
      loc, VectorType::get({}, type.getElementType()), value,
      *tile::symbolizeReduceKind(graph::stringifyReduceKind(kind)), 0);
  return b.create<vector::ExtractOp>(loc, single, ArrayRef<int64_t>());
}

namespace {

// One call of reduceOver.
struct Reducer {
  ArrayRef<unsigned> nodes;
  const TileTarget &target;
  llvm::function_ref<void(EmitScope &)> enter, leave;

  const ExprNode &node(EmitScope &level, unsigned i) const {
    return level.target.piece.nodes[nodes[i]];
  }
  SmallVector<Value> emitOperands(EmitScope &tile) const {
    enter(tile);
    SmallVector<Value> values;
    for (unsigned i = 0; i < nodes.size(); ++i)
      values.push_back(tile.emitTile(node(tile, i).operands[0]));
    leave(tile);
    return values;
  }
  SmallVector<Value> combineAll(EmitScope &level, OpBuilder &b, ValueRange xs,
                                ValueRange ys) const {
    SmallVector<Value> results;
    for (unsigned i = 0; i < nodes.size(); ++i)
      results.push_back(
          combine(b, level.loc(), kindOf(node(level, i)), xs[i], ys[i]));
    return results;
  }
  // Combines the elements of each tile in `tiles` with its scalar.
  SmallVector<Value> fold(EmitScope &level, ValueRange tiles,
                          ValueRange scalars) const {
    OpBuilder &b = level.builder;
    SmallVector<Value> reduced;
    for (unsigned i = 0; i < nodes.size(); ++i)
      reduced.push_back(
          reduceTile(b, level.loc(), kindOf(node(level, i)), tiles[i]));
    return combineAll(level, b, scalars, reduced);
  }
  /// Partial results: `count` tiles of `width` elements.
  struct Parts {
    int64_t width, count;
  };
  Parts planParts(const ExprPiece &piece, int64_t size) const;
  SmallVector<Value> combineParts(EmitScope &level, const Parts &parts,
                                  ValueRange carried) const;
  SmallVector<Value> overTiles(EmitScope &level, unsigned dim,
                               ValueRange scalars) const;
  SmallVector<Value> over(EmitScope &level, unsigned dim,
                          ValueRange scalars) const;
};

} // namespace

Reducer::Parts Reducer::planParts(const ExprPiece &piece, int64_t size) const {
  int64_t width = tileWidth(target, piece);
  if (target.gpu)
    return {gpu::widthInFlight(width, size, tilesAtOnce(target, piece)), 1};
  // Always four registers: the order of a sum does not depend on what else the
  // kernel computes, so that it has the same bits in all programs.
  int64_t whole = 4 * target.lanes;
  return width == whole ? Parts{whole, 1} : Parts{target.lanes, 4};
}

// The partial results in the registers of one tile, combined as reduceTile
// combines those.
SmallVector<Value> Reducer::combineParts(EmitScope &level, const Parts &parts,
                                         ValueRange carried) const {
  SmallVector<Value> tiles(carried.take_front(nodes.size()));
  for (int64_t part = 1; part < parts.count; ++part)
    tiles = combineAll(level, level.builder, tiles,
                       carried.slice(part * nodes.size(), nodes.size()));
  return tiles;
}

// The last dimension: a loop that carries tiles of partial results, then the
// remainder.
SmallVector<Value> Reducer::overTiles(EmitScope &level, unsigned dim,
                                      ValueRange scalars) const {
  Location loc = level.loc();
  const ExprPiece &piece = level.target.piece;
  int64_t size = piece.sizes[dim];
  Parts parts = planParts(piece, size);
  int64_t step = parts.width * parts.count, whole = size / step * step;
  SmallVector<Value> results(scalars);
  if (whole) {
    OpBuilder &b = level.builder;
    SmallVector<Value> inits;
    for (unsigned i = 0; i < nodes.size() * parts.count; ++i) {
      const ExprNode &each = node(level, i % nodes.size());
      Value scalar = neutral(b, loc, kindOf(each), heldElement(each.element));
      inits.push_back(b.create<tile::BroadcastOp>(
          loc, VectorType::get({parts.width}, scalar.getType()), scalar,
          ArrayRef<int64_t>()));
    }
    auto loop = b.create<scf::ForOp>(loc, emitIndex(b, loc, 0),
                                     emitIndex(b, loc, whole),
                                     emitIndex(b, loc, parts.width), inits);
    b.setInsertionPoint(loop);
    EmitScope tile(level, OpBuilder::atBlockEnd(loop.getBody()));
    tile.setIndex(dim, loop.getInductionVar());
    tile.setTile({{dim, parts.width}});
    // The parts rotate: after a whole step each is in its place again.
    ValueRange carried = loop.getRegionIterArgs();
    SmallVector<Value> next(carried.drop_front(nodes.size()));
    next.append(combineAll(level, tile.builder,
                           carried.take_front(nodes.size()),
                           emitOperands(tile)));
    tile.builder.create<scf::YieldOp>(loc, next);
    b.setInsertionPointAfter(loop);
    results =
        fold(level, combineParts(level, parts, loop.getResults()), results);
  }
  int64_t at = whole;
  for (int64_t rest : remainderTiles(size, step, target.lanes)) {
    oneTile(level, dim, emitIndex(level.builder, loc, at), rest,
            [&](EmitScope &tile) {
              results = fold(tile, emitOperands(tile), results);
            });
    at += rest;
  }
  return results;
}

SmallVector<Value> Reducer::over(EmitScope &level, unsigned dim,
                                 ValueRange scalars) const {
  if (dim + 1 == level.target.piece.rank())
    return overTiles(level, dim, scalars);
  Location loc = level.loc();
  OpBuilder &b = level.builder;
  auto loop =
      b.create<scf::ForOp>(loc, emitIndex(b, loc, 0),
                           emitIndex(b, loc, level.target.piece.sizes[dim]),
                           emitIndex(b, loc, 1), scalars);
  b.setInsertionPoint(loop);
  EmitScope inner(level, OpBuilder::atBlockEnd(loop.getBody()));
  inner.setIndex(dim, loop.getInductionVar());
  SmallVector<Value> next = over(inner, dim + 1, loop.getRegionIterArgs());
  inner.builder.create<scf::YieldOp>(loc, next);
  b.setInsertionPointAfter(loop);
  return SmallVector<Value>(loop.getResults());
}

SmallVector<Value>
tessera::reduceOver(EmitScope &level, ArrayRef<unsigned> nodes, unsigned dim,
                    ValueRange scalars, const TileTarget &target,
                    llvm::function_ref<void(EmitScope &)> enter,
                    llvm::function_ref<void(EmitScope &)> leave) {
  return Reducer{nodes, target, enter, leave}.over(level, dim, scalars);
}
