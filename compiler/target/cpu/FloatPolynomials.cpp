// Coefficients are minimax fits by fit_polynomials.py in this folder, which
// prints them with their error; comments state interval and form at each use.
#include "compiler/target/cpu/Polynomials.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include <cmath>

using namespace mlir;
using arith::CmpFPredicate;

namespace tessera::cpu {

static constexpr double kExponential[] = {
    // e^r - 1 = r + r² P(r) on |r| ≤ ln2/2, relative error 2^-31.7
    0.500000005636,   0.166666669172,   0.0416663130341,
    0.00833321534175, 0.00139443138771, 0.00019964635935};

const Polynomials::Format FloatPolynomials::kFormat = {
    .digits = 23,
    .bias = 127,
    .magic = 0x4b400000,
    .leastNormal = 0x1p-126,
    .sqrtHalf = 0x3f3504f3,
    .ln2High = 0x1.62e4p-1, // 15 bits: n × it is exact
    .ln2Low = 0x1.7f7d1cf79abcap-20,
    .exponential = kExponential,
    .mostExp = 89,
    .leastExpm1 = -18,
    .mostTanh = 30};

//===--- bits -------------------------------------------------------------===//

bool FloatPolynomials::scalesAtOnce(Value y) const {
  auto vector = dyn_cast<VectorType>(y.getType());
  return hasScale && vector && vector.getNumElements() == 16;
}

// Powers whose result is a denormal or rounds to zero cost vscalefps and
// multiplications some hundred cycles, which every masked score would pay. From
// 2^-512 on the instruction gives zero at once; 2^-254 is the product of two
// factors whose bits are zeros.
double FloatPolynomials::leastExponent(Value y) const {
  return scalesAtOnce(y) ? -1024.0 : -254.0;
}

Value FloatPolynomials::scale(Value y, Value n) {
  if (scalesAtOnce(y)) {
    Value all = p.constant(b.getI16IntegerAttr(-1));
    Value nearest = p.constant(b.getI32IntegerAttr(4)); // rounding: as MXCSR
    return b
        .create<LLVM::CallIntrinsicOp>(
            p.location(), y.getType(),
            b.getStringAttr("llvm.x86.avx512.mask.scalef.ps.512"),
            ValueRange{y, n, y, all, nearest})
        .getResults();
  }
  // Two factors, so that neither leaves the normal range before the last one.
  Value i = toInteger(n);
  Value half = b.create<arith::ShRSIOp>(p.location(), i, word(y, 1));
  Value rest = b.create<arith::SubIOp>(p.location(), i, half);
  return mul(mul(y, powerOfTwo(half)), powerOfTwo(rest));
}

//===--- exponentials -----------------------------------------------------===//

Value FloatPolynomials::exp2(Value x) {
  x = clamp(x, leastExponent(x), 129.0);
  Value n = roundEven(x);
  Value f = sub(x, n); // exact
  // 2^f = 1 + f Q(f) on |f| ≤ ½, error 2^-28.9
  Value tail = poly(f, {0.693147208339, 0.240226507304, 0.0555032378787,
                        0.00961809677438, 0.00134017837745, 0.000154457382982});
  return scale(fma(f, tail, number(x, 1.0)), n);
}

//===--- logarithms -------------------------------------------------------===//

Value FloatPolynomials::logTail(Value f) {
  // relative error 2^-30.3
  Value cubic = poly(f, {0.333333125412, -0.250000095119, 0.2000212345,
                         -0.16668005221, 0.142194532523, -0.124053395068,
                         0.118886948759, -0.116775189449, 0.0674773905261});
  Value square = mul(f, f);
  return fma(mul(square, f), cubic, mul(square, number(f, -0.5)));
}

Value FloatPolynomials::log2(Value x) {
  auto [m, e] = mantissa(x);
  Value f = sub(m, number(x, 1.0)), tail = logTail(f);
  // (f + tail) log2 e with log2 e = 1.4375 + rest, f × 1.4375 rounded once
  constexpr double kHigh = 1.4375, kRest = kLog2E - kHigh;
  Value low = fma(f, number(x, kRest), mul(tail, number(x, kLog2E)));
  return logEdges(x, add(e, fma(f, number(x, kHigh), low)));
}

//===--- the others -------------------------------------------------------===//

// |x| < 0.95: x + x P(x²), relative error 2^-29.6. Above: 1 - e^-R(|x|) with
// R = -log erfc, error 2^-35 of erf; 1 from 3.95 on.
Value FloatPolynomials::erf(Value x) {
  Value y = abs(x), square = mul(x, x);
  Value small = poly(square, {0.128379165727, -0.376126258243, 0.112835851489,
                              -0.0268538119457, 0.00518832770379,
                              -0.000801019375994, 7.85386169672e-5});
  small = fma(small, x, x);
  Value t = clamp(y, 0.0, 3.95);
  Value r = poly(t, {-0.000183443268886, 1.12955682598, 0.633262621509,
                     0.108372467847, -0.0251789605123, 0.00419360817744,
                     -0.00043910574131, 2.14960560991e-5});
  auto [n, tail] = reduceExp(sub(number(x, 0.0), r));
  Value e = scale(add(tail, number(x, 1.0)), n);
  Value large = withSign(sub(number(x, 1.0), e), x);
  return select(compare(CmpFPredicate::OLT, y, number(x, 0.95)), small, large);
}

Value FloatPolynomials::extend(Value x) {
  return b.create<arith::ExtFOp>(p.location(),
                                 retyped(x.getType(), b.getF64Type()), x);
}
Value FloatPolynomials::narrow(Value x) {
  return b.create<arith::TruncFOp>(p.location(),
                                   retyped(x.getType(), b.getF32Type()), x);
}

// x = n π/2 + r, |r| ≤ π/4, with n and r in f64: no argument of interest
// cancels more than f64 has. `quadrant` 1 shifts sine to cosine.
Value FloatPolynomials::sinusoid(Value x, int quadrant) {
  constexpr double kHalfPiHigh = 0x1.921fb54442d18p0,
                   kHalfPiLow = 0x1.1a62633145c07p-54;
  Value wide = extend(x);
  Value n = roundEven(mul(wide, number(wide, 0.63661977236758134)));
  Value remainder = fma(n, number(wide, -kHalfPiHigh), wide);
  Value r = narrow(fma(n, number(wide, -kHalfPiLow), remainder));
  // n mod 4 from the last mantissa bits of n + 1.5 × 2^52
  Value bits = integer(add(n, number(wide, 6755399441055744.0)));
  Value q = b.create<arith::TruncIOp>(
      p.location(), retyped(x.getType(), b.getI32Type()), bits);
  q = b.create<arith::AddIOp>(p.location(), q, word(x, quadrant));
  Value square = mul(r, r);
  // sin r = r + r³ S(r²), 2^-37.5; cos r = 1 - r²/2 + r⁴ C(r²), 2^-42.9
  Value s = poly(square, {-0.166666666406, 0.00833332928053, -0.000198393044158,
                          2.71804647401e-6});
  Value sine = fma(mul(square, r), s, r);
  Value c = poly(square, {0.0416666666191, -0.00138888834673, 2.47994515506e-5,
                          -2.72050463049e-7});
  Value cosine =
      fma(mul(square, square), c, fma(square, number(x, -0.5), number(x, 1.0)));
  return inQuadrant(q, sine, cosine);
}

// 2^(y log2 x), the exponent in f64: log2 m = 2 atanh(s) / ln 2 for
// s = (m-1)/(m+1), atanh s = s + s³ A(s²), error 2^-52.
Value FloatPolynomials::pow(Value x, Value y) {
  auto [m, e] = mantissa(x);
  Value wide = extend(m), one = number(wide, 1.0);
  Value s = div(sub(wide, one), add(wide, one));
  Value square = mul(s, s);
  Value a = poly(square, {0.333333333333333, 0.200000000263, 0.14285708541,
                          0.111116877366, 0.0906175449744, 0.0841077359297});
  Value log = fma(mul(mul(s, square), a), number(wide, 2 * kLog2E),
                  mul(s, number(wide, 2 * kLog2E)));
  Value exponent = mul(add(extend(e), log), extend(y));
  exponent = clamp(exponent, -200.0, 200.0);
  Value n = roundEven(exponent);
  Value f = narrow(sub(exponent, n));
  Value tail = poly(f, {0.693147208339, 0.240226507304, 0.0555032378787,
                        0.00961809677438, 0.00134017837745, 0.000154457382982});
  Value result = scale(fma(f, tail, number(x, 1.0)), narrow(n));

  Value zero = number(x, 0.0), infinity = number(x, INFINITY);
  Value rising = compare(CmpFPredicate::OGT, y, zero);
  Value atZero = select(rising, zero, infinity);
  Value atInfinity = select(rising, infinity, zero);
  result = select(compare(CmpFPredicate::OEQ, x, zero), atZero, result);
  result = select(compare(CmpFPredicate::OEQ, x, infinity), atInfinity, result);
  result = select(compare(CmpFPredicate::OGE, x, zero), result, number(x, NAN));
  return withTrivialPowers(x, y, result);
}

} // namespace tessera::cpu
