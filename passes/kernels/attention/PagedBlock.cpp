#include "passes/kernels/attention/PagedBlock.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace tessera;

Value PagedBlock::view(const AttentionOperand &operand) const {
  Value buffer = tile::KernelOp(kernel).getBuffers()[operand.argument];
  return emitView(b, e.loc, buffer, operand.view);
}

Value PagedBlock::number(const AttentionOperand &operand, ValueRange at) const {
  Value loaded = b.create<memref::LoadOp>(e.loc, view(operand), at);
  return b.create<arith::IndexCastOp>(e.loc, b.getIndexType(), loaded);
}

void PagedBlock::emit() {
  locate();
  start(rowsOf(view(o.query)), sinks());
  auto [begin, end] = visibleKeys();
  e.forRange(begin, end, shape.page,
             [&, end = end](Value keyAt) { add(page(keyAt, end)); });
  Value output = kernel.getBuffers().back();
  finish(rowsOf(emitView(b, e.loc, output, o.output())));
}

// Blocks are ordered by tiles of queries, the last ones, which see the most
// keys, first.
void PagedBlock::locate() {
  int64_t tile = e.shape.queryTile, owners = shape.owners();
  Value block = kernel.getBlockNumber();
  Value tiles = e.index(e.shape.queryTiles() - 1);
  Value rest = e.rem(block, shape.batch * owners);
  batch = e.div(rest, owners);
  owner = e.rem(rest, owners);
  first = e.mul(e.sub(tiles, e.div(block, shape.batch * owners)), tile);
  queries = e.min(e.index(tile), e.sub(e.index(shape.rows()), first));
  kvHead = shape.isDecode() ? owner : e.div(owner, shape.group());
  position = number(o.starts, batch);
  if (!shape.isDecode())
    position = e.add(position, first);
  length = number(o.lengths, batch);
}

// The sinks of the block's rows; null without sinks.
Value PagedBlock::sinks() const {
  if (!o.sinks)
    return {};
  int64_t tile = e.shape.queryTile;
  Value all = view(*o.sinks);
  if (shape.isDecode())
    return e.loadVector(all, e.add(e.mul(owner, shape.group()), first), tile,
                        queries);
  return e.spread(b.create<memref::LoadOp>(e.loc, all, owner), {tile});
}

// From the first page with a key that a query of the block sees.
std::pair<Value, Value> PagedBlock::visibleKeys() const {
  Value begin = e.index(0);
  Value end = shape.isDecode() ? e.add(position, 1) : e.add(position, queries);
  if (shape.window > 0) {
    Value key = e.sub(position, e.index(shape.window - 1));
    key = b.create<arith::MaxSIOp>(e.loc, key, begin);
    begin = e.sub(key, e.rem(key, shape.page));
  }
  return {begin, e.min(end, length)};
}

// The block's rows of a [batch, tokens, heads, head_dim] memory.
Matrix PagedBlock::rowsOf(Value memory) const {
  Value zero = e.index(0);
  if (!shape.isDecode())
    return {memory, {batch, first, owner, zero}, 1, 3};
  Value head = e.add(e.mul(owner, shape.group()), first);
  return {memory, {batch, zero, head, zero}, 2, 3};
}

// Of the keys up to `end` the page from `keyAt` on.
KeyPage PagedBlock::page(Value keyAt, Value end) const {
  Value place = e.div(keyAt, shape.page);
  Value last = e.div(e.sub(end, e.index(1)), shape.page);
  Value at = number(o.table, {batch, place}),
        next = number(o.table, {batch, e.min(e.add(place, 1), last)});
  // As [page, head, token, head_dim]: a head's rows are a matrix.
  auto rowsAt = [&](AttentionOperand operand, Value page) -> Matrix {
    std::swap(operand.view.shape[1], operand.view.shape[2]);
    std::swap(operand.view.strides[1], operand.view.strides[2]);
    return {view(operand), {page, kvHead, e.index(0), e.index(0)}, 2, 3};
  };
  KeyPage page{rowsAt(o.keys, at),
               rowsAt(o.values, at),
               {},
               {},
               keyAt,
               e.min(e.index(shape.page), e.sub(end, keyAt)),
               rowsAt(o.keys, next)};
  if (o.keyScales)
    page.keyScales = rowsAt(*o.keyScales, at);
  if (o.valueScales)
    page.valueScales = rowsAt(*o.valueScales, at);
  return page;
}

Value PagedBlock::isCrossed(const KeyPage &page) const {
  Value keys = e.index(e.shape.keyTile);
  Value last =
      shape.isDecode() ? position : e.add(position, e.shape.queryTile - 1);
  ScoreModifier modifier(e, shape);
  Value endsEarly = e.compare(arith::CmpIPredicate::ne, page.count, keys);
  Value keyEnd = e.add(page.first, keys), firstHidden = e.add(position, 1);
  return modifier.either(
      endsEarly, modifier.isCrossed(page.first, keyEnd, firstHidden, last));
}
