// Weights of logits and sums of them, as runtime/support/TokenChoice.h defines:
// floats up to a weight, integers from there on.
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/kernels/sampling/Sample.h"
#include "runtime/support/TokenChoice.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace tessera;

Value SampleOps::isFinite(Value logit) const {
  Value size = b.create<math::AbsFOp>(loc, logit);
  return b.create<arith::CmpFOp>(loc, arith::CmpFPredicate::OLT, size,
                                 f32(std::numeric_limits<float>::infinity()));
}

SampleScale SampleOps::scaleOf(Value temperature, Value minP) const {
  Value factor =
      b.create<arith::DivFOp>(loc, f32(token_choice::kLog2E), temperature);
  factor = b.create<arith::MinimumFOp>(loc, factor,
                                       f32(std::numeric_limits<float>::max()));
  Value least = b.create<arith::MaximumFOp>(
      loc, minP, f32(std::ldexp(1.0f, -token_choice::kFraction)));
  return {factor, least};
}

// 2^((logit - best) scale), at least 2^-64. A maximum separates the product
// from the following difference, so that no compiler contracts them.
static Value power(const SampleOps &e, Value tile, Value best, Value scale) {
  OpBuilder &b = e.b;
  Value distance = e.make<arith::SubFOp>(tile, best);
  Value y = e.make<arith::MaximumFOp>(e.make<arith::MulFOp>(distance, scale),
                                      e.f32(-64));
  Value whole = b.create<math::FloorOp>(e.loc, y);
  Value f = e.make<arith::SubFOp>(y, whole);
  auto terms = ArrayRef(token_choice::kPower);
  Value result = e.tileOf(e.f32(terms.back()));
  auto step = [&](float term) {
    result = b.create<math::FmaOp>(e.loc, result, f, e.tileOf(e.f32(term)));
  };
  for (float term : llvm::reverse(terms.drop_back()))
    step(term);
  step(1);
  Value exponent = e.add(e.cast(whole, b.getI32Type()), e.i32(127));
  Value scaled = e.realOf(e.make<arith::ShLIOp>(exponent, e.i32(23)));
  return e.make<arith::MulFOp>(result, scaled);
}

Value SampleOps::weightOf(Value tile, Value best,
                          const SampleScale &scale) const {
  Value weight = power(*this, tile, best, scale.factor);
  Value counts = b.create<arith::CmpFOp>(loc, arith::CmpFPredicate::OGE, weight,
                                         tileOf(scale.least));
  return select(counts, weight, f32(0));
}

// Its 24 digits, shifted. A shift by 63 gives zero.
Value SampleOps::units(Value bits) const {
  Value digits = make<arith::OrIOp>(make<arith::AndIOp>(bits, i32(0x7fffff)),
                                    i32(0x800000));
  Value one =
      make<arith::ShLIOp>(extend(digits), i64(token_choice::kFraction - 23));
  Value exponent = make<arith::ShRUIOp>(bits, i32(23));
  Value down = min(sub(i32(127), exponent), i32(63));
  return make<arith::ShRUIOp>(one, extend(down));
}

Value SampleOps::partOf(Value whole, Value low, Value high) const {
  Value word = i64(32), mask = i64(0xffffffff);
  auto upper = [&](Value x) { return make<arith::ShRUIOp>(x, word); };
  auto lower = [&](Value x) { return make<arith::AndIOp>(x, mask); };
  Value wholeLow = lower(whole), wholeHigh = upper(whole);
  Value first = upper(mul(wholeLow, low));
  Value second = add(mul(wholeHigh, low), first);
  Value third = add(mul(wholeLow, high), lower(second));
  return add(add(mul(wholeHigh, high), upper(second)), upper(third));
}
