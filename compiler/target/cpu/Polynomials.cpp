#include "compiler/target/cpu/Polynomials.h"
#include "mlir/IR/TypeUtilities.h"
#include <cmath>

using namespace mlir;
using arith::CmpFPredicate;

namespace tessera::cpu {

//===--- bits -------------------------------------------------------------===//

// By the bits of n + 1.5 × 2^digits: defined for every input, unlike fptosi.
Value Polynomials::toInteger(Value n) {
  Value magic = integer(add(n, number(n, std::ldexp(1.5, format.digits))));
  return b.create<arith::SubIOp>(p.location(), magic, word(n, format.magic));
}

Value Polynomials::powerOfTwo(Value e) {
  Value biased = b.create<arith::AddIOp>(p.location(), e, word(e, format.bias));
  return real(
      b.create<arith::ShLIOp>(p.location(), biased, word(e, format.digits)));
}

//===--- exponentials -----------------------------------------------------===//

std::pair<Value, Value> Polynomials::reduceExp(Value x) {
  Value n = roundEven(mul(x, number(x, kLog2E)));
  Value r = fma(n, number(x, -format.ln2High), x);
  r = fma(n, number(x, -format.ln2Low), r);
  Value tail = poly(r, format.exponential);
  return {n, fma(mul(r, r), tail, r)};
}

Value Polynomials::exp(Value x) {
  auto [n, tail] =
      reduceExp(clamp(x, leastExponent(x) * M_LN2, format.mostExp));
  return scale(add(tail, number(x, 1.0)), n);
}

// 2^n (e^r - 1) + (2^n - 1); where n is 0 the last term vanishes and small
// arguments keep their relative accuracy.
Value Polynomials::expm1(Value x) {
  auto [n, tail] = reduceExp(clamp(x, format.leastExpm1, format.mostExp));
  // 2^(n-1), as twice that may be infinite
  Value half = scale(number(x, 0.5), n);
  Value result = fma(tail, half, sub(half, number(x, 0.5)));
  return add(result, result);
}

// (e^2|x| - 1) / (e^2|x| + 1); 1 from |x| = 9.1 on, in f64 from 19.1.
Value Polynomials::tanh(Value x) {
  Value y = abs(x);
  y = clamp(add(y, y), 0.0, format.mostTanh);
  Value e = expm1(y);
  return withSign(div(e, add(e, number(x, 2.0))), x);
}

//===--- logarithms -------------------------------------------------------===//

Value Polynomials::log(Value x) {
  auto [m, e] = mantissa(x);
  Value f = sub(m, number(x, 1.0)); // exact
  Value low = fma(e, number(x, format.ln2Low), logTail(f));
  return logEdges(x, fma(e, number(x, format.ln2High), add(f, low)));
}

Value Polynomials::log10(Value x) {
  return mul(log(x), number(x, 0.43429448190325183));
}

// log(1 + x) = log(u) + (x - (u - 1)) / u for u = fl(1 + x)
Value Polynomials::log1p(Value x) {
  Value one = number(x, 1.0), u = add(x, one);
  Value lost = sub(x, sub(u, one));
  Value finite = compare(CmpFPredicate::OLT, abs(x), number(x, 0x1p64));
  Value correction = select(finite, div(lost, u), number(x, 0.0));
  Value result = add(log(u), correction);
  // -1 has given NaN in the correction: lost / 0
  return select(compare(CmpFPredicate::OEQ, u, number(x, 0.0)),
                number(x, -INFINITY), result);
}

//===--- the others -------------------------------------------------------===//

Value Polynomials::inQuadrant(Value q, Value sine, Value cosine) {
  auto masked = [&](uint64_t mask) -> Value {
    return b.create<arith::AndIOp>(p.location(), q, word(q, mask));
  };
  Value isOdd = b.create<arith::CmpIOp>(p.location(), arith::CmpIPredicate::ne,
                                        masked(1), word(q, 0));
  Value result = select(isOdd, cosine, sine);
  // bit 1 to the sign
  const int width = getElementTypeOrSelf(q).getIntOrFloatBitWidth();
  Value sign =
      b.create<arith::ShLIOp>(p.location(), masked(2), word(q, width - 2));
  return real(b.create<arith::XOrIOp>(p.location(), integer(result), sign));
}

Value Polynomials::withTrivialPowers(Value x, Value y, Value power) {
  Value trivial = b.create<arith::OrIOp>(
      p.location(), compare(CmpFPredicate::OEQ, y, number(y, 0.0)),
      compare(CmpFPredicate::OEQ, x, number(x, 1.0)));
  return select(trivial, number(x, 1.0), power);
}

} // namespace tessera::cpu
