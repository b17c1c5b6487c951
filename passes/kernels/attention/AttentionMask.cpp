#include "passes/kernels/attention/AttentionMask.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/attention/ScoreModifier.h"

using namespace mlir;
using namespace tessera;

Value AttentionMask::positionOf(Value query) {
  return start ? e.add(query, start) : query;
}

AttentionMask::Keys AttentionMask::locate(Value buffer, const View &view,
                                          Value batch) {
  return {buffer, e.add(e.mul(batch, view.strides[0]), view.offset)};
}

void AttentionMask::locateFirst(Value buffer, const View &view, Value batch) {
  first = locate(buffer, view, batch);
}

void AttentionMask::locateLast(Value buffer, const View &view, Value batch) {
  last = locate(buffer, view, batch);
}

Value AttentionMask::keyOf(const Keys &keys, Value query) {
  Value key =
      e.b.create<memref::LoadOp>(e.loc, keys.buffer, e.add(keys.at, query));
  return e.b.create<arith::IndexCastOp>(e.loc, e.b.getIndexType(), key);
}

// The last key that a query sees.
Value AttentionMask::lastKeyOf(Value query) {
  Value own = positionOf(query);
  return last.buffer ? e.max(own, keyOf(last, query)) : own;
}

// Where the run of `query` ends: where the first key is another one, or a tile
// that begins there does.
Value AttentionMask::endOfRun(Value query) {
  Value key = firstKeyOf(query), tile = e.index(e.shape.queryTile);
  // Possibly before its first key.
  Value passed =
      e.b.create<arith::RemSIOp>(e.loc, e.sub(positionOf(query), key), tile);
  passed = e.b.create<arith::RemSIOp>(e.loc, e.add(passed, tile), tile);
  Value limit =
      e.min(e.index(e.shape.tokens), e.add(query, e.sub(tile, passed)));
  Value lastQuery = e.sub(limit, e.index(1));
  auto isOfRun = [&](Value next) -> Value {
    Value isInside = e.isLess(next, limit);
    // Also asked where it is not, and then of a query that there is.
    Value isSame =
        e.b.create<arith::CmpIOp>(e.loc, arith::CmpIPredicate::eq,
                                  firstKeyOf(e.min(next, lastQuery)), key);
    return e.b.create<arith::AndIOp>(e.loc, isInside, isSame);
  };
  return e.whileTrue(e.add(query, 1), isOfRun,
                     [&](Value next) { return e.add(next, 1); });
}

// The first query from `query` on that sees no key that queries before it see,
// nor the same first one; `limit`, if there is none before it.
Value AttentionMask::nextDocument(Value query, Value limit) {
  Value zero = e.index(0), tokens = e.index(e.shape.tokens);
  auto isWithin = [&](Value next) -> Value {
    // Also asked of the end, and then of a query that there is.
    Value own = e.min(next, e.sub(tokens, e.index(1))),
          before = e.max(e.sub(own, e.index(1)), zero);
    Value reached = e.max(lastKeyOf(before), firstKeyOf(before));
    Value isNew = e.isLess(reached, firstKeyOf(own));
    Value isJoined = e.b.create<arith::SelectOp>(
        e.loc, isNew,
        e.b.create<arith::ConstantOp>(e.loc, e.b.getBoolAttr(false)),
        e.isLess(zero, own));
    return e.b.create<arith::AndIOp>(e.loc, e.isLess(next, limit), isJoined);
  };
  return e.whileTrue(query, isWithin,
                     [&](Value next) { return e.add(next, 1); });
}

// The number of keys of documents before that of `query`: 0 of query 0, all of
// the end.
Value AttentionMask::keysBefore(Value query) {
  Value zero = e.index(0), tokens = e.index(e.shape.tokens),
        keys = e.index(e.shape.keys);
  Value first = firstKeyOf(e.min(query, e.sub(tokens, e.index(1))));
  first = e.min(e.max(first, zero), keys); // possibly outside of the keys
  first =
      e.b.create<arith::SelectOp>(e.loc, e.isLess(query, tokens), first, keys);
  return e.b.create<arith::SelectOp>(e.loc, e.isLess(zero, query), first, zero);
}

void AttentionMask::forEachDocument(
    Value query, Value queries,
    llvm::function_ref<void(Value, Value, Value, Value)> body) {
  Value end = e.add(query, queries);
  e.whileTrue(
      nextDocument(query, end),
      [&](Value begin) { return e.isLess(begin, end); },
      [&](Value begin) {
        Value next = nextDocument(e.add(begin, 1), e.index(e.shape.tokens));
        Value key = keysBefore(begin);
        body(begin, e.sub(next, begin), key, e.sub(keysBefore(next), key));
        return next;
      });
}

void AttentionMask::forEachRun(
    Value query, Value queries,
    llvm::function_ref<void(Value, Value, Value)> body) {
  // The run of the query before ends at the first one that begins here.
  Value zero = e.index(0), before = e.max(e.sub(query, e.index(1)), zero);
  Value first = e.b.create<arith::SelectOp>(e.loc, e.isLess(zero, query),
                                            endOfRun(before), zero);
  Value end = e.add(query, queries);
  e.whileTrue(
      first, [&](Value begin) { return e.isLess(begin, end); },
      [&](Value begin) {
        Value next = endOfRun(begin);
        // Possibly before or after all keys.
        Value origin = e.max(firstKeyOf(begin), zero);
        body(begin, e.sub(next, begin), origin);
        return next;
      });
}

// If queries have a start, the end is that of a tile of keys or of all: tiles
// have static remainders, and the mask hides the rest. Those of runs have not.
std::pair<Value, Value> AttentionMask::visibleKeys(Value query, Value queries,
                                                   Value origin) {
  Value end = e.index(e.shape.keys), begin = e.index(0), at = positionOf(query);
  if (e.shape.causal && !start && !last.buffer)
    end = e.add(query, queries);
  if (e.shape.causal && (start || last.buffer)) {
    Value seen = e.add(lastKeyOf(e.sub(e.add(query, queries), e.index(1))), 1);
    seen = e.max(seen, e.index(0));
    if (!origin) {
      Value tiles = e.b.create<arith::DivUIOp>(
          e.loc, e.add(seen, e.shape.keyTile - 1), e.index(e.shape.keyTile));
      seen = e.mul(tiles, e.shape.keyTile);
    }
    end = e.min(end, seen);
  }
  if (origin)
    begin = origin;
  if (e.shape.window > 0) {
    Value seen = e.max(e.sub(at, e.index(e.shape.window - 1)), begin);
    Value skipped = origin ? e.sub(seen, origin) : seen;
    begin = e.sub(seen, e.b.create<arith::RemUIOp>(e.loc, skipped,
                                                   e.index(e.shape.keyTile)));
  }
  return {begin, end};
}

void AttentionMask::hide(const Matrix &scores, Value key, Value keys,
                         Value query, Value queries, double masked) {
  if (!e.shape.causal && e.shape.window == 0)
    return;
  // Only tiles that the diagonal or the window's edge crosses hold any; a run
  // of queries sees all keys from its first one on.
  ScoreModifier modifier(e, e.shape);
  Value at = positionOf(query), keyEnd = e.add(key, keys),
        firstHidden = e.add(lastKeyOf(query), 1),
        lastQuery = e.add(at, e.shape.queryTile - 1);
  Value crossed = modifier.isCrossed(key, keyEnd, firstHidden, lastQuery);
  e.ifTrue(crossed, [&] {
    e.forQueries(queries, [&](Value col, int64_t width) {
      auto ints = VectorType::get({width}, e.b.getI32Type());
      Value position = e.b.create<tile::IotaOp>(e.loc, ints, e.add(at, col), 0);
      Value limit = position;
      if (last.buffer)
        limit = e.b.create<arith::MaxSIOp>(
            e.loc, position,
            e.b.create<tile::LoadOp>(
                e.loc, ints, last.buffer,
                ValueRange(e.add(last.at, e.add(query, col))),
                ValueRange(e.remainingQueries(queries, col, width)),
                ArrayRef<int64_t>{0}));
      e.forRange(e.index(0), keys, 1, [&](Value row) {
        Value here = e.b.create<arith::IndexCastOp>(e.loc, e.b.getI32Type(),
                                                    e.add(key, row));
        Value visible =
            modifier.isVisible(e.spread(here, {width}), position, limit);
        Value score = e.loadRow(scores, row, col, width);
        e.storeRow(e.b.create<arith::SelectOp>(e.loc, visible, score,
                                               e.splat(masked, {width})),
                   scores, row, col);
      });
    });
  });
}
