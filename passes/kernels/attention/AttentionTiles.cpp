#include "passes/kernels/attention/AttentionTiles.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/ClusterLaunch.h"

using namespace mlir;
using namespace tessera;

//===--- indices and constants --------------------------------------------===//

Value AttentionEmitter::index(int64_t value) {
  return b.create<arith::ConstantIndexOp>(loc, value);
}
Value AttentionEmitter::add(Value x, Value y) {
  return b.create<arith::AddIOp>(loc, x, y);
}
Value AttentionEmitter::sub(Value x, Value y) {
  return b.create<arith::SubIOp>(loc, x, y);
}
Value AttentionEmitter::mul(Value x, int64_t y) {
  return b.create<arith::MulIOp>(loc, x, index(y));
}
Value AttentionEmitter::min(Value x, Value y) {
  return b.create<arith::MinSIOp>(loc, x, y);
}
Value AttentionEmitter::max(Value x, Value y) {
  return b.create<arith::MaxSIOp>(loc, x, y);
}

Value AttentionEmitter::splat(double value, ArrayRef<int64_t> sizes) {
  auto type = VectorType::get(sizes, b.getF32Type());
  return b.create<arith::ConstantOp>(
      loc, DenseElementsAttr::get(type, static_cast<float>(value)));
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

Value AttentionEmitter::loadRow(const Matrix &m, Value row, int64_t col,
                                int64_t cols) {
  auto type = VectorType::get({cols}, elementOf(m.memory));
  return toF32(b.create<tile::LoadOp>(loc, type, m.memory,
                                      at(m, row, index(col)), ValueRange(),
                                      ArrayRef<int64_t>{m.colDim}));
}

void AttentionEmitter::storeRow(Value tile, const Matrix &m, Value row,
                                int64_t col) {
  b.create<tile::StoreOp>(loc, toElement(b, loc, tile, elementOf(m.memory)),
                          m.memory, at(m, row, index(col)), ValueRange(),
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

void AttentionEmitter::forRange(Value begin, Value end, int64_t step,
                                llvm::function_ref<void(Value)> body) {
  auto loop = b.create<scf::ForOp>(loc, begin, end, index(step));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(loop.getBody()->getTerminator());
  body(loop.getInductionVar());
}

void AttentionEmitter::ifTrue(Value condition,
                              llvm::function_ref<void()> body) {
  auto branch = b.create<scf::IfOp>(loc, condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenBlock()->getTerminator());
  body();
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

void AttentionEmitter::forColumns(
    int64_t cols, int64_t width,
    llvm::function_ref<void(int64_t, int64_t)> body) {
  int64_t col = 0;
  for (; col + width <= cols; col += width)
    body(col, width);
  for (int64_t rest : remainderTiles(cols, width, target.lanes)) {
    body(col, rest);
    col += rest;
  }
}

//===--- products and copies ----------------------------------------------===//

void AttentionEmitter::multiply(const Matrix &a, const Matrix &bMatrix,
                                const Matrix &c, Value rows, int64_t total,
                                int64_t cols, Value depth, bool accumulate) {
  forRows(rows, microRows(), total, [&](Value i, int64_t height) {
    forColumns(cols, microCols(), [&](int64_t j, int64_t width) {
      Value col = index(j);
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
    forColumns(cols, 4 * target.lanes, [&](int64_t col, int64_t width) {
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
    forColumns(cols, 4 * target.lanes, [&](int64_t col, int64_t width) {
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
    forColumns(cols, side, [&](int64_t col, int64_t width) {
      Value tile = load(from, row, index(col), height, width);
      Value transposed = b.create<tile::TransposeOp>(
          loc, VectorType::get({width, height}, b.getF32Type()), tile);
      store(transposed, to, index(col), row);
    });
  });
}

//===--- the mask ---------------------------------------------------------===//

Value AttentionEmitter::positionOf(Value query) {
  return start ? add(query, start) : query;
}

void AttentionEmitter::locateFirst(Value buffer, const View &view,
                                   Value batch) {
  first = buffer;
  firstAt = add(mul(batch, view.strides[0]), view.offset);
}

Value AttentionEmitter::firstKeyOf(Value query) {
  Value key = b.create<memref::LoadOp>(loc, first, add(firstAt, query));
  return b.create<arith::IndexCastOp>(loc, b.getIndexType(), key);
}

Value AttentionEmitter::beginsRun(Value query) {
  auto compare = [&](arith::CmpIPredicate predicate, Value x, Value y) {
    return b.create<arith::CmpIOp>(loc, predicate, x, y);
  };
  Value key = firstKeyOf(query),
        before = firstKeyOf(max(sub(query, index(1)), index(0)));
  Value offset = b.create<arith::RemSIOp>(loc, sub(positionOf(query), key),
                                          index(shape.queryTile));
  Value isNew = b.create<arith::OrIOp>(
      loc, compare(arith::CmpIPredicate::ne, key, before),
      compare(arith::CmpIPredicate::eq, query, index(0)));
  return b.create<arith::OrIOp>(
      loc, isNew, compare(arith::CmpIPredicate::eq, offset, index(0)));
}

void AttentionEmitter::forEachRun(
    Value query, Value queries,
    llvm::function_ref<void(Value, Value, Value)> body) {
  forRange(query, add(query, queries), 1, [&](Value begin) {
    ifTrue(beginsRun(begin), [&] {
      // Carried as a word: loops carry no indices.
      auto word = [&](Value x) {
        return b.create<arith::IndexCastOp>(loc, b.getI32Type(), x);
      };
      Value limit = min(index(shape.tokens), add(begin, shape.queryTile));
      auto loop = b.create<scf::ForOp>(loc, add(begin, 1), limit, index(1),
                                       ValueRange{word(limit)});
      {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToEnd(loop.getBody());
        Value next = loop.getInductionVar(), end = loop.getRegionIterArg(0);
        Value sooner = b.create<arith::MinSIOp>(loc, end, word(next));
        end = b.create<arith::SelectOp>(loc, beginsRun(next), sooner, end);
        b.create<scf::YieldOp>(loc, end);
      }
      Value end = b.create<arith::IndexCastOp>(loc, b.getIndexType(),
                                               loop.getResult(0));
      // Possibly before or after all keys.
      Value origin = max(firstKeyOf(begin), index(0));
      body(begin, sub(end, begin), origin);
    });
  });
}

Value AttentionEmitter::wholeRows(Value count) {
  Value tiles = b.create<arith::DivUIOp>(loc, add(count, microRows() - 1),
                                         index(microRows()));
  return mul(tiles, microRows());
}

// If queries have a start, the end is that of a tile of keys or of all: tiles
// have static remainders, and the mask hides the rest. Those of runs have not.
std::pair<Value, Value>
AttentionEmitter::visibleKeys(Value query, Value queries, Value origin) {
  Value end = index(shape.keys), begin = index(0), at = positionOf(query);
  if (shape.causal && !start)
    end = add(query, queries);
  if (shape.causal && start) {
    Value seen = max(add(at, queries), index(0));
    if (!origin) {
      Value tiles = b.create<arith::DivUIOp>(loc, add(seen, shape.keyTile - 1),
                                             index(shape.keyTile));
      seen = mul(tiles, shape.keyTile);
    }
    end = min(end, seen);
  }
  if (origin)
    begin = origin;
  if (shape.window > 0) {
    Value seen = max(sub(at, index(shape.window - 1)), begin);
    Value skipped = origin ? sub(seen, origin) : seen;
    begin =
        sub(seen, b.create<arith::RemUIOp>(loc, skipped, index(shape.keyTile)));
  }
  return {begin, end};
}

// scale × score becomes cap tanh(scale × score / cap).
void AttentionEmitter::capScores(const Matrix &scores, Value keys) {
  if (shape.cap == 0)
    return;
  int64_t tile = shape.queryTile;
  Value in = splat(shape.scale / shape.cap, {tile}),
        out = splat(shape.cap / shape.scale, {tile});
  forRange(index(0), keys, 1, [&](Value row) {
    Value part =
        b.create<arith::MulFOp>(loc, loadRow(scores, row, 0, tile), in);
    Value bounded = b.create<math::TanhOp>(loc, part);
    storeRow(b.create<arith::MulFOp>(loc, bounded, out), scores, row, 0);
  });
}

void AttentionEmitter::maskScores(const Matrix &scores, Value key, Value keys,
                                  Value query, double masked) {
  if (!shape.causal && shape.window == 0)
    return;
  // Only tiles that the diagonal or the window's edge crosses hold any; a run
  // of queries sees all keys from its first one on.
  int64_t queries = shape.queryTile;
  auto compare = [&](arith::CmpIPredicate predicate, Value x,
                     Value y) -> Value {
    return b.create<arith::CmpIOp>(loc, predicate, x, y);
  };
  Value crossed;
  auto either = [&](Value condition) {
    crossed =
        crossed ? b.create<arith::OrIOp>(loc, crossed, condition) : condition;
  };
  query = positionOf(query);
  if (shape.causal)
    either(compare(arith::CmpIPredicate::sgt, add(key, keys), add(query, 1)));
  if (shape.window > 0)
    either(compare(arith::CmpIPredicate::sge, sub(add(query, queries - 1), key),
                   index(shape.window)));
  auto ints = VectorType::get({queries}, b.getI32Type());
  ifTrue(crossed, [&] {
    Value position = b.create<tile::IotaOp>(loc, ints, query, 0);
    forRange(index(0), keys, 1, [&](Value row) {
      Value here =
          b.create<arith::IndexCastOp>(loc, b.getI32Type(), add(key, row));
      Value keyPosition = spread(here, {queries});
      Value visible;
      auto require = [&](Value condition) {
        visible = visible ? b.create<arith::AndIOp>(loc, visible, condition)
                          : condition;
      };
      if (shape.causal)
        require(compare(arith::CmpIPredicate::sle, keyPosition, position));
      if (shape.window > 0) {
        Value distance = b.create<arith::SubIOp>(loc, position, keyPosition);
        Value limit = b.create<arith::ConstantOp>(
            loc,
            DenseElementsAttr::get(ints, static_cast<int32_t>(shape.window)));
        require(compare(arith::CmpIPredicate::slt, distance, limit));
      }
      Value score = loadRow(scores, row, 0, queries);
      storeRow(b.create<arith::SelectOp>(loc, visible, score,
                                         splat(masked, {queries})),
               scores, row, 0);
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
tessera::firstOperand(Operation *op, Value first) {
  if (!first)
    return std::optional<AttentionOperand>();
  llvm::Expected<AttentionOperand> operand = attentionOperand(op, first);
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
