#include "passes/kernels/gpu/GpuTiles.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <cmath>

using namespace mlir;
using namespace tessera;
using namespace tessera::gpu;

//===--- indices and tiles ------------------------------------------------===//

Value TileBuilder::spread(Value slice, ArrayRef<int64_t> shape,
                          int64_t dim) const {
  auto type = VectorType::get(
      shape, cast<VectorType>(slice.getType()).getElementType());
  return b.create<tile::BroadcastOp>(loc, type, slice, ArrayRef<int64_t>{dim});
}

Value TileBuilder::reduce(Value tile, tile::ReduceKind kind,
                          int64_t dim) const {
  auto type = cast<VectorType>(tile.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape.erase(shape.begin() + dim);
  return b.create<tile::ReduceOp>(
      loc, VectorType::get(shape, type.getElementType()), tile, kind, dim);
}

Value TileBuilder::spreadIndex(Value number, ArrayRef<int64_t> shape) const {
  Value word = b.create<arith::IndexCastOp>(loc, b.getI32Type(), number);
  return b.create<tile::BroadcastOp>(
      loc, VectorType::get(shape, b.getI32Type()), word, ArrayRef<int64_t>());
}

Value TileBuilder::spreadNumber(Value number, ArrayRef<int64_t> shape) const {
  return b.create<tile::BroadcastOp>(loc,
                                     VectorType::get(shape, number.getType()),
                                     number, ArrayRef<int64_t>());
}

Value TileBuilder::iota(Value start, ArrayRef<int64_t> shape,
                        int64_t dim) const {
  return b.create<tile::IotaOp>(loc, VectorType::get(shape, b.getI32Type()),
                                start, dim);
}

Value TileBuilder::toFloat(Value tile) const {
  auto type = cast<VectorType>(tile.getType());
  if (type.getElementType().isF32())
    return tile;
  return b.create<arith::ExtFOp>(loc, type.clone(b.getF32Type()), tile);
}

Value TileBuilder::toElement(Value tile, Type element) const {
  auto type = cast<VectorType>(tile.getType());
  if (type.getElementType() == element)
    return tile;
  return b.create<arith::TruncFOp>(loc, type.clone(element), tile);
}

SmallVector<Value> TileBuilder::unravel(Value rest,
                                        ArrayRef<int64_t> counts) const {
  SmallVector<Value> indices;
  for (auto [i, count] : llvm::enumerate(counts)) {
    bool isLast = i + 1 == counts.size();
    indices.push_back(count == 1 ? index(0) : isLast ? rest : rem(rest, count));
    if (count > 1 && !isLast)
      rest = div(rest, count);
  }
  return indices;
}

//===--- softmax ----------------------------------------------------------===//

// exp2(c (score − maximum)) with c = scale · log2 e. Weights are rounded to
// bf16, or multiplied as tf32: the approximate exp2 is closer than that.
Softmax gpu::softmaxOf(const TileBuilder &e, Value scores, double scale,
                       Value maximum, Value sum) {
  OpBuilder &b = e.b;
  auto exp2 = [&](Value x) {
    return b.create<math::Exp2Op>(e.loc, x, arith::FastMathFlags::afn);
  };
  auto tile = cast<VectorType>(scores.getType()).getShape();
  Softmax result;
  result.maximum = e.reduce(scores, tile::ReduceKind::max, 1);
  if (maximum)
    result.maximum =
        b.create<arith::MaximumFOp>(e.loc, maximum, result.maximum);
  Value factor = e.splat(scale * M_LOG2E, {tile[0]});
  Value shift = b.create<arith::MulFOp>(e.loc, result.maximum, factor);
  if (maximum) {
    Value before = b.create<arith::MulFOp>(e.loc, maximum, factor);
    result.rescale = exp2(b.create<arith::SubFOp>(e.loc, before, shift));
  }
  result.weights = exp2(b.create<math::FmaOp>(
      e.loc, scores, e.splat(scale * M_LOG2E, tile),
      e.spread(b.create<arith::NegFOp>(e.loc, shift), tile, 0)));
  result.sum = e.reduce(result.weights, tile::ReduceKind::sum, 1);
  if (sum)
    result.sum = b.create<arith::AddFOp>(
        e.loc, b.create<arith::MulFOp>(e.loc, sum, result.rescale), result.sum);
  return result;
}

Softmax gpu::softmaxOfSinks(const TileBuilder &e, Value sinks, double scale) {
  ArrayRef<int64_t> shape = cast<VectorType>(sinks.getType()).getShape();
  Softmax result;
  result.maximum =
      e.b.create<arith::MulFOp>(e.loc, sinks, e.splat(1 / scale, shape));
  result.sum = e.splat(1, shape);
  return result;
}

Value gpu::scaleRows(const TileBuilder &e, Value tile, Value factor) {
  auto shape = cast<VectorType>(tile.getType()).getShape();
  return e.b.create<arith::MulFOp>(e.loc, tile, e.spread(factor, shape, 0));
}

//===--- staged operands --------------------------------------------------===//

Staged Staged::make(const TileBuilder &e, int64_t stages, int64_t rows,
                    int64_t columns, Type element) {
  auto space = tile::SharedAttr::get(e.b.getContext(), tile::Layout::swizzled);
  auto type =
      MemRefType::get({stages, rows, columns}, element, AffineMap(), space);
  return {e.b.create<tile::AllocOp>(e.loc, type), rows, columns};
}

void Staged::copyRows(const TileBuilder &e, Value stage, int64_t first,
                      int64_t count, const Source &from) const {
  SmallVector<Value> bounds;
  if (from.rows || from.columns)
    bounds = {from.rows ? from.rows : e.index(count),
              from.columns ? from.columns : e.index(columns)};
  Value zero = e.index(0);
  e.b.create<tile::CopyOp>(e.loc, from.memory, from.indices, memory,
                           ValueRange{stage, e.index(first), zero}, bounds,
                           ArrayRef<int64_t>{count, columns},
                           ArrayRef<int64_t>{from.rowDim, from.columnDim},
                           ArrayRef<int64_t>{1, 2});
}

static Value loadStage(const TileBuilder &e, const Staged &staged, Value stage,
                       ArrayRef<int64_t> shape, ArrayRef<int64_t> along) {
  Type element = cast<MemRefType>(staged.memory.getType()).getElementType();
  Value zero = e.index(0);
  return e.b.create<tile::LoadOp>(e.loc, VectorType::get(shape, element),
                                  staged.memory, ValueRange{stage, zero, zero},
                                  ValueRange(), along);
}

Value Staged::load(const TileBuilder &e, Value stage) const {
  return loadStage(e, *this, stage, {rows, columns}, {1, 2});
}

// Starts the copies of the first stages.
static void fill(const TileBuilder &e, const StageRing &ring) {
  OpBuilder &b = e.b;
  if (ring.fillsInLoop) {
    e.forRange(e.index(0), e.index(ring.stages - 1), 1, {},
               [&](Value step, ValueRange) -> SmallVector<Value> {
                 ring.copy(step);
                 b.create<tile::CommitOp>(e.loc);
                 return {};
               });
    return;
  }
  for (int64_t step = 0; step < ring.stages - 1; ++step) {
    if (step < ring.steps && ring.ownSteps)
      e.ifTrue(
          e.compare(arith::CmpIPredicate::slt, e.index(step), ring.ownSteps),
          [&] { ring.copy(e.index(step)); });
    else if (step < ring.steps)
      ring.copy(e.index(step));
    b.create<tile::CommitOp>(e.loc);
  }
}

Value gpu::sumOverSteps(const TileBuilder &e, const StageRing &ring,
                        VectorType type) {
  OpBuilder &b = e.b;
  fill(e, ring);
  Value zeros = b.create<arith::ConstantOp>(e.loc, b.getZeroAttr(type));
  auto count = [&] {
    return ring.ownSteps ? ring.ownSteps : e.index(ring.steps);
  };
  auto sums =
      e.forRange(e.index(0), count(), 1, zeros,
                 [&](Value step, ValueRange sum) -> SmallVector<Value> {
                   // The stage to multiply has arrived, and no thread reads the
                   // one to fill.
                   b.create<tile::WaitOp>(e.loc, ring.stages - 2);
                   Value next = e.add(step, ring.stages - 1);
                   e.ifTrue(e.compare(arith::CmpIPredicate::slt, next, count()),
                            [&] { ring.copy(next); });
                   b.create<tile::CommitOp>(e.loc);
                   return {ring.add(e.rem(step, ring.stages), sum[0])};
                 });
  return sums[0];
}

Value Staged::loadTransposed(const TileBuilder &e, Value stage) const {
  return loadStage(e, *this, stage, {columns, rows}, {2, 1});
}

int64_t gpu::paddedColumns(int64_t columns) {
  return llvm::alignTo(columns, 16);
}

Type gpu::operandType(Type lhs, Type rhs) {
  if (lhs.isBF16() && rhs.isBF16())
    return lhs;
  return Float32Type::get(lhs.getContext());
}
