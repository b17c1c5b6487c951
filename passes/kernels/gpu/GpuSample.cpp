// Sampling from long rows: a block has a part of a row. Whatever depends on a
// whole row ends a launch: each block of the next one combines what the parts
// have written, and all come to the same. A block keeps a state of its own, so
// that none reads what another writes. From the weights on numbers are
// integers, so that the token is that of SampleChoice.cpp.
//
//   largest    each part's largest logit, and the first token that has it
//   weights    weights of logits; tokens from each of 31 keys on
//   top_k      5 times: a digit of the key of the least likely of k tokens,
//              and the tokens from each of the next 31 keys on
//   limited    its last digit; tokens and weights above it; weights from each
//              of 31 keys on
//   top_p      5 times: a digit of the key from which on there is enough weight
//   kept       its last digit; weights above it, and tokens of exactly it
//   (no name)  the token: GpuSampleDraw.cpp
//
// A row that has no such limit, or the likeliest token, skips what it does not
// need: those blocks end at once.
#include "dialects/tile/KernelBlocks.h"
#include "passes/kernels/gpu/GpuSampleWalk.h"
#include "passes/kernels/gpu/InFlight.h"
#include <limits>

using namespace mlir;
using namespace tessera;
using namespace tessera::gpu;
using Compare = SampleOps::Compare;
using Values = SampleOps::Values;

//===--- a part -----------------------------------------------------------===//

SamplePart::SamplePart(OpBuilder &builder, tile::KernelOp kernel,
                       const SampleShape &shape)
    : e{builder, kernel.getLoc(), kThreadsOfPart},
      ofKeys{builder, kernel.getLoc(), kKeys}, shape(shape),
      parts(partsOf(shape)), block(kernel.getBlockNumber()),
      buffers(kernel.getBuffers()) {
  kernel->setAttr(tile::kThreadsAttr,
                  builder.getI64IntegerAttr(kThreadsOfPart));
  row = e.make<arith::DivUIOp>(block, e.index(parts));
  part = e.make<arith::RemUIOp>(block, e.index(parts));
  Value begin = e.mul(part, e.index(kTokensOfPart));
  firstToken = e.min(begin, e.index(shape.vocab - kTokensOfPart));
  skipped = e.sub(begin, firstToken);
  firstLogit = e.add(e.mul(row, e.index(shape.vocab)), firstToken);
  firstWeight = e.mul(block, e.index(kTokensOfPart));
}

Value SamplePart::allocate(ArrayRef<int64_t> sizes, Type type) const {
  return e.b.create<tile::AllocOp>(
      e.loc, MemRefType::get(
                 sizes, type, AffineMap(),
                 tile::SharedAttr::get(e.b.getContext(), tile::Layout::rows)));
}

Value SamplePart::ofRow(Value memory, int64_t width, int64_t i) const {
  return e.load(memory, e.add(e.mul(row, e.index(width)), e.index(i)));
}
Value SamplePart::ofBlock(Value memory, int64_t width, int64_t i) const {
  return e.load(memory, e.add(e.mul(block, e.index(width)), e.index(i)));
}
void SamplePart::storeOfBlock(Value value, Value memory, int64_t width,
                              int64_t i) const {
  e.store(value, memory, e.add(e.mul(block, e.index(width)), e.index(i)));
}

ValueRange SamplePart::overTiles(
    Value memory, Value begin, ValueRange init,
    llvm::function_ref<Values(Value, Value, ValueRange)> body) const {
  auto sums = e.forRange(
      e.index(0), e.index(kTokensOfPart), e.index(kThreadsOfPart), init,
      [&](Value at, ValueRange carried) {
        return body(at, e.loadTile(memory, e.add(begin, at), {}), carried);
      });
  sums.front().getDefiningOp()->setAttr(kUnrollByAttr,
                                        e.b.getI64IntegerAttr(kTilesOfPart));
  return sums;
}

void SamplePart::copy(Value memory, Value begin, Value shared) const {
  overTiles(memory, begin, e.i32(0),
            [&](Value at, Value tile, ValueRange carried) -> Values {
              e.storeTile(tile, shared, at, {});
              return {carried[0]};
            });
}

Value SamplePart::overParts(Value memory, Value neutral, tile::ReduceKind kind,
                            bool before) const {
  Value begin = e.mul(row, e.index(parts));
  Value end = before ? part : e.index(parts);
  Value all =
      e.forRange(e.index(0), end, e.index(kThreadsOfPart), e.tileOf(neutral),
                 [&](Value at, ValueRange carried) -> Values {
                   Value bound = e.min(e.index(kThreadsOfPart), e.sub(end, at));
                   Value tile = e.loadTile(memory, e.add(begin, at), bound);
                   tile = e.select(e.isThere({at, bound}), tile, neutral);
                   return {kind == tile::ReduceKind::max
                               ? e.make<arith::MaximumFOp>(carried[0], tile)
                               : e.add(carried[0], tile)};
                 })[0];
  return e.reduce(all, kind);
}

//===--- launches ---------------------------------------------------------===//

static Value firstShift(const SampleOps &e) {
  return e.i32(kKeyBits - kBitsOfKeys);
}

// Buffers logits, options; bests, firsts.
static void emitLargest(const SamplePart &p) {
  const SampleOps &e = p.e;
  OpBuilder &b = e.b;
  Value least = e.f32(-std::numeric_limits<float>::infinity());
  Value all =
      p.overTiles(p.buffer(0), p.firstLogit, e.tileOf(least),
                  [&](Value, Value tile, ValueRange carried) -> Values {
                    return {e.make<arith::MaximumFOp>(carried[0], tile)};
                  })[0];
  Value best = e.reduce(all, tile::ReduceKind::max);
  p.storeOfBlock(best, p.buffer(2), 1, 0);
  Value isGreedy = b.create<arith::CmpFOp>(
      e.loc, arith::CmpFPredicate::OEQ, p.ofRow(p.buffer(1), 2, 0), e.f32(0));
  e.ifTrue(isGreedy, [&] {
    Value none = e.i32(p.shape.vocab);
    Value firsts = p.overTiles(
        p.buffer(0), p.firstLogit, e.tileOf(none),
        [&](Value at, Value tile, ValueRange carried) -> Values {
          Value number = b.create<tile::IotaOp>(
              e.loc, VectorType::get({e.lanes}, b.getI32Type()),
              e.add(p.firstToken, at), 0);
          Value isBest = b.create<arith::CmpFOp>(
              e.loc, arith::CmpFPredicate::OEQ, tile, e.tileOf(best));
          return {e.min(carried[0], e.select(isBest, number, none))};
        })[0];
    p.storeOfBlock(e.reduce(firsts, tile::ReduceKind::min), p.buffer(3), 1, 0);
  });
}

// Buffers logits, options, bests; weights, drawn, state, counts. `drawn` says
// whether the row's token is drawn: it is not the likeliest, and there is one.
static void emitWeights(const SamplePart &p) {
  const SampleOps &e = p.e;
  OpBuilder &b = e.b;
  SampleWalk walk(p, false);
  Value copy = p.allocate({kTokensOfPart}, b.getF32Type());
  Value best =
      p.overParts(p.buffer(2), e.f32(-std::numeric_limits<float>::infinity()),
                  tile::ReduceKind::max);
  Value temperature = p.ofRow(p.buffer(1), 2, 0);
  Value isWarm = b.create<arith::CmpFOp>(e.loc, arith::CmpFPredicate::UNE,
                                         temperature, e.f32(0));
  Value isDrawn = e.make<arith::AndIOp>(isWarm, e.isFinite(best));
  p.storeOfBlock(e.select(isDrawn, e.i32(1), e.i32(0)), p.buffer(4), 1, 0);
  e.ifTrue(isDrawn, [&] {
    p.copy(p.buffer(0), p.firstLogit, copy);
    b.create<tile::BarrierOp>(e.loc);
    SampleScale scale = e.scaleOf(temperature, p.ofRow(p.buffer(1), 2, 1));
    Value found = e.i32(0), shift = firstShift(e);
    Value skipped = e.cast(p.skipped, b.getI32Type());
    auto counts = p.overTiles(
        copy, e.index(0), walk.begin(),
        [&](Value at, Value tile, ValueRange carried) -> Values {
          Value number = b.create<tile::IotaOp>(
              e.loc, VectorType::get({e.lanes}, b.getI32Type()), at, 0);
          Value weight = e.select(e.compare(Compare::sge, number, skipped),
                                  e.weightOf(tile, best, scale), e.f32(0));
          e.storeTile(weight, p.buffer(3), e.add(p.firstWeight, at), {});
          Values next(carried);
          walk.add(next, e.bitsOf(weight), found, shift);
          return next;
        });
    p.storeOfBlock(found, p.buffer(5), kStateOfCounts, 0);
    p.storeOfBlock(shift, p.buffer(5), kStateOfCounts, 1);
    walk.write(counts, p.buffer(6));
  });
}

static Value isDrawnWith(const SamplePart &p, Value drawn, Value limit) {
  const SampleOps &e = p.e;
  return e.make<arith::AndIOp>(
      e.compare(Compare::ne, p.ofBlock(drawn, 1, 0), e.i32(0)),
      e.compare(Compare::ne, limit, e.i64(0)));
}

// The part's tokens from the next keys on, of weights in shared memory.
static void walkOn(const SamplePart &p, const SampleWalk &walk, Value weights,
                   Value found, Value shift, Value sums) {
  auto next = p.overTiles(weights, p.e.index(0), walk.begin(),
                          [&](Value, Value tile, ValueRange carried) -> Values {
                            Values now(carried);
                            walk.add(now, p.e.bitsOf(tile), found, shift);
                            return now;
                          });
  walk.write(next, sums);
}

// Buffers weights, limits, drawn, state, counts; state, counts.
static void emitTopK(const SamplePart &p) {
  const SampleOps &e = p.e;
  SampleWalk walk(p, false);
  Value weights = p.allocate({kTokensOfPart}, e.b.getF32Type());
  Value k = p.limit(p.buffer(1), 0);
  Value found = p.ofBlock(p.buffer(3), kStateOfCounts, 0),
        shift = p.ofBlock(p.buffer(3), kStateOfCounts, 1);
  e.ifTrue(isDrawnWith(p, p.buffer(2), k), [&] {
    p.copy(p.buffer(0), p.firstWeight, weights);
    Value key = walk.next(walk.total(p.buffer(4)), found, shift, k);
    Value next = e.sub(shift, e.i32(kBitsOfKeys));
    p.storeOfBlock(key, p.buffer(5), kStateOfCounts, 0);
    p.storeOfBlock(next, p.buffer(5), kStateOfCounts, 1);
    walkOn(p, walk, weights, key, next, p.buffer(6));
  });
}

// Buffers weights, limits, drawn, state, counts; keys, sums, numbers, state,
// sums of the next walk. `sums` and `numbers` are of the part's tokens above
// the key.
static void emitLimited(const SamplePart &p) {
  const SampleOps &e = p.e;
  OpBuilder &b = e.b;
  SampleWalk counting(p, false), walk(p, true);
  Value weights = p.allocate({kTokensOfPart}, b.getF32Type());
  Value k = p.limit(p.buffer(1), 0);
  Value isDrawn =
      e.compare(Compare::ne, p.ofBlock(p.buffer(2), 1, 0), e.i32(0));
  Value before = p.ofBlock(p.buffer(3), kStateOfCounts, 0),
        shiftBefore = p.ofBlock(p.buffer(3), kStateOfCounts, 1);
  e.ifTrue(isDrawn, [&] {
    p.copy(p.buffer(0), p.firstWeight, weights);
    Value key = e.ifElse(
        e.compare(Compare::ne, k, e.i64(0)), b.getI32Type(),
        [&]() -> Values {
          return {counting.next(counting.total(p.buffer(4)), before,
                                shiftBefore, k)};
        },
        [&]() -> Values { return {e.i32(0)}; })[0];
    b.create<tile::BarrierOp>(e.loc); // of the copy
    p.storeOfBlock(key, p.buffer(5), 1, 0);
    Value found = e.i32(0), shift = firstShift(e);
    Values init = walk.begin();
    init.push_back(e.tileOf(e.i64(0)));
    init.push_back(e.tileOf(e.i32(0)));
    auto sums = p.overTiles(
        weights, e.index(0), init,
        [&](Value, Value tile, ValueRange carried) -> Values {
          Value bits = e.bitsOf(tile);
          Values next(carried.drop_back(2));
          walk.add(next, bits, found, shift);
          Value isAbove = e.compare(Compare::sgt, bits, key);
          next.push_back(e.add(carried[kKeys - 1],
                               e.select(isAbove, e.units(bits), e.i64(0))));
          next.push_back(
              e.add(carried[kKeys], e.select(isAbove, e.i32(1), e.i32(0))));
          return next;
        });
    p.storeOfBlock(e.reduce(sums[kKeys - 1], tile::ReduceKind::sum),
                   p.buffer(6), 1, 0);
    p.storeOfBlock(e.reduce(sums[kKeys], tile::ReduceKind::sum), p.buffer(7), 1,
                   0);
    p.storeOfBlock(e.i64(0), p.buffer(8), kStateOfSums, 0);
    p.storeOfBlock(e.extend(shift), p.buffer(8), kStateOfSums, 1);
    p.storeOfBlock(e.i64(0), p.buffer(8), kStateOfSums, 2);
    walk.write(sums.drop_back(2), p.buffer(9));
  });
}

// The part of the weights of the tokens that top_k leaves, at least one unit.
// `keys`, `sums` and `numbers` are those of emitLimited.
static Value neededWeight(const SamplePart &p, Value keys, Value sums,
                          Value numbers, Value k, Value topP) {
  const SampleOps &e = p.e;
  Value above = p.overParts(sums, e.i64(0), tile::ReduceKind::sum);
  Value number =
      e.extend(p.overParts(numbers, e.i32(0), tile::ReduceKind::sum));
  // Without a limit the key is 0, whose weight is 0.
  Value ties = e.mul(e.sub(k, number), e.units(p.ofBlock(keys, 1, 0)));
  Value part = e.partOf(e.add(above, ties), e.i64(0), topP);
  return e.b.create<arith::MaxSIOp>(e.loc, part, e.i64(1));
}

// Buffers weights, limits, drawn, keys, sums, numbers, state, sums of a walk;
// state, sums of the next.
static void emitTopP(const SamplePart &p) {
  const SampleOps &e = p.e;
  OpBuilder &b = e.b;
  SampleWalk walk(p, true);
  Value weights = p.allocate({kTokensOfPart}, b.getF32Type());
  Value topP = p.limit(p.buffer(1), 1);
  auto state = [&](int64_t i) {
    return p.ofBlock(p.buffer(6), kStateOfSums, i);
  };
  Value found = e.cast(state(0), b.getI32Type()),
        shift = e.cast(state(1), b.getI32Type()), known = state(2);
  e.ifTrue(isDrawnWith(p, p.buffer(2), topP), [&] {
    p.copy(p.buffer(0), p.firstWeight, weights);
    Value total = walk.total(p.buffer(7));
    Value need = e.ifElse(
        e.compare(Compare::ne, known, e.i64(0)), b.getI64Type(),
        [&]() -> Values { return {known}; },
        [&]() -> Values {
          return {neededWeight(p, p.buffer(3), p.buffer(4), p.buffer(5),
                               p.limit(p.buffer(1), 0), topP)};
        })[0];
    Value key = walk.next(total, found, shift, need);
    Value next = e.sub(shift, e.i32(kBitsOfKeys));
    p.storeOfBlock(e.extend(key), p.buffer(8), kStateOfSums, 0);
    p.storeOfBlock(e.extend(next), p.buffer(8), kStateOfSums, 1);
    p.storeOfBlock(need, p.buffer(8), kStateOfSums, 2);
    walkOn(p, walk, weights, key, next, p.buffer(9));
  });
}

// Buffers weights, limits, drawn, keys, state, sums of a walk; keys, sums,
// numbers. `sums` are of the part's tokens above the key, `numbers` of those
// that have exactly it.
static void emitKept(const SamplePart &p) {
  const SampleOps &e = p.e;
  OpBuilder &b = e.b;
  SampleWalk walk(p, true);
  Value topP = p.limit(p.buffer(1), 1);
  Value isDrawn =
      e.compare(Compare::ne, p.ofBlock(p.buffer(2), 1, 0), e.i32(0));
  e.ifTrue(isDrawn, [&] {
    auto state = [&](int64_t i) {
      return p.ofBlock(p.buffer(4), kStateOfSums, i);
    };
    Value key = e.ifElse(
        e.compare(Compare::ne, topP, e.i64(0)), b.getI32Type(),
        [&]() -> Values {
          return {walk.next(walk.total(p.buffer(5)),
                            e.cast(state(0), b.getI32Type()),
                            e.cast(state(1), b.getI32Type()), state(2))};
        },
        [&]() -> Values { return {p.ofBlock(p.buffer(3), 1, 0)}; })[0];
    p.storeOfBlock(key, p.buffer(6), 1, 0);
    Values init = {e.tileOf(e.i64(0)), e.tileOf(e.i32(0))};
    auto sums = p.overTiles(
        p.buffer(0), p.firstWeight, init,
        [&](Value, Value tile, ValueRange carried) -> Values {
          Value bits = e.bitsOf(tile);
          Value isAbove = e.compare(Compare::sgt, bits, key);
          Value isTie = e.compare(Compare::eq, bits, key);
          return {e.add(carried[0], e.select(isAbove, e.units(bits), e.i64(0))),
                  e.add(carried[1], e.select(isTie, e.i32(1), e.i32(0)))};
        });
    p.storeOfBlock(e.reduce(sums[0], tile::ReduceKind::sum), p.buffer(7), 1, 0);
    p.storeOfBlock(e.reduce(sums[1], tile::ReduceKind::sum), p.buffer(8), 1, 0);
  });
}

//===--- entry ------------------------------------------------------------===//

namespace {

/// The launches of one sample, with a block for each part of each row.
class PartLaunches {
public:
  PartLaunches(const SampleLaunch &launch, const SampleShape &shape)
      : launch(launch), shape(shape),
        blocks(shape.batch * SamplePart::partsOf(shape)),
        f32(Float32Type::get(launch.cluster.getContext())),
        i32(IntegerType::get(launch.cluster.getContext(), 32)),
        i64(IntegerType::get(launch.cluster.getContext(), 64)) {}

  llvm::Expected<Value> run(Value logits, Value options, Value limits);

private:
  /// So many words of each block.
  Type words(Type element, int64_t width = 1) const {
    return RankedTensorType::get({blocks, width}, element);
  }
  Values step(StringRef name, ValueRange inputs, TypeRange results,
              std::function<void(const SamplePart &)> emit);

  const SampleLaunch &launch;
  SampleShape shape;
  int64_t blocks;
  Type f32, i32, i64;
  llvm::Error error = llvm::Error::success();
};

} // namespace

// After an error nothing is launched, and the results are null.
Values PartLaunches::step(StringRef name, ValueRange inputs, TypeRange results,
                          std::function<void(const SamplePart &)> emit) {
  if (error)
    return Values(results.size());
  SmallVector<tile::Access> access(inputs.size(), tile::Access::read);
  access.append(results.size(), tile::Access::write);
  auto made =
      launch(name, blocks, inputs, access, results,
             [emit, shape = shape](tile::KernelOp kernel, const TileTarget &,
                                   OpBuilder &b) -> llvm::Error {
               emit(SamplePart(b, kernel, shape));
               return llvm::Error::success();
             });
  if (made)
    return *made;
  error = made.takeError();
  return Values(results.size());
}

llvm::Expected<Value> PartLaunches::run(Value logits, Value options,
                                        Value limits) {
  Type weightsType = words(f32, kTokensOfPart);
  Type counts = words(i32, kKeys), sums = words(i64, kKeys);
  Type stateOfCounts = words(i32, kStateOfCounts),
       stateOfSums = words(i64, kStateOfSums);
  Values largest = step("_largest", {logits, options}, {words(f32), words(i32)},
                        emitLargest);
  Value bests = largest[0];
  Values weighed =
      step("_weights", {logits, options, bests},
           {weightsType, words(i32), stateOfCounts, counts}, emitWeights);
  Value weights = weighed[0], drawn = weighed[1];
  Values walk = {weighed[2], weighed[3]};
  for (int64_t i = 1; i < kWalks; ++i)
    walk = step("_top_k", {weights, limits, drawn, walk[0], walk[1]},
                {stateOfCounts, counts}, emitTopK);
  Values limited = step("_limited", {weights, limits, drawn, walk[0], walk[1]},
                        {words(i32), words(i64), words(i32), stateOfSums, sums},
                        emitLimited);
  Value keys = limited[0], numbers = limited[2];
  walk = {limited[3], limited[4]};
  for (int64_t i = 1; i < kWalks; ++i)
    walk = step(
        "_top_p",
        {weights, limits, drawn, keys, limited[1], numbers, walk[0], walk[1]},
        {stateOfSums, sums}, emitTopP);
  Values kept = step("_kept", {weights, limits, drawn, keys, walk[0], walk[1]},
                     {words(i32), words(i64), words(i32)}, emitKept);
  Values token = step("",
                      {weights, limits, bests, largest[1], drawn, numbers,
                       walk[0], kept[0], kept[1], kept[2]},
                      launch.cluster.getResultTypes(), emitSampleDraw);
  if (error)
    return std::move(error);
  return token[0];
}

llvm::Expected<Value> gpu::drawByParts(const SampleLaunch &launch,
                                       const SampleShape &shape, Value logits,
                                       Value options, Value limits) {
  return PartLaunches(launch, shape).run(logits, options, limits);
}
