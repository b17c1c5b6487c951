// The last launch of sampling by parts: the part in whose weights the random
// place falls finds the token there.
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/gpu/GpuSample.h"
#include "passes/kernels/gpu/InFlight.h"
#include "runtime/support/TokenChoice.h"
#include <limits>

using namespace mlir;
using namespace tessera;
using namespace tessera::gpu;
using Compare = SampleOps::Compare;
using Values = SampleOps::Values;

// A thread has neighbouring tokens here, and a group neighbouring threads.
static constexpr int64_t kTokensOfThread = kTilesOfPart, kThreadsOfGroup = 16,
                         kGroups = kThreadsOfPart / kThreadsOfGroup;

namespace {

/// Of some tokens: the sum of the weights above the key, and how many have
/// exactly it; i64.
struct Sums {
  Value above, ties;
};
/// The weight, and the tokens of the least weight, that may precede the token.
struct Sought {
  Value place, ties;
};

class DrawKernel {
public:
  explicit DrawKernel(const SamplePart &part);
  void emit();

private:
  void emitDraw();
  void emitOther();
  Value likeliest(Value best);
  Value leastTies(Value above);
  Value find(Sought sought);
  void sumThreads();
  void sumGroups();
  Value pick(Value count, Sought &sought,
             llvm::function_ref<Sums(Value)> sumsOf);

  const SamplePart &p;
  const SampleOps &e;
  OpBuilder &b;
  Value weights, limits, bests, firsts, drawn, numbers, state; ///< buffers,
  Value keys, sumsAbove, sumsTies, tokens;                     ///< as well
  Value above, ties, aboveOfGroups, tiesOfGroups; ///< shared memory
  Value key, each; ///< the row's least key, and its weight
};

} // namespace

DrawKernel::DrawKernel(const SamplePart &part) : p(part), e(p.e), b(e.b) {
  Value *all[] = {&weights, &limits, &bests,     &firsts,   &drawn, &numbers,
                  &state,   &keys,   &sumsAbove, &sumsTies, &tokens};
  for (auto [i, buffer] : llvm::enumerate(all))
    *buffer = p.buffer(i);
  Type i64 = b.getI64Type(), i32 = b.getI32Type();
  above = p.allocate({kThreadsOfPart}, i64);
  ties = p.allocate({kThreadsOfPart}, i32);
  aboveOfGroups = p.allocate({kGroups}, i64);
  tiesOfGroups = p.allocate({kGroups}, i32);
}

//===--- rows -------------------------------------------------------------===//

void DrawKernel::emit() {
  Value isDrawn = e.compare(Compare::ne, p.ofBlock(drawn, 1, 0), e.i32(0));
  Value isOther = e.make<arith::AndIOp>(
      e.compare(Compare::eq, p.ofBlock(drawn, 1, 0), e.i32(0)),
      e.compare(Compare::eq, p.part, e.index(0)));
  e.ifTrue(isDrawn, [&] { emitDraw(); });
  e.ifTrue(isOther, [&] { emitOther(); });
}

// The first of the largest logits, or that there is none.
void DrawKernel::emitOther() {
  Value best =
      p.overParts(bests, e.f32(-std::numeric_limits<float>::infinity()),
                  tile::ReduceKind::max);
  Value isNan =
      b.create<arith::CmpFOp>(e.loc, arith::CmpFPredicate::UNE, best, best);
  Value token = e.ifElse(
      e.isFinite(best), b.getI32Type(),
      [&]() -> Values { return {likeliest(best)}; },
      [&]() -> Values {
        return {e.select(isNan, e.i32(kNotANumber), e.i32(kNoToken))};
      })[0];
  e.store(token, tokens, p.row);
}

Value DrawKernel::likeliest(Value best) {
  Value none = e.i32(p.shape.vocab), end = e.index(p.parts);
  Value begin = e.mul(p.row, end);
  Value all = e.forRange(
      e.index(0), end, e.index(kThreadsOfPart), e.tileOf(none),
      [&](Value at, ValueRange carried) -> Values {
        Value bound = e.min(e.index(kThreadsOfPart), e.sub(end, at));
        Value place = e.add(begin, at);
        Value isBest = b.create<arith::CmpFOp>(e.loc, arith::CmpFPredicate::OEQ,
                                               e.loadTile(bests, place, bound),
                                               e.tileOf(best));
        isBest = e.make<arith::AndIOp>(isBest, e.isThere({at, bound}));
        Value token = e.loadTile(firsts, place, bound);
        return {e.min(carried[0], e.select(isBest, token, none))};
      })[0];
  return e.reduce(all, tile::ReduceKind::min);
}

// Tokens of exactly the key that are left; `sum` is of all weights above it.
Value DrawKernel::leastTies(Value sum) {
  Value k = p.limit(limits, 0), topP = p.limit(limits, 1);
  Type i64 = b.getI64Type();
  return e.ifElse(
      e.compare(Compare::ne, topP, e.i64(0)), i64,
      [&]() -> Values {
        Value lacking = e.sub(p.ofBlock(state, kStateOfSums, 2), sum);
        return {e.make<arith::DivUIOp>(e.add(lacking, e.sub(each, e.i64(1))),
                                       each)};
      },
      [&]() -> Values {
        return {e.ifElse(
            e.compare(Compare::ne, k, e.i64(0)), i64,
            [&]() -> Values {
              Value before =
                  p.overParts(numbers, e.i32(0), tile::ReduceKind::sum);
              return {e.sub(k, e.extend(before))};
            },
            [&]() -> Values {
              return {e.i64(std::numeric_limits<int64_t>::max())};
            })[0]};
      })[0];
}

// Of the parts one has the place; the last, if it is beyond all weights.
void DrawKernel::emitDraw() {
  auto sum = tile::ReduceKind::sum;
  key = p.ofBlock(keys, 1, 0), each = e.units(key);
  Value all = p.overParts(sumsAbove, e.i64(0), sum);
  Value before = p.overParts(sumsAbove, e.i64(0), sum, true);
  Value tiesBefore = e.extend(p.overParts(sumsTies, e.i32(0), sum, true));
  Value kept = leastTies(all);
  Value total = e.add(all, e.mul(kept, each));
  Value place = e.partOf(total, p.limit(limits, 2), p.limit(limits, 3));
  tiesBefore = e.min(tiesBefore, kept);
  before = e.add(before, e.mul(tiesBefore, each));
  kept = e.sub(kept, tiesBefore);
  place = e.sub(place, before);
  Value ownTies = e.min(e.extend(p.ofBlock(sumsTies, 1, 0)), kept);
  Value own = e.add(p.ofBlock(sumsAbove, 1, 0), e.mul(ownTies, each));
  Value isWithin = e.compare(Compare::slt, place, own);
  Value isLast = e.compare(Compare::eq, p.part, e.index(p.parts - 1));
  Value isHere = e.make<arith::AndIOp>(e.compare(Compare::sge, place, e.i64(0)),
                                       e.make<arith::OrIOp>(isWithin, isLast));
  e.ifTrue(isHere, [&] {
    Value token = find({place, kept});
    e.store(e.select(isWithin, token, e.i32(p.shape.vocab)), tokens, p.row);
  });
}

//===--- within a part ----------------------------------------------------===//

// What precedes a group, then what precedes a thread of it, then a token.
Value DrawKernel::find(Sought sought) {
  sumThreads();
  sumGroups();
  Value group = pick(e.index(kGroups), sought, [&](Value i) -> Sums {
    return {e.load(aboveOfGroups, i), e.extend(e.load(tiesOfGroups, i))};
  });
  Value threads = e.mul(group, e.index(kThreadsOfGroup));
  Value thread = pick(e.index(kThreadsOfGroup), sought, [&](Value i) -> Sums {
    Value at = e.add(threads, i);
    return {e.load(above, at), e.extend(e.load(ties, at))};
  });
  Value begin = e.mul(e.add(threads, thread), e.index(kTokensOfThread));
  Value place = e.add(p.firstWeight, begin);
  Value token = pick(e.index(kTokensOfThread), sought, [&](Value i) -> Sums {
    Value bits = e.bitsOf(e.load(weights, e.add(place, i)));
    Value isAbove = e.compare(Compare::sgt, bits, key);
    Value isTie = e.compare(Compare::eq, bits, key);
    return {e.select(isAbove, e.units(bits), e.i64(0)),
            e.select(isTie, e.i64(1), e.i64(0))};
  });
  return e.cast(e.add(p.firstToken, e.add(begin, token)), b.getI32Type());
}

void DrawKernel::sumThreads() {
  int64_t all = p.shape.batch * p.parts * kTokensOfPart;
  int64_t shape[] = {kThreadsOfPart, all}, strides[] = {kTokensOfThread, 1};
  auto layout = StridedLayoutAttr::get(b.getContext(), 0, strides);
  Value view = b.create<memref::ReinterpretCastOp>(
      e.loc, MemRefType::get(shape, b.getF32Type(), layout), weights, 0, shape,
      strides);
  auto sums = e.forRange(
      e.index(0), e.index(kTokensOfThread), e.index(1),
      {e.tileOf(e.i64(0)), e.tileOf(e.i32(0))},
      [&](Value i, ValueRange carried) -> Values {
        Value tile = b.create<tile::LoadOp>(
            e.loc, VectorType::get({e.lanes}, b.getF32Type()), view,
            ValueRange{e.index(0), e.add(p.firstWeight, i)}, ValueRange(),
            ArrayRef<int64_t>{0});
        Value bits = e.bitsOf(tile);
        Value isAbove = e.compare(Compare::sgt, bits, key);
        Value isTie = e.compare(Compare::eq, bits, key);
        return {e.add(carried[0], e.select(isAbove, e.units(bits), e.i64(0))),
                e.add(carried[1], e.select(isTie, e.i32(1), e.i32(0)))};
      });
  sums.front().getDefiningOp()->setAttr(kUnrollByAttr,
                                        b.getI64IntegerAttr(kTokensOfThread));
  e.storeTile(sums[0], above, e.index(0), {});
  e.storeTile(sums[1], ties, e.index(0), {});
  b.create<tile::BarrierOp>(e.loc); // or each iteration would have one
}

// A thread of each group adds its threads' sums.
void DrawKernel::sumGroups() {
  SampleOps ofGroups = e;
  ofGroups.lanes = kGroups;
  auto add = [&](Value memory, Value to) {
    Type type = cast<MemRefType>(memory.getType()).getElementType();
    auto space = cast<MemRefType>(memory.getType()).getMemorySpace();
    Value view = b.create<memref::ReinterpretCastOp>(
        e.loc,
        MemRefType::get(
            {kGroups, kThreadsOfGroup}, type,
            StridedLayoutAttr::get(b.getContext(), 0, {kThreadsOfGroup, 1}),
            space),
        memory, 0, ArrayRef<int64_t>{kGroups, kThreadsOfGroup},
        ArrayRef<int64_t>{kThreadsOfGroup, 1});
    Value zero = type.isInteger(64) ? e.i64(0) : e.i32(0);
    auto sums = e.forRange(
        e.index(0), e.index(kThreadsOfGroup), e.index(1), ofGroups.tileOf(zero),
        [&](Value i, ValueRange carried) -> Values {
          Value tile = b.create<tile::LoadOp>(
              e.loc, VectorType::get({kGroups}, type), view,
              ValueRange{e.index(0), i}, ValueRange(), ArrayRef<int64_t>{0});
          return {ofGroups.add(carried[0], tile)};
        });
    sums.front().getDefiningOp()->setAttr(kUnrollByAttr,
                                          b.getI64IntegerAttr(kThreadsOfGroup));
    ofGroups.storeTile(sums[0], to, e.index(0), {});
  };
  add(above, aboveOfGroups);
  add(ties, tiesOfGroups);
  b.create<tile::BarrierOp>(e.loc);
}

// The one of `count`, in order, that has the place; 0 if none has. What
// precedes it no longer does.
Value DrawKernel::pick(Value count, Sought &sought,
                       llvm::function_ref<Sums(Value)> sumsOf) {
  auto found = e.forRange(
      e.index(0), count, e.index(1), {e.i32(-1), sought.place, sought.ties},
      [&](Value i, ValueRange now) -> Values {
        Sums sums = sumsOf(i);
        Value kept = e.min(sums.ties, now[2]);
        Value here = e.add(sums.above, e.mul(kept, each));
        Value isOpen = e.compare(Compare::slt, now[0], e.i32(0));
        Value isHere = e.make<arith::AndIOp>(
            isOpen, e.compare(Compare::slt, now[1], here));
        Value isBefore = e.make<arith::AndIOp>(
            isOpen, e.compare(Compare::sge, now[1], here));
        return {e.select(isHere, e.cast(i, b.getI32Type()), now[0]),
                e.select(isBefore, e.sub(now[1], here), now[1]),
                e.select(isBefore, e.sub(now[2], kept), now[2])};
      });
  found.front().getDefiningOp()->setAttr(kUnrollByAttr,
                                         b.getI64IntegerAttr(kTokensOfThread));
  sought = {found[1], found[2]};
  Value place = b.create<arith::MaxSIOp>(e.loc, e.i32(0), found[0]);
  return e.cast(place, b.getIndexType());
}

void gpu::emitSampleDraw(const SamplePart &part) { DrawKernel(part).emit(); }
