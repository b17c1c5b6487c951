// Chooses one token of a row of logits, as runtime/support/TokenChoice.h
// defines. The candidates are represented by a least weight and the number of
// tokens of exactly that weight. They are found by testing seven weights in
// each pass over the row: nothing is sorted, and no sum depends on the number
// of threads.
#include "dialects/tile/KernelBlocks.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/kernels/sampling/Sample.h"
#include "runtime/support/TokenChoice.h"
#include <limits>

using namespace mlir;
using namespace tessera;
using Compare = arith::CmpIPredicate;
using Values = SampleOps::Values;
using Place = SampleOps::Place;

// Weights are at most 1: their bits, which are ordered as they are, have 30.
static constexpr int64_t kKeyBits = 30, kBitsOfWalk = 3;
// The part with the token is divided into so many parts in the next step.
static constexpr int64_t kParts = 16;
static constexpr int64_t kAllTies = std::numeric_limits<int64_t>::max();

namespace {

class SampleChoice {
public:
  SampleChoice(const SampleOps &ops, tile::KernelOp kernel,
               const SampleShape &shape)
      : e(ops), b(ops.b), shape(shape), block(kernel.getBlockNumber()) {
    auto buffers = kernel.getBuffers();
    logits = buffers[0], options = buffers[1], limits = buffers[2];
    weights = buffers[3], tokens = buffers[4];
    row = e.mul(block, e.index(shape.vocab));
  }

  void emit() {
    Value best = largest();
    Value isNan =
        b.create<arith::CmpFOp>(e.loc, arith::CmpFPredicate::UNE, best, best);
    Value token = e.ifElse(
        e.isFinite(best), b.getI32Type(), [&] { return Values{choose(best)}; },
        [&] {
          return Values{e.select(isNan, e.i32(kNotANumber), e.i32(kNoToken))};
        })[0];
    e.store(token, tokens, block);
  }

private:
  /// The candidates: tokens whose bits are above `key`, and the first `ties` of
  /// those whose bits are `key`.
  struct Kept {
    Value key, ties;
    Value total; ///< of their weights
  };
  /// For a set of tokens: the sum of the weights above a key, and the number at
  /// it.
  struct Sums {
    Value above, ties;
  };

  Value entry(Value buffer, int64_t width, int64_t i) {
    return e.load(buffer, e.add(e.mul(block, e.index(width)), e.index(i)));
  }
  /// A word of `limits` as i64.
  Value limit(int64_t i) { return e.extend(entry(limits, 4, i)); }
  Value where(Value there, Value x, Value otherwise) {
    return there ? e.select(there, x, otherwise) : x;
  }

  /// Tiles of the whole row.
  ValueRange
  overRow(Value memory, ValueRange init,
          llvm::function_ref<Values(const Place &, Value, ValueRange)> body) {
    return e.forTiles(memory, row, e.index(0), e.index(shape.vocab),
                      shape.vocab, init, body);
  }

  Value largest();
  Value likeliest(Value best);
  Value choose(Value best);
  Value draw(Value best, Value temperature);
  void weigh(Value best, Value temperature);
  Value countAbove(Value key);
  Value sumAbove(Value key);
  Value search(Value need, bool byWeight);
  Kept keepTopK(Value k);
  Kept keepTopP(const Kept &before, Value part);
  Sums sumsOf(Value begin, Value end, int64_t most, Value key);
  /// The token is in the part from `begin` on, if that has been found; `place`
  /// and `ties` are the weight, and the number of tokens of the least weight,
  /// that may still precede it.
  struct Sought {
    Value begin, place, ties;
  };
  Sought tryPart(const Kept &kept, Value at, Value end, int64_t size,
                 const Sought &sought);
  Value find(const Kept &kept, Value place);

  const SampleOps &e;
  OpBuilder &b;
  const SampleShape &shape;
  Value block, row;
  Value logits, options, limits, weights, tokens;
};

} // namespace

//===--- the likeliest ----------------------------------------------------===//

Value SampleChoice::largest() {
  Value least = e.f32(-std::numeric_limits<float>::infinity());
  Value all = overRow(
      logits, e.tileOf(least),
      [&](const Place &place, Value tile, ValueRange carried) -> Values {
        tile = where(e.isThere(place), tile, least);
        return {e.make<arith::MaximumFOp>(carried[0], tile)};
      })[0];
  return e.reduce(all, tile::ReduceKind::max);
}

// The first of the largest.
Value SampleChoice::likeliest(Value best) {
  Value none = e.i32(shape.vocab);
  Value all = overRow(
      logits, e.tileOf(none),
      [&](const Place &place, Value tile, ValueRange carried) -> Values {
        Value number = b.create<tile::IotaOp>(
            e.loc, VectorType::get({e.lanes}, b.getI32Type()), place.at, 0);
        Value isBest = b.create<arith::CmpFOp>(e.loc, arith::CmpFPredicate::OEQ,
                                               tile, e.tileOf(best));
        Value first = e.min(carried[0], e.select(isBest, number, none));
        return {where(e.isThere(place), first, carried[0])};
      })[0];
  return e.reduce(all, tile::ReduceKind::min);
}

Value SampleChoice::choose(Value best) {
  Value temperature = entry(options, 2, 0);
  Value isGreedy = b.create<arith::CmpFOp>(e.loc, arith::CmpFPredicate::OEQ,
                                           temperature, e.f32(0));
  return e.ifElse(
      isGreedy, b.getI32Type(), [&] { return Values{likeliest(best)}; },
      [&] { return Values{draw(best, temperature)}; })[0];
}

//===--- weights ----------------------------------------------------------===//

// Writes the weights; those that min_p excludes are zero.
void SampleChoice::weigh(Value best, Value temperature) {
  SampleScale scale = e.scaleOf(temperature, entry(options, 2, 1));
  overRow(logits, {},
          [&](const Place &place, Value tile, ValueRange) -> Values {
            e.storeTile(e.weightOf(tile, best, scale), weights,
                        e.add(row, place.at), place.bound);
            return {};
          });
}

//===--- candidates -------------------------------------------------------===//

Value SampleChoice::countAbove(Value key) {
  Value all = overRow(
      weights, e.tileOf(e.i32(0)),
      [&](const Place &, Value tile, ValueRange carried) -> Values {
        Value isAbove = e.compare(Compare::sgt, e.bitsOf(tile), key);
        return {e.add(carried[0], e.select(isAbove, e.i32(1), e.i32(0)))};
      })[0];
  return e.extend(e.reduce(all, tile::ReduceKind::sum));
}

Value SampleChoice::sumAbove(Value key) {
  Value all = overRow(
      weights, e.tileOf(e.i64(0)),
      [&](const Place &, Value tile, ValueRange carried) -> Values {
        Value bits = e.bitsOf(tile);
        Value isAbove = e.compare(Compare::sgt, bits, key);
        return {e.add(carried[0], e.select(isAbove, e.units(bits), e.i64(0)))};
      })[0];
  return e.reduce(all, tile::ReduceKind::sum);
}

// The largest key from which on there are `need` tokens, or weights of `need`;
// 0 if there are not. Masked tokens have weight 0, below every key that is
// tested.
Value SampleChoice::search(Value need, bool byWeight) {
  constexpr int64_t tried = (1 << kBitsOfWalk) - 1;
  Value zero = byWeight ? e.i64(0) : e.i32(0);
  return e.forRange(
      e.index(0), e.index(kKeyBits / kBitsOfWalk), e.index(1), e.i32(0),
      [&](Value walk, ValueRange found) -> Values {
        Value shift =
            e.sub(e.i32(kKeyBits - kBitsOfWalk),
                  e.mul(e.cast(walk, b.getI32Type()), e.i32(kBitsOfWalk)));
        Value step = e.make<arith::ShLIOp>(e.i32(1), shift);
        Values keys, sums;
        for (int64_t i = 1; i <= tried; ++i) {
          keys.push_back(e.add(found[0], e.mul(step, e.i32(i))));
          sums.push_back(e.tileOf(zero));
        }
        auto totals = overRow(
            weights, sums,
            [&](const Place &, Value tile, ValueRange carried) -> Values {
              Value bits = e.bitsOf(tile);
              Value part = byWeight ? e.units(bits) : e.tileOf(e.i32(1));
              Values next;
              for (auto [key, sum] : llvm::zip_equal(keys, carried)) {
                Value isIn = e.compare(Compare::sge, bits, key);
                next.push_back(e.add(sum, e.select(isIn, part, zero)));
              }
              return next;
            });
        Value steps = e.i32(0);
        for (Value each : totals) {
          Value total = e.reduce(each, tile::ReduceKind::sum);
          Value isEnough =
              e.compare(Compare::sge, byWeight ? total : e.extend(total), need);
          steps = e.add(steps, e.select(isEnough, e.i32(1), e.i32(0)));
        }
        return {e.add(found[0], e.mul(step, steps))};
      })[0];
}

// With a limit of 0 all.
SampleChoice::Kept SampleChoice::keepTopK(Value k) {
  Type types[] = {b.getI32Type(), b.getI64Type()};
  Values kept = e.ifElse(
      e.compare(Compare::ne, k, e.i64(0)), types,
      [&]() -> Values {
        Value key = search(k, false);
        return {key, e.sub(k, countAbove(key))};
      },
      [&]() -> Values { return {e.i32(0), e.i64(kAllTies)}; });
  // With a key of 0 the weight is 0, for any number of tokens.
  Value total = e.add(sumAbove(kept[0]), e.mul(kept[1], e.units(kept[0])));
  return {kept[0], kept[1], total};
}

SampleChoice::Kept SampleChoice::keepTopP(const Kept &before, Value part) {
  Type types[] = {b.getI32Type(), b.getI64Type(), b.getI64Type()};
  Values kept = e.ifElse(
      e.compare(Compare::ne, part, e.i64(0)), types,
      [&]() -> Values {
        Value bound = e.partOf(before.total, e.i64(0), part);
        bound = b.create<arith::MaxSIOp>(e.loc, bound, e.i64(1));
        Value key = search(bound, true);
        Value above = sumAbove(key), each = e.units(key);
        Value lacking = e.add(e.sub(bound, above), e.sub(each, e.i64(1)));
        Value ties = e.make<arith::DivUIOp>(lacking, each);
        return {key, ties, e.add(above, e.mul(ties, each))};
      },
      [&]() -> Values { return {before.key, before.ties, before.total}; });
  return {kept[0], kept[1], kept[2]};
}

//===--- drawing ----------------------------------------------------------===//

SampleChoice::Sums SampleChoice::sumsOf(Value begin, Value end, int64_t most,
                                        Value key) {
  Values zeros = {e.tileOf(e.i64(0)), e.tileOf(e.i32(0))};
  auto sums = e.forTiles(
      weights, row, begin, end, most, zeros,
      [&](const Place &place, Value tile, ValueRange carried) -> Values {
        Value bits = e.bitsOf(tile);
        Value isAbove = e.compare(Compare::sgt, bits, key);
        Value isTie = e.compare(Compare::eq, bits, key);
        if (Value there = e.isThere(place))
          isTie = e.make<arith::AndIOp>(isTie, there);
        return {e.add(carried[0], e.select(isAbove, e.units(bits), e.i64(0))),
                e.add(carried[1], e.select(isTie, e.i32(1), e.i32(0)))};
      });
  return {e.reduce(sums[0], tile::ReduceKind::sum),
          e.extend(e.reduce(sums[1], tile::ReduceKind::sum))};
}

// If the token is in the part of the vocabulary from `at` on, it has been
// found; otherwise that part no longer precedes it.
SampleChoice::Sought SampleChoice::tryPart(const Kept &kept, Value at,
                                           Value end, int64_t size,
                                           const Sought &sought) {
  Value stop = e.min(e.add(at, e.index(size)), end);
  Sums sums = sumsOf(at, stop, size, kept.key);
  Value ties = e.min(sums.ties, sought.ties);
  Value here = e.add(sums.above, e.mul(ties, e.units(kept.key)));
  Value isHere = e.compare(Compare::slt, sought.place, here);
  auto unless = [&](Value x, Value y) {
    return e.select(isHere, x, e.sub(x, y));
  };
  return {e.select(isHere, e.cast(at, b.getI32Type()), sought.begin),
          unless(sought.place, here), unless(sought.ties, ties)};
}

// The token in whose weight `place` falls, in the order of tokens: the part of
// the vocabulary, then a part of that, until one token is left.
Value SampleChoice::find(const Kept &kept, Value place) {
  Type types[] = {b.getI32Type(), b.getI64Type(), b.getI64Type()};
  Value never = e.i32(shape.vocab), whole = e.index(shape.vocab);
  Value begin = e.index(0), end = whole, ties = kept.ties;
  for (int64_t size = shape.vocab; size > 1;) {
    size = llvm::divideCeil(size, kParts);
    auto found = e.forRange(begin, end, e.index(size), {never, place, ties},
                            [&](Value at, ValueRange now) -> Values {
                              return e.ifElse(
                                  e.compare(Compare::ne, now[0], never), types,
                                  [&]() -> Values { return now; },
                                  [&]() -> Values {
                                    Sought next =
                                        tryPart(kept, at, end, size,
                                                {now[0], now[1], now[2]});
                                    return {next.begin, next.place, next.ties};
                                  });
                            });
    begin = e.cast(found[0], b.getIndexType());
    place = found[1], ties = found[2];
    end = e.min(e.add(begin, e.index(size)), whole);
  }
  return e.cast(begin, b.getI32Type());
}

Value SampleChoice::draw(Value best, Value temperature) {
  weigh(best, temperature);
  Kept kept = keepTopP(keepTopK(limit(0)), limit(1));
  return find(kept, e.partOf(kept.total, limit(2), limit(3)));
}

//===--- entry ------------------------------------------------------------===//

void tessera::emitSampleChoice(OpBuilder &b, tile::KernelOp kernel,
                               const SampleShape &shape,
                               const TileTarget &target) {
  SampleOps ops{b, kernel.getLoc(), target.lanes};
  if (target.gpu) {
    // One block has a whole row: as many threads as a block may have, each of
    // which loads several elements before it needs the first.
    while (ops.lanes < 1024 && 4 * ops.lanes < shape.vocab)
      ops.lanes *= 2;
    ops.atOnce = 8;
    kernel->setAttr(tile::kThreadsAttr, b.getI64IntegerAttr(ops.lanes));
  }
  SampleChoice(ops, kernel, shape).emit();
}
