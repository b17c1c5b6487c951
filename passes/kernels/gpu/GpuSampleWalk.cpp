#include "passes/kernels/gpu/GpuSampleWalk.h"
#include "passes/kernels/gpu/InFlight.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::gpu;
using Compare = SampleOps::Compare;
using Values = SampleOps::Values;

// Independent loads of a thread in loops of more.
static constexpr int64_t kAtOnce = 32;

// Adds a tile. The keys are `found` + i × 2^shift.
void SampleWalk::add(Values &sums, Value bits, Value found, Value shift) const {
  Value each = byWeight ? e.units(bits) : e.tileOf(e.i32(1));
  for (auto [i, sum] : llvm::enumerate(sums)) {
    Value step = e.make<arith::ShLIOp>(e.i32(i + 1), shift);
    Value isIn = e.compare(Compare::sge, bits, e.add(found, step));
    sum = e.add(sum, e.select(isIn, each, zero()));
  }
}

// Adds up the threads' sums, and writes those of the part. The last of the
// words is zero.
void SampleWalk::write(ValueRange sums, Value memory) const {
  OpBuilder &b = e.b;
  Values rows(sums);
  rows.push_back(e.tileOf(zero()));
  for (auto [i, sum] : llvm::enumerate(rows))
    b.create<tile::StoreOp>(e.loc, sum, perThread,
                            ValueRange{e.index(i), e.index(0)}, ValueRange(),
                            ArrayRef<int64_t>{1});
  b.create<tile::BarrierOp>(e.loc); // or each iteration would have one
  auto total = e.forRange(
      e.index(0), e.index(kThreadsOfPart), e.index(1), p.ofKeys.tileOf(zero()),
      [&](Value i, ValueRange carried) -> Values {
        Value column = b.create<tile::LoadOp>(
            e.loc, VectorType::get({kKeys}, type), perThread,
            ValueRange{e.index(0), i}, ValueRange(), ArrayRef<int64_t>{0});
        return {p.ofKeys.add(carried[0], column)};
      });
  total.front().getDefiningOp()->setAttr(kUnrollByAttr,
                                         b.getI64IntegerAttr(kAtOnce));
  p.ofKeys.storeTile(total[0], memory, e.mul(p.block, e.index(kKeys)), {});
}

// Of the parts' sums in `memory`, as i64. Threads have a key of some parts
// each, before they have a key of all. Other copies to shared memory have been
// made as well.
Value SampleWalk::total(Value memory) const {
  int64_t words = p.parts * kKeys;
  Value begin = e.mul(p.row, e.index(words));
  auto some = e.forRange(
      e.index(0), e.index(words), e.index(kThreadsOfPart), e.tileOf(zero()),
      [&](Value at, ValueRange carried) -> Values {
        Value bound =
            words % kThreadsOfPart == 0
                ? Value()
                : e.min(e.index(kThreadsOfPart), e.sub(e.index(words), at));
        return {e.add(carried[0], e.loadTile(memory, e.add(begin, at), bound))};
      });
  some.front().getDefiningOp()->setAttr(kUnrollByAttr,
                                        e.b.getI64IntegerAttr(kAtOnce));
  e.storeTile(some[0], perPart, e.index(0), {});
  Value total = p.ofKeys.tileOf(zero());
  for (int64_t i = 0; i < kThreadsOfPart; i += kKeys)
    total = p.ofKeys.add(total, p.ofKeys.loadTile(perPart, e.index(i), {}));
  return byWeight ? total : e.extend(total);
}

// The key that is found, if sums are to reach `need`.
Value SampleWalk::next(Value total, Value found, Value shift,
                       Value need) const {
  Value isEnough = p.ofKeys.compare(Compare::sge, total, need);
  Value steps = p.ofKeys.reduce(p.ofKeys.select(isEnough, e.i32(1), e.i32(0)),
                                tile::ReduceKind::sum);
  return e.add(found, e.make<arith::ShLIOp>(steps, shift));
}
