#include "passes/kernels/contraction/GroupedRows.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/bit.h"

using namespace mlir;
using namespace tessera;

namespace {
/// Index arithmetic.
struct Arithmetic {
  OpBuilder &b;
  Location loc;

  Value index(int64_t value) {
    return b.create<arith::ConstantIndexOp>(loc, value);
  }
  Value add(Value x, Value y) { return b.create<arith::AddIOp>(loc, x, y); }
  Value sub(Value x, Value y) { return b.create<arith::SubIOp>(loc, x, y); }
  Value div(Value x, int64_t y) {
    return b.create<arith::DivUIOp>(loc, x, index(y));
  }
  Value min(Value x, int64_t y) {
    return b.create<arith::MinSIOp>(loc, x, index(y));
  }
  Value compare(arith::CmpIPredicate predicate, Value x, Value y) {
    return b.create<arith::CmpIOp>(loc, predicate, x, y);
  }
  Value select(Value condition, Value x, Value y) {
    return b.create<arith::SelectOp>(loc, condition, x, y);
  }
};
} // namespace

Value tessera::emitLoadIndex(OpBuilder &b, Location loc, Value memory,
                             Value index) {
  Value word = b.create<memref::LoadOp>(loc, memory, index);
  return b.create<arith::IndexCastOp>(loc, b.getIndexType(), word);
}

Value tessera::emitClamp(OpBuilder &b, Location loc, Value value,
                         int64_t limit) {
  Arithmetic a{b, loc};
  value = a.min(value, limit);
  return b.create<arith::MaxSIOp>(loc, value, a.index(0));
}

SlotRows tessera::emitSlotRows(OpBuilder &b, Location loc, Value offsets,
                               Value slot, int64_t groups, int64_t rows,
                               int64_t size) {
  Arithmetic a{b, loc};
  auto begins = [&](Value group) {
    return emitLoadIndex(b, loc, offsets, group);
  };
  bool areRows = slotsAreRows(rows, size, groups);
  auto firstSlot = [&](Value begin, Value group) {
    return areRows ? begin : a.add(a.div(begin, size), group);
  };
  // The last group whose first slot is not after this one, by binary search in
  // steps of powers of two.
  int64_t step = llvm::bit_floor(static_cast<uint64_t>(groups));
  int64_t iterations = llvm::bit_width(static_cast<uint64_t>(groups));
  auto word = [&](Value index) -> Value {
    return b.create<arith::IndexCastOp>(loc, b.getI32Type(), index);
  };
  auto wide = [&](Value word) -> Value {
    return b.create<arith::IndexCastOp>(loc, b.getIndexType(), word);
  };
  auto constant = [&](int64_t value) -> Value {
    return b.create<arith::ConstantOp>(loc, b.getI32IntegerAttr(value));
  };
  auto search =
      b.create<scf::ForOp>(loc, a.index(0), a.index(iterations), a.index(1),
                           ValueRange{constant(0), constant(step)});
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(search.getBody());
    Value low = search.getRegionIterArgs()[0],
          width = search.getRegionIterArgs()[1];
    Value next = wide(a.add(low, width));
    Value read = a.min(next, groups); // nothing follows the last group
    Value isBefore = a.compare(arith::CmpIPredicate::sle,
                               firstSlot(begins(read), read), slot);
    Value exists = a.compare(arith::CmpIPredicate::sle, next, a.index(groups));
    Value take = b.create<arith::AndIOp>(loc, isBefore, exists);
    Value half = b.create<arith::ShRSIOp>(loc, width, constant(1));
    b.create<scf::YieldOp>(loc,
                           ValueRange{a.select(take, word(next), low), half});
  }
  Value group = wide(search.getResult(0));
  Value begin = begins(group);
  Value isOwned = a.compare(arith::CmpIPredicate::slt, group, a.index(groups));
  Value following = a.min(a.add(group, a.index(1)), groups);
  Value end = a.select(isOwned, begins(following), a.index(rows));
  Value number = a.sub(slot, firstSlot(begin, group));
  SlotRows tile;
  if (areRows) {
    tile.start = slot;
    Value place = b.create<arith::RemUIOp>(loc, number, a.index(size));
    Value isFirst = a.compare(arith::CmpIPredicate::eq, place, a.index(0));
    tile.all = a.select(isFirst, emitClamp(b, loc, a.sub(end, slot), size),
                        a.index(0));
  } else {
    tile.start =
        a.add(begin, b.create<arith::MulIOp>(loc, number, a.index(size)));
    tile.all = emitClamp(b, loc, a.sub(end, tile.start), size);
  }
  tile.owned = a.select(isOwned, tile.all, a.index(0));
  tile.group = a.min(group, groups - 1);
  return tile;
}
