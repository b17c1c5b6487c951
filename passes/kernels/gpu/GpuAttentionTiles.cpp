#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/attention/ScoreModifier.h"
#include "passes/kernels/gpu/GpuAttention.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::gpu;

//===--- blocks -----------------------------------------------------------===//

// The number of heads, among those of all batches, that blocks process at a
// time: all, or a divisor such that the L2 cache holds their operands (an
// H200's has 50 MB).
static int64_t headsInGroup(int64_t count, int64_t bytes) {
  constexpr int64_t kKept = 32 << 20;
  int64_t group = count;
  while (group > 1 && (group * bytes > kKept || count % group))
    --group;
  return group;
}

std::pair<Value, Value> GpuAttention::locate(Value block, Side own, Side other,
                                             int64_t rows, bool lastFirst) {
  int64_t heads = own.heads, tiles = llvm::divideCeil(own.rows, rows);
  // The operands that a block walks over: two of all heads of the other kind.
  int64_t bytes = 2 * other.rows * shape.headDim * other.heads *
                  element.getIntOrFloatBitWidth() / 8,
          count = shape.batch * heads,
          group = headsInGroup(count, bytes / heads);
  SmallVector<Value> at = e.unravel(block, {group, tiles, count / group});
  Value number = e.add(e.mul(at[2], group), at[0]);
  batch = shape.batch == 1 ? e.index(0) : e.div(number, heads);
  Value head = shape.batch == 1 ? number : e.rem(number, heads);
  Value tile = lastFirst ? e.sub(e.index(tiles - 1), at[1]) : at[1];
  return {head, e.mul(tile, rows)};
}

//===--- memory -----------------------------------------------------------===//

Value GpuAttention::rest(Value row, int64_t count, int64_t tile) const {
  return count % tile ? e.sub(e.index(count), row) : Value();
}

Source GpuAttention::head(Value buffer, const View &view, Value token,
                          Value head, int64_t rows) const {
  Value columns = sizes.dim > shape.headDim ? e.index(shape.headDim) : Value();
  return {emitView(e.b, e.loc, buffer, view),
          {batch, token, head, e.index(0)},
          1,
          3,
          rest(token, view.shape[1], rows),
          columns};
}

void GpuAttention::store(Value tile, const Source &to) const {
  Type memory = cast<MemRefType>(to.memory.getType()).getElementType();
  auto type = cast<VectorType>(tile.getType());
  SmallVector<Value> bounds;
  if (to.rows || to.columns)
    bounds = {to.rows ? to.rows : e.index(type.getDimSize(0)),
              to.columns ? to.columns : e.index(type.getDimSize(1))};
  e.b.create<tile::StoreOp>(e.loc, e.toElement(tile, memory), to.memory,
                            to.indices, bounds,
                            ArrayRef<int64_t>{to.rowDim, to.columnDim});
}

Value GpuAttention::loadVector(Value buffer, Value at, int64_t size,
                               Value token) const {
  SmallVector<Value> bounds;
  if (Value valid = rest(token, shape.tokens, size))
    bounds.push_back(valid);
  Type element = cast<MemRefType>(buffer.getType()).getElementType();
  return e.b.create<tile::LoadOp>(e.loc, VectorType::get({size}, element),
                                  buffer, ValueRange(e.add(at, token)), bounds,
                                  ArrayRef<int64_t>{0});
}

void GpuAttention::storeVector(Value slice, Value buffer, Value at,
                               Value token) const {
  int64_t size = cast<VectorType>(slice.getType()).getDimSize(0);
  SmallVector<Value> bounds;
  if (Value valid = rest(token, shape.tokens, size))
    bounds.push_back(valid);
  e.b.create<tile::StoreOp>(e.loc, slice, buffer, ValueRange(e.add(at, token)),
                            bounds, ArrayRef<int64_t>{0});
}

Value GpuAttention::multiply(Value lhs, Value rhs, Value sum) const {
  return e.b.create<tile::MmaOp>(e.loc, sum.getType(), lhs, rhs, sum);
}

void GpuAttention::commit() const { e.b.create<tile::CommitOp>(e.loc); }
void GpuAttention::wait() const { e.b.create<tile::WaitOp>(e.loc, 0); }

//===--- visibility -------------------------------------------------------===//

// Where what [B, T] says of query 0 of the block's sequence is.
Value GpuAttention::rowOf(const View &view) const {
  return e.add(e.mul(batch, view.strides[0]), view.offset);
}

Value GpuAttention::keyOf(Value query, Value keys, const View &view) const {
  Value key =
      e.b.create<memref::LoadOp>(e.loc, keys, e.add(rowOf(view), query));
  return e.b.create<arith::IndexCastOp>(e.loc, e.b.getIndexType(), key);
}

// The last key that a query sees.
Value GpuAttention::lastKeyOf(Value query) const {
  Value own = positionOf(query);
  return last ? e.b.createOrFold<arith::MaxSIOp>(e.loc, own,
                                                 keyOf(query, last, lastView))
              : own;
}

// How many queries `isOne` holds for, which are the first ones: a binary
// search.
Value GpuAttention::countQueries(function_ref<Value(Value)> isOne) const {
  Value all = e.index(shape.tokens);
  int64_t steps = llvm::Log2_64_Ceil(shape.tokens + 1);
  auto found = e.forRange(
      e.index(0), e.index(steps), 1,
      {e.index(0), e.index(int64_t(1) << (steps - 1))},
      [&](Value, ValueRange state) -> SmallVector<Value> {
        Value next = e.min(e.add(state[0], state[1]), all);
        Value holds = isOne(e.sub(next, e.index(1)));
        return {e.b.create<arith::SelectOp>(e.loc, holds, next, state[0]),
                e.div(state[1], 2)};
      });
  return found[0];
}

// Kernels load the first tile before they know whether there is any.
std::pair<Value, Value> GpuAttention::atLeastOne(Value begin, Value end,
                                                 int64_t rows,
                                                 int64_t tile) const {
  if (!start)
    return {begin, end};
  begin = e.min(begin, e.index((rows - 1) / tile * tile));
  return {begin, e.b.createOrFold<arith::MaxSIOp>(e.loc, end, e.add(begin, 1))};
}

std::pair<Value, Value> GpuAttention::visibleKeys(Value query) const {
  Value begin = e.index(0), end = e.index(shape.keys), at = positionOf(query);
  if (last) {
    Value until =
        e.min(e.add(query, sizes.queries - 1), e.index(shape.tokens - 1));
    Value seen = e.add(lastKeyOf(until), 1);
    end = e.b.createOrFold<arith::MinSIOp>(e.loc, end, seen);
  } else if (shape.causal) {
    end = e.min(end, e.add(at, sizes.queries));
  }
  auto notBefore = [&](Value key) {
    begin = e.b.createOrFold<arith::MaxSIOp>(e.loc, key, begin);
  };
  if (shape.window > 0)
    notBefore(e.sub(at, e.index(shape.window - 1)));
  if (first)
    notBefore(firstKeyOf(query));
  if (shape.window > 0 || first)
    begin = e.sub(begin, e.rem(begin, sizes.keys));
  return atLeastOne(begin, end, shape.keys, sizes.keys);
}

std::pair<Value, Value> GpuAttention::visibleQueries(Value key) const {
  Value begin = e.index(0), end = e.index(shape.tokens),
        at = start ? e.sub(key, start) : key;
  if (last) {
    Value from = countQueries([&](Value query) {
      return e.compare(arith::CmpIPredicate::slt, lastKeyOf(query), key);
    });
    begin = e.sub(from, e.rem(from, sizes.queries));
  } else if (shape.causal) {
    Value from = at;
    if (start)
      from = e.b.createOrFold<arith::MaxSIOp>(e.loc, from, e.index(0));
    begin = e.sub(from, e.rem(from, sizes.queries));
  }
  if (shape.window > 0)
    end = e.min(end, e.add(at, sizes.keys + shape.window - 1));
  // The queries that see one of the keys are the last ones of those whose first
  // key is not after them.
  if (first)
    end = e.min(end, countQueries([&](Value query) {
                  return e.compare(arith::CmpIPredicate::sle, firstKeyOf(query),
                                   e.add(key, sizes.keys - 1));
                }));
  return atLeastOne(begin, end, shape.tokens, sizes.queries);
}

// Whether the pair of tiles needs a mask; null if none does.
Value GpuAttention::isCrossed(Value query, Value key) const {
  ScoreModifier modifier(e, shape);
  Value keyEnd = e.add(key, sizes.keys), latest;
  if (first)
    latest = firstKeyOf(
        e.min(e.add(query, sizes.queries - 1), e.index(shape.tokens - 1)));
  Value firstHidden = e.add(lastKeyOf(query), 1),
        lastQuery = e.add(positionOf(query), sizes.queries - 1);
  Value crossed = modifier.isCrossed(key, keyEnd, firstHidden, lastQuery);
  if (shape.keys % sizes.keys)
    crossed = modifier.either(crossed, e.compare(arith::CmpIPredicate::sgt,
                                                 keyEnd, e.index(shape.keys)));
  if (first)
    crossed = modifier.either(
        crossed, e.compare(arith::CmpIPredicate::sgt, latest, key));
  return crossed;
}

Value GpuAttention::mask(Value scores, Value query, Value key, bool keysInRows,
                         double masked) const {
  Value crossed = isCrossed(query, key);
  if (!crossed)
    return scores;
  using Values = KernelOps::Values;
  return e.ifElse(
      crossed, scores.getType(),
      [&]() -> Values {
        return {maskTile(scores, query, key, keysInRows, masked)};
      },
      [&]() -> Values { return {scores}; })[0];
}

Value GpuAttention::maskTile(Value scores, Value query, Value key,
                             bool keysInRows, double masked) const {
  OpBuilder &b = e.b;
  ArrayRef<int64_t> tile = cast<VectorType>(scores.getType()).getShape();
  Value keys = e.iota(key, tile, keysInRows ? 0 : 1),
        queries = e.iota(positionOf(query), tile, keysInRows ? 1 : 0);
  const int64_t dim = keysInRows ? 1 : 0;
  // What [B, T] says of each query of the tile.
  auto ofQueries = [&](Value buffer, const View &view) {
    return loadVector(buffer, rowOf(view), tile[dim], query);
  };
  Value limit = queries;
  if (last) {
    Value own = e.iota(positionOf(query), {tile[dim]}, 0);
    limit = e.spread(
        b.create<arith::MaxSIOp>(e.loc, own, ofQueries(last, lastView)), tile,
        dim);
  }
  ScoreModifier modifier(e, shape);
  Value visible = modifier.isVisible(keys, queries, limit);
  if (shape.keys % sizes.keys)
    visible = modifier.both(
        visible, e.compare(arith::CmpIPredicate::slt, keys,
                           e.spreadIndex(e.index(shape.keys), tile)));
  if (first)
    visible = modifier.both(
        visible, e.compare(arith::CmpIPredicate::sge, keys,
                           e.spread(ofQueries(first, firstView), tile, dim)));
  return b.create<arith::SelectOp>(e.loc, visible, scores,
                                   e.splat(masked, tile));
}

//===--- sizes ------------------------------------------------------------===//

SmallVector<AttentionSizes>
gpu::attentionSizes(const AttentionShape &shape, Type element,
                    int64_t stationary, int64_t most, bool keysStationary,
                    int64_t sharedBytes) {
  int64_t dim = paddedColumns(shape.headDim);
  // A tile of sums takes dim / 2 registers of a thread; f32 operands, each of
  // two halves, need more than bf16 in addition.
  if (dim > (element.isBF16() ? 256 : 128))
    return {};
  int64_t row = dim * element.getIntOrFloatBitWidth() / 8;
  SmallVector<AttentionSizes> sizes;
  for (int64_t own : {64, 32, 16})
    for (int64_t other = most; other >= 16; other /= 2)
      if ((stationary * own + 4 * other) * row <= sharedBytes)
        sizes.push_back(keysStationary ? AttentionSizes{other, own, dim}
                                       : AttentionSizes{own, other, dim});
  return sizes;
}

tile::Engine gpu::engineOfStaged(int64_t rows, Type element,
                                 const TileTarget &target) {
  return target.warpgroups && element.isBF16() && rows % kRowsOfConsumer == 0
             ? tile::Engine::warpgroup
             : tile::Engine::tensor_core;
}

llvm::Error gpu::attentionTooLarge(const AttentionShape &shape) {
  return llvm::createStringError(
      "attention over heads of " + std::to_string(shape.headDim) +
      " dimensions does not fit a block: at most 256 in bf16 and 128 in f32; "
      "compile for cpu");
}
