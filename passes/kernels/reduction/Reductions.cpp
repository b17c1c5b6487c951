#include "passes/kernels/reduction/Reductions.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/kernels/gpu/InFlight.h"
#include <limits>

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
  const OnlineSums &online;

  const ExprNode &node(EmitScope &level, unsigned i) const {
    return level.target.piece.nodes[nodes[i]];
  }
  SmallVector<Value> emitOperands(EmitScope &tile) const {
    enter(tile);
    SmallVector<Value> values;
    for (unsigned i = 0; i < nodes.size(); ++i) {
      std::optional<unsigned> maximum = maximumOf(i);
      values.push_back(
          tile.emitTile(node(tile, maximum.value_or(i)).operands[0]));
    }
    leave(tile);
    return values;
  }
  /// The number of the maximum that sum i is relative to, if it is online.
  std::optional<unsigned> maximumOf(unsigned i) const {
    auto found = online.find(nodes[i]);
    if (found == online.end())
      return std::nullopt;
    return llvm::find(nodes, found->second) - nodes.begin();
  }
  Value neutralOf(EmitScope &level, unsigned i) const;
  SmallVector<Value> combineAll(EmitScope &level, OpBuilder &b, ValueRange xs,
                                ValueRange ys) const;
  SmallVector<Value> accumulate(EmitScope &level, OpBuilder &b, ValueRange sums,
                                ValueRange operands) const;
  SmallVector<Value> firstOf(EmitScope &level, ValueRange operands) const;
  SmallVector<Value> fold(EmitScope &level, ValueRange tiles,
                          ValueRange scalars) const;
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

//===--- sums of exponentials ---------------------------------------------===//

static Value leastNumber(OpBuilder &b, Location loc) {
  return b.create<arith::ConstantOp>(
      loc, b.getF32FloatAttr(std::numeric_limits<float>::lowest()));
}

// A scalar, for tiles of the type of `like`.
static Value spread(OpBuilder &b, Location loc, Value scalar, Value like) {
  auto type = dyn_cast<VectorType>(like.getType());
  if (!type || isa<VectorType>(scalar.getType()))
    return scalar;
  return b.create<tile::BroadcastOp>(loc, type, scalar, ArrayRef<int64_t>());
}

// A sum relative to `from`, relative to `to`.
static Value rescale(OpBuilder &b, Location loc, Value sum, Value from,
                     Value to) {
  to = spread(b, loc, to, from);
  Value distance = b.create<arith::SubFOp>(loc, from, to);
  return b.create<arith::MulFOp>(loc, sum,
                                 b.create<math::ExpOp>(loc, distance));
}

// The sum of exponentials relative to `maximum` with that of x, relative to the
// larger of the two: one of the factors is 1, so one exponential is enough.
static Value addExponential(OpBuilder &b, Location loc, Value sum,
                            Value maximum, Value x) {
  Value distance =
      b.create<math::AbsFOp>(loc, b.create<arith::SubFOp>(loc, x, maximum));
  Value factor =
      b.create<math::ExpOp>(loc, b.create<arith::NegFOp>(loc, distance));
  Value isAbove =
      b.create<arith::CmpFOp>(loc, arith::CmpFPredicate::OGT, x, maximum);
  Value one =
      spread(b, loc, b.create<arith::ConstantOp>(loc, b.getF32FloatAttr(1)), x);
  return b.create<arith::SelectOp>(loc, isAbove,
                                   b.create<math::FmaOp>(loc, sum, factor, one),
                                   b.create<arith::AddFOp>(loc, sum, factor));
}

static bool isLeast(const ExprNode &node) {
  if (node.kind != ExprNode::constant || !node.element.isF32())
    return false;
  auto splat =
      cast<DenseElementsAttr>(cast<graph::ConstantOp>(node.op).getValue());
  return splat.getSplatValue<APFloat>().convertToFloat() ==
         std::numeric_limits<float>::lowest();
}

template <typename Op> static bool isElementwise(const ExprNode &node) {
  return node.kind == ExprNode::elementwise && isa<Op>(node.op) &&
         node.element.isF32();
}

static bool isReduce(const ExprNode &node, ReduceKind kind) {
  return node.kind == ExprNode::reduce && kindOf(node) == kind;
}

// As softmax and cross entropy decompose (dialects/graph/GraphSoftmax.cpp).
static std::optional<unsigned> maximumOfSum(const ExprPiece &piece,
                                            const ExprNode &sum) {
  auto operand = [&](const ExprNode &of, unsigned i) -> const ExprNode & {
    return piece.nodes[of.operands[i]];
  };
  if (!isReduce(sum, ReduceKind::sum) || !sum.element.isF32())
    return std::nullopt;
  const ExprNode &exp = operand(sum, 0);
  if (!isElementwise<graph::ExpOp>(exp) ||
      !isElementwise<graph::SubOp>(operand(exp, 0)))
    return std::nullopt;
  const ExprNode &distance = operand(exp, 0), &bounded = operand(distance, 1);
  if (!isElementwise<graph::MaxOp>(bounded) || !isLeast(operand(bounded, 1)))
    return std::nullopt;
  const ExprNode &maximum = operand(bounded, 0);
  if (!isReduce(maximum, ReduceKind::max) ||
      maximum.operands[0] != distance.operands[0])
    return std::nullopt;
  return bounded.operands[0];
}

OnlineSums tessera::findOnlineSums(const ExprPiece &piece) {
  OnlineSums found;
  llvm::SmallDenseSet<unsigned> taken;
  for (auto [i, node] : llvm::enumerate(piece.nodes)) {
    std::optional<unsigned> maximum = maximumOfSum(piece, node);
    if (!maximum)
      continue;
    // Of -inf alone it is the least number instead: only the bound may use it.
    bool isRoot = llvm::any_of(piece.roots, [&](const ExprPiece::Root &root) {
      return root.node == *maximum;
    });
    int64_t uses = llvm::count_if(piece.nodes, [&](const ExprNode &each) {
      return llvm::is_contained(each.operands, *maximum);
    });
    if (!isRoot && uses == 1 && taken.insert(*maximum).second)
      found[i] = *maximum;
  }
  return found;
}

//===--- register tiles ---------------------------------------------------===//

Value Reducer::neutralOf(EmitScope &level, unsigned i) const {
  bool isBounded = llvm::any_of(
      online, [&](const auto &sum) { return sum.second == nodes[i]; });
  const ExprNode &each = node(level, i);
  return isBounded ? leastNumber(level.builder, level.loc())
                   : neutral(level.builder, level.loc(), kindOf(each),
                             heldElement(each.element));
}

// Partial results with others.
SmallVector<Value> Reducer::combineAll(EmitScope &level, OpBuilder &b,
                                       ValueRange xs, ValueRange ys) const {
  Location loc = level.loc();
  SmallVector<Value> results, left(xs), right(ys);
  for (unsigned i = 0; i < nodes.size(); ++i) {
    if (std::optional<unsigned> maximum = maximumOf(i)) {
      Value both = results[*maximum];
      left[i] = rescale(b, loc, xs[i], xs[*maximum], both);
      right[i] = rescale(b, loc, ys[i], ys[*maximum], both);
    }
    results.push_back(
        combine(b, loc, kindOf(node(level, i)), left[i], right[i]));
  }
  return results;
}

// Partial results with operands.
SmallVector<Value> Reducer::accumulate(EmitScope &level, OpBuilder &b,
                                       ValueRange sums,
                                       ValueRange operands) const {
  SmallVector<Value> results;
  for (unsigned i = 0; i < nodes.size(); ++i) {
    std::optional<unsigned> maximum = maximumOf(i);
    results.push_back(maximum ? addExponential(b, level.loc(), sums[i],
                                               sums[*maximum], operands[i])
                              : combine(b, level.loc(), kindOf(node(level, i)),
                                        sums[i], operands[i]));
  }
  return results;
}

// Partial results of operands alone.
SmallVector<Value> Reducer::firstOf(EmitScope &level,
                                    ValueRange operands) const {
  OpBuilder &b = level.builder;
  SmallVector<Value> results(operands);
  for (unsigned i = 0; i < nodes.size(); ++i)
    if (std::optional<unsigned> maximum = maximumOf(i)) {
      Value least =
          spread(b, level.loc(), neutralOf(level, *maximum), operands[i]);
      Value &bounded = results[*maximum];
      bounded = b.create<arith::MaximumFOp>(level.loc(), operands[i], least);
      results[i] = b.create<math::ExpOp>(
          level.loc(),
          b.create<arith::SubFOp>(level.loc(), operands[i], bounded));
    }
  return results;
}

// Combines the elements of each tile in `tiles` with its scalar.
SmallVector<Value> Reducer::fold(EmitScope &level, ValueRange tiles,
                                 ValueRange scalars) const {
  OpBuilder &b = level.builder;
  SmallVector<Value> reduced;
  for (unsigned i = 0; i < nodes.size(); ++i) {
    Value tile = tiles[i];
    if (std::optional<unsigned> maximum = maximumOf(i))
      tile = rescale(b, level.loc(), tile, tiles[*maximum], reduced[*maximum]);
    reduced.push_back(reduceTile(b, level.loc(), kindOf(node(level, i)), tile));
  }
  return combineAll(level, b, scalars, reduced);
}

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
      Value scalar = neutralOf(level, i % nodes.size());
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
    next.append(accumulate(level, tile.builder,
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
              results = fold(tile, firstOf(tile, emitOperands(tile)), results);
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
                    llvm::function_ref<void(EmitScope &)> leave,
                    const OnlineSums &online) {
  Reducer reducer{nodes, target, enter, leave, online};
  SmallVector<Value> begin(scalars);
  if (!online.empty())
    for (unsigned i = 0; i < nodes.size(); ++i)
      begin[i] = reducer.neutralOf(level, i);
  return reducer.over(level, dim, begin);
}
