#include "passes/kernels/attention/AttentionTiles.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/attention/ScoreModifier.h"

using namespace mlir;
using namespace tessera;

//===--- indices and constants --------------------------------------------===//

Value AttentionEmitter::isLess(Value x, Value y) {
  return compare(arith::CmpIPredicate::slt, x, y);
}

Value AttentionEmitter::spread(Value scalar, ArrayRef<int64_t> sizes) {
  auto type = VectorType::get(sizes, scalar.getType());
  return b.create<tile::BroadcastOp>(loc, type, scalar, ArrayRef<int64_t>());
}

//===--- memory -----------------------------------------------------------===//

Value AttentionEmitter::alloc(ArrayRef<int64_t> sizes) {
  auto space = tile::SharedAttr::get(b.getContext(), tile::Layout::rows);
  auto type = MemRefType::get(sizes, b.getF32Type(),
                              MemRefLayoutAttrInterface(), space);
  return b.create<tile::AllocOp>(loc, type);
}

Matrix AttentionEmitter::matrix(Value memory) {
  Value zero = index(0);
  return {memory, {zero, zero}, 0, 1};
}

SmallVector<Value> AttentionEmitter::at(const Matrix &m, Value row, Value col) {
  SmallVector<Value> indices(m.origin);
  indices[m.rowDim] = add(indices[m.rowDim], row);
  indices[m.colDim] = add(indices[m.colDim], col);
  return indices;
}

Value AttentionEmitter::toF32(Value tile) {
  auto type = cast<VectorType>(tile.getType());
  if (type.getElementType().isF32())
    return tile;
  auto wide = VectorType::get(type.getShape(), b.getF32Type());
  if (isa<IntegerType>(type.getElementType()))
    return b.create<arith::SIToFPOp>(loc, wide, tile);
  return b.create<arith::ExtFOp>(loc, wide, tile);
}

// Column 0 of a row, as f32.
Value AttentionEmitter::loadNumber(const Matrix &m, Value row) {
  Value number = b.create<memref::LoadOp>(loc, m.memory, at(m, row, index(0)));
  if (number.getType().isF32())
    return number;
  return b.create<arith::ExtFOp>(loc, b.getF32Type(), number);
}

static Type elementOf(Value memory) {
  return cast<MemRefType>(memory.getType()).getElementType();
}

Value AttentionEmitter::load(const Matrix &m, Value row, Value col,
                             int64_t rows, int64_t cols) {
  auto type = VectorType::get({rows, cols}, elementOf(m.memory));
  return toF32(b.create<tile::LoadOp>(loc, type, m.memory, at(m, row, col),
                                      ValueRange(),
                                      ArrayRef<int64_t>{m.rowDim, m.colDim}));
}

// Rounds once, on the way to memory.
static Value toElement(OpBuilder &b, Location loc, Value tile, Type element) {
  auto type = cast<VectorType>(tile.getType());
  if (type.getElementType() == element)
    return tile;
  return b.create<arith::TruncFOp>(
      loc, VectorType::get(type.getShape(), element), tile);
}

void AttentionEmitter::store(Value tile, const Matrix &m, Value row,
                             Value col) {
  b.create<tile::StoreOp>(loc, toElement(b, loc, tile, elementOf(m.memory)),
                          m.memory, at(m, row, col), ValueRange(),
                          ArrayRef<int64_t>{m.rowDim, m.colDim});
}

Value AttentionEmitter::loadRow(const Matrix &m, Value row, Value col,
                                int64_t cols) {
  auto type = VectorType::get({cols}, elementOf(m.memory));
  return toF32(b.create<tile::LoadOp>(loc, type, m.memory, at(m, row, col),
                                      ValueRange(),
                                      ArrayRef<int64_t>{m.colDim}));
}

void AttentionEmitter::storeRow(Value tile, const Matrix &m, Value row,
                                Value col) {
  b.create<tile::StoreOp>(loc, toElement(b, loc, tile, elementOf(m.memory)),
                          m.memory, at(m, row, col), ValueRange(),
                          ArrayRef<int64_t>{m.colDim});
}

Value AttentionEmitter::loadVector(Value memory, Value at, int64_t size,
                                   Value bound) {
  auto type = VectorType::get({size}, elementOf(memory));
  return b.create<tile::LoadOp>(loc, type, memory, ValueRange(at),
                                bound ? ValueRange(bound) : ValueRange(),
                                ArrayRef<int64_t>{0});
}

void AttentionEmitter::storeVector(Value tile, Value memory, Value at,
                                   Value bound) {
  b.create<tile::StoreOp>(loc, tile, memory, ValueRange(at),
                          bound ? ValueRange(bound) : ValueRange(),
                          ArrayRef<int64_t>{0});
}

//===--- loops ------------------------------------------------------------===//

Value AttentionEmitter::whileTrue(Value value,
                                  llvm::function_ref<Value(Value)> holds,
                                  llvm::function_ref<Value(Value)> next) {
  // Carried as i32: loops carry no indices.
  auto cast = [&](Value x, Type type) -> Value {
    return b.create<arith::IndexCastOp>(loc, type, x);
  };
  Type index = b.getIndexType(), word = b.getI32Type();
  auto loop = b.create<scf::WhileOp>(
      loc, word, ValueRange{cast(value, word)},
      [&](OpBuilder &, Location, ValueRange state) {
        b.create<scf::ConditionOp>(loc, holds(cast(state[0], index)), state);
      },
      [&](OpBuilder &, Location, ValueRange state) {
        Value then = cast(next(cast(state[0], index)), word);
        b.create<scf::YieldOp>(loc, then);
      });
  return cast(loop.getResult(0), index);
}

void AttentionEmitter::forRows(Value count, int64_t step, int64_t total,
                               llvm::function_ref<void(Value, int64_t)> body) {
  int64_t remainder = total % step;
  if (remainder == 0)
    return forRange(index(0), count, step, [&](Value i) { body(i, step); });
  if (total < step) // then `count` is the whole sequence, at once
    return body(index(0), remainder);
  Value rest = b.create<arith::RemUIOp>(loc, count, index(step));
  Value whole = sub(count, rest);
  forRange(index(0), whole, step, [&](Value i) { body(i, step); });
  Value ragged =
      b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::ne, rest, index(0));
  ifTrue(ragged, [&] { body(whole, remainder); });
}

// The last ones by half the width where that suffices.
void AttentionEmitter::forUsedColumns(
    Columns cols, int64_t width,
    llvm::function_ref<void(Value, int64_t)> body) {
  const int64_t half = width / 2;
  if (half < target.lanes)
    return forRange(index(0), cols.used, width,
                    [&](Value col) { body(col, width); });
  Value groups = b.create<arith::DivUIOp>(loc, add(cols.used, half - 1),
                                          index(width)),
        whole = mul(groups, width);
  forRange(index(0), whole, width, [&](Value col) { body(col, width); });
  Value isMore =
      b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::ult, whole, cols.used);
  ifTrue(isMore, [&] { body(whole, half); });
}

void AttentionEmitter::forColumns(
    Columns cols, int64_t width,
    llvm::function_ref<void(Value, int64_t)> body) {
  if (cols.used)
    return forUsedColumns(cols, std::min(width, cols.all), body);
  int64_t col = 0;
  for (; col + width <= cols.all; col += width)
    body(index(col), width);
  for (int64_t rest : remainderTiles(cols.all, width, target.lanes)) {
    body(index(col), rest);
    col += rest;
  }
}

//===--- products and copies ----------------------------------------------===//

void AttentionEmitter::multiply(const Matrix &a, const Matrix &bMatrix,
                                const Matrix &c, Value rows, int64_t total,
                                Columns cols, Value depth, bool accumulate,
                                Value lastRow) {
  forRows(rows, microRows(), total, [&](Value i, int64_t height) {
    if (lastRow)
      i = min(i, lastRow);
    forColumns(cols, microCols(), [&](Value col, int64_t width) {
      Value init = accumulate ? load(c, i, col, height, width)
                              : splat(0.0, {height, width});
      auto loop = b.create<scf::ForOp>(loc, index(0), depth, index(1), init);
      {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToEnd(loop.getBody());
        Value k = loop.getInductionVar();
        Value x = load(a, i, k, height, 1), y = load(bMatrix, k, col, 1, width);
        Value sum = b.create<tile::MmaOp>(loc, init.getType(), x, y,
                                          loop.getRegionIterArg(0));
        b.create<scf::YieldOp>(loc, sum);
      }
      store(loop.getResult(0), c, i, col);
    });
  });
}

void AttentionEmitter::fillZero(const Matrix &m, Value rows, int64_t cols) {
  forRange(index(0), rows, 1, [&](Value row) {
    forColumns(cols, 4 * target.lanes, [&](Value col, int64_t width) {
      storeRow(splat(0.0, {width}), m, row, col);
    });
  });
}

void AttentionEmitter::copyRows(const Matrix &from, const Matrix &to,
                                Value rows, int64_t cols,
                                const Matrix *scales) {
  forRange(index(0), rows, 1, [&](Value row) {
    Value scale;
    if (scales)
      scale = loadNumber(*scales, row);
    forColumns(cols, 4 * target.lanes, [&](Value col, int64_t width) {
      Value run = loadRow(from, row, col, width);
      if (scale)
        run = b.create<arith::MulFOp>(loc, run, spread(scale, {width}));
      storeRow(run, to, row, col);
    });
  });
}

void AttentionEmitter::copyTransposed(const Matrix &from, const Matrix &to,
                                      Value rows, int64_t total, int64_t cols) {
  int64_t side = target.lanes;
  forRows(rows, side, total, [&](Value row, int64_t height) {
    forColumns(cols, side, [&](Value col, int64_t width) {
      Value tile = load(from, row, col, height, width);
      Value transposed = b.create<tile::TransposeOp>(
          loc, VectorType::get({width, height}, b.getF32Type()), tile);
      store(transposed, to, col, row);
    });
  });
}

//===--- queries as columns -----------------------------------------------===//

Value AttentionEmitter::roundUp(Value count, int64_t step) {
  Value steps =
      b.create<arith::DivUIOp>(loc, add(count, step - 1), index(step));
  return mul(steps, step);
}

void AttentionEmitter::forQueries(
    Value queries, llvm::function_ref<void(Value, int64_t)> body) {
  Columns columns = queryColumns(queries);
  forColumns(columns, columns.used ? microCols() : columns.all, body);
}

Value AttentionEmitter::computedQueries(Value queries) {
  if (!shape.hasFirst)
    return index(shape.queryTile);
  const int64_t width = std::min(microCols(), shape.queryTile),
                half = width / 2;
  return roundUp(queries, half < target.lanes ? width : half);
}

Value AttentionEmitter::remainingQueries(Value queries, Value col,
                                         int64_t width) {
  return shape.hasFirst ? min(sub(queries, col), index(width)) : queries;
}

void AttentionEmitter::capScores(const Matrix &scores, Value keys,
                                 Value queries) {
  if (shape.cap == 0)
    return;
  ScoreModifier modifier(*this, shape);
  forQueries(queries, [&](Value col, int64_t width) {
    forRange(index(0), keys, 1, [&](Value row) {
      storeRow(modifier.bound(loadRow(scores, row, col, width)), scores, row,
               col);
    });
  });
}

//===--- clusters ---------------------------------------------------------===//

llvm::Expected<AttentionOperand> tessera::attentionOperand(Operation *op,
                                                           Value value) {
  std::optional<View> view = traceView(value);
  std::string where;
  llvm::raw_string_ostream(where) << op->getLoc();
  if (!view)
    return llvm::createStringError(
        where + ": an operand of attention is not a view of a cluster input; "
                "fusion must keep its computation outside the cluster");
  for (auto [stride, size] : llvm::zip_equal(view->strides, view->shape))
    if (stride == 0 && size > 1)
      return llvm::createStringError(
          where + ": an operand of attention is a broadcast; fusion must keep "
                  "it outside the cluster");
  if (view->strides.back() != 1 && view->shape.back() != 1)
    return llvm::createStringError(
        where + ": the head dimension of attention must be contiguous");
  return AttentionOperand{cast<BlockArgument>(view->base).getArgNumber(),
                          *view};
}

AttentionStart tessera::attentionStart(Value start) {
  if (!start)
    return {};
  return {cast<BlockArgument>(start).getArgNumber(), true};
}

llvm::Expected<std::optional<AttentionOperand>>
tessera::optionalOperand(Operation *op, Value value) {
  if (!value)
    return std::optional<AttentionOperand>();
  llvm::Expected<AttentionOperand> operand = attentionOperand(op, value);
  if (!operand)
    return operand.takeError();
  return std::optional(*operand);
}

Value tessera::loadStart(OpBuilder &b, Location loc, Value buffer) {
  Value zero = b.create<arith::ConstantIndexOp>(loc, 0);
  Value loaded = b.create<memref::LoadOp>(loc, buffer, zero);
  return b.create<arith::IndexCastOp>(loc, b.getIndexType(), loaded);
}

Matrix tessera::headMatrix(AttentionEmitter &e, Value buffer, const View &view,
                           Value batch, Value token, Value head) {
  Value memory = emitView(e.b, e.loc, buffer, view);
  return {memory, {batch, token, head, e.index(0)}, 1, 3};
}

LaunchSpec tessera::attentionLaunch(graph::ClusterOp cluster,
                                    tile::Skeleton skeleton, int64_t blocks) {
  LaunchSpec spec;
  spec.name = cluster.getName().str();
  spec.skeleton = skeleton;
  spec.summary = summarize(cluster);
  spec.flops = cluster.getFlops();
  for (Value input : cluster.getInputs()) {
    spec.buffers.push_back(bufferType(input.getType()));
    spec.access.push_back(tile::Access::read);
  }
  for (Value result : cluster.getResults()) {
    spec.buffers.push_back(bufferType(result.getType()));
    spec.access.push_back(tile::Access::write);
  }
  spec.blocks = blocks;
  spec.key = bodyKey(cluster);
  return spec;
}
