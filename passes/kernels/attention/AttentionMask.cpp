#include "passes/kernels/attention/AttentionMask.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

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

Value AttentionMask::beginsRun(Value query) {
  auto compare = [&](arith::CmpIPredicate predicate, Value x, Value y) {
    return e.b.create<arith::CmpIOp>(e.loc, predicate, x, y);
  };
  Value key = firstKeyOf(query),
        before = firstKeyOf(e.max(e.sub(query, e.index(1)), e.index(0)));
  Value offset = e.b.create<arith::RemSIOp>(
      e.loc, e.sub(positionOf(query), key), e.index(e.shape.queryTile));
  Value isNew = e.b.create<arith::OrIOp>(
      e.loc, compare(arith::CmpIPredicate::ne, key, before),
      compare(arith::CmpIPredicate::eq, query, e.index(0)));
  return e.b.create<arith::OrIOp>(
      e.loc, isNew, compare(arith::CmpIPredicate::eq, offset, e.index(0)));
}

// Where the run that begins at `begin` ends: at the next one, or after a tile.
Value AttentionMask::endOfRun(Value begin) {
  // Carried as a word: loops carry no indices.
  auto word = [&](Value x) {
    return e.b.create<arith::IndexCastOp>(e.loc, e.b.getI32Type(), x);
  };
  auto index = [&](Value x) {
    return e.b.create<arith::IndexCastOp>(e.loc, e.b.getIndexType(), x);
  };
  Value limit = e.min(e.index(e.shape.tokens), e.add(begin, e.shape.queryTile));
  auto loop = e.b.create<scf::WhileOp>(
      e.loc, e.b.getI32Type(), ValueRange{word(e.add(begin, 1))},
      [&](OpBuilder &, Location, ValueRange state) {
        Value next = index(state[0]);
        Value isInside = e.b.create<arith::CmpIOp>(
            e.loc, arith::CmpIPredicate::slt, next, limit);
        // Also where it is not, and then of a query that there is.
        Value isNext = beginsRun(e.min(next, e.sub(limit, e.index(1))));
        Value goesOn = e.b.create<arith::SelectOp>(
            e.loc, isNext,
            e.b.create<arith::ConstantOp>(e.loc, e.b.getBoolAttr(false)),
            isInside);
        e.b.create<scf::ConditionOp>(e.loc, goesOn, state);
      },
      [&](OpBuilder &, Location, ValueRange state) {
        Value next = word(e.add(index(state[0]), 1));
        e.b.create<scf::YieldOp>(e.loc, next);
      });
  return index(loop.getResult(0));
}

void AttentionMask::forEachRun(
    Value query, Value queries,
    llvm::function_ref<void(Value, Value, Value)> body) {
  e.forRange(query, e.add(query, queries), 1, [&](Value begin) {
    e.ifTrue(beginsRun(begin), [&] {
      Value end = endOfRun(begin);
      // Possibly before or after all keys.
      Value origin = e.max(firstKeyOf(begin), e.index(0));
      body(begin, e.sub(end, begin), origin);
    });
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
  auto compare = [&](arith::CmpIPredicate predicate, Value x,
                     Value y) -> Value {
    return e.b.create<arith::CmpIOp>(e.loc, predicate, x, y);
  };
  Value crossed;
  auto either = [&](Value condition) {
    crossed = crossed ? e.b.create<arith::OrIOp>(e.loc, crossed, condition)
                      : condition;
  };
  Value at = positionOf(query);
  if (e.shape.causal)
    either(compare(arith::CmpIPredicate::sgt, e.add(key, keys),
                   e.add(lastKeyOf(query), 1)));
  if (e.shape.window > 0)
    either(compare(arith::CmpIPredicate::sge,
                   e.sub(e.add(at, e.shape.queryTile - 1), key),
                   e.index(e.shape.window)));
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
        Value visible = isVisible(e.spread(here, {width}), position, limit);
        Value score = e.loadRow(scores, row, col, width);
        e.storeRow(e.b.create<arith::SelectOp>(e.loc, visible, score,
                                               e.splat(masked, {width})),
                   scores, row, col);
      });
    });
  });
}

// Of pairs of positions, as the mask says; `limit` is the last key of a query.
Value AttentionMask::isVisible(Value key, Value query, Value limit) {
  Value visible;
  auto require = [&](arith::CmpIPredicate predicate, Value x, Value y) {
    Value condition = e.b.create<arith::CmpIOp>(e.loc, predicate, x, y);
    visible = visible ? e.b.create<arith::AndIOp>(e.loc, visible, condition)
                      : condition;
  };
  if (e.shape.causal)
    require(arith::CmpIPredicate::sle, key, limit);
  if (e.shape.window > 0) {
    Value size = e.b.create<arith::ConstantOp>(
        e.loc, DenseElementsAttr::get(cast<VectorType>(key.getType()),
                                      static_cast<int32_t>(e.shape.window)));
    require(arith::CmpIPredicate::slt,
            e.b.create<arith::SubIOp>(e.loc, query, key), size);
  }
  return visible;
}
