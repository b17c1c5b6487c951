// Taylor series where their intervals are short enough, else fits by
// fit_polynomials.py in this folder. Comments state the truncation error at
// each use.
#include "compiler/target/cpu/Polynomials.h"
#include <array>
#include <cmath>

using namespace mlir;
using arith::CmpFPredicate;

namespace tessera::cpu {

// 1/2!, 1/3! … 1/13!: the first omitted term is below 2^-57 of e^r - 1 on |r| ≤
// ln2/2.
static constexpr std::array<double, 12> exponentialSeries() {
  std::array<double, 12> series{};
  double factorial = 1;
  for (size_t i = 0; i < series.size(); ++i)
    series[i] = 1 / (factorial *= static_cast<double>(i + 2));
  return series;
}
static constexpr std::array<double, 12> kExponential = exponentialSeries();

const Polynomials::Format DoublePolynomials::kFormat = {
    .digits = 52,
    .bias = 1023,
    .magic = 0x4338000000000000,
    .leastNormal = 0x1p-1022,
    .sqrtHalf = 0x3fe6a09e667f3bcd,
    .ln2High = 0x1.62e42feep-1, // n × it is exact
    .ln2Low = 0x1.a39ef35793c76p-33,
    .exponential = kExponential,
    .mostExp = 710,
    .leastExpm1 = -40,
    .mostTanh = 60};

//===--- bits -------------------------------------------------------------===//

// Two factors, so that neither leaves the normal range before the last one.
Value DoublePolynomials::scale(Value y, Value n) {
  Value half = roundEven(mul(n, number(n, 0.5)));
  return mul(mul(y, powerOfTwo(toInteger(half))),
             powerOfTwo(toInteger(sub(n, half))));
}

//===--- exponentials -----------------------------------------------------===//

Value DoublePolynomials::exp2(Value x) {
  x = clamp(x, -1076.0, 1025.0);
  Value n = roundEven(x);
  Value r = mul(sub(x, n), number(x, M_LN2));
  Value tail = fma(mul(r, r), poly(r, kExponential), r);
  return scale(add(tail, number(x, 1.0)), n);
}

//===--- logarithms -------------------------------------------------------===//

// With s = f / (2 + f), log(1 + f) = 2 atanh s = f - f²/2 + s (f²/2 + R), where
// R = Σ 2 s^2k / (2k + 1); s² < 0.0295, so the truncation error is below 2^-60.
Value DoublePolynomials::logTail(Value f) {
  std::array<double, 11> series{};
  for (size_t k = 1; k < series.size(); ++k)
    series[k] = 2.0 / static_cast<double>(2 * k + 1);
  Value s = div(f, add(f, number(f, 2.0))), half = mul(f, number(f, 0.5));
  half = mul(half, f);
  return fma(s, add(half, poly(mul(s, s), series)), sub(number(f, 0.0), half));
}

Value DoublePolynomials::log2(Value x) {
  auto [m, e] = mantissa(x);
  Value f = sub(m, number(x, 1.0));
  Value own = mul(add(f, logTail(f)), number(x, kLog2E));
  return logEdges(x, add(e, own));
}

//===--- the others -------------------------------------------------------===//

// |x| < 0.9: the series 2/√π Σ (-1)^k x^(2k+1) / (k! (2k + 1)), truncation
// error 2^-58. Above: 1 - erfc with erfc x = e^(-x²) G(u) / (1 + 2x), u = (x -
// 4) / (x + 4); error 2^-60 of G. 1 from 6.1 on.
Value DoublePolynomials::erf(Value x) {
  std::array<double, 18> series{};
  double factor = 2 / std::sqrt(M_PI);
  for (size_t k = 0; k < series.size(); ++k) {
    series[k] = factor / static_cast<double>(2 * k + 1);
    factor /= -static_cast<double>(k + 1);
  }
  Value small = mul(x, poly(mul(x, x), series));
  Value y = clamp(abs(x), 0.8, 6.1), four = number(x, 4.0);
  Value u = div(sub(y, four), add(y, four));
  Value g = poly(
      u,
      {1.2329951186255525, -0.13962111684056252, 0.015379652102619233,
       0.068097054254697663, -0.10103906603615702, 0.093732834998083324,
       -0.066330365824864589, 0.037167515518850669, -0.01619773362304211,
       0.0050319716801491665, -0.00075777772789652521, -0.00019929634238678695,
       0.00015056316538869178, -2.4198122735997972e-5, -1.0228390465162361e-5,
       7.559974949485539e-6, 2.0483764266776938e-6, -1.1498445314902384e-7});
  Value tail = div(mul(g, exp(sub(number(x, 0.0), mul(y, y)))),
                   fma(y, number(x, 2.0), number(x, 1.0)));
  Value large = withSign(sub(number(x, 1.0), tail), x);
  return select(compare(CmpFPredicate::OLT, abs(x), number(x, 0.9)), small,
                large);
}

// x = n π/2 + r, |r| ≤ π/4, with π/2 split into three parts. `quadrant` 1
// shifts sine to cosine.
Value DoublePolynomials::sinusoid(Value x, int quadrant) {
  Value n = roundEven(mul(x, number(x, 0.63661977236758134)));
  Value r = fma(n, number(x, -0x1.921fb54442d18p0), x);
  r = fma(n, number(x, -0x1.1a62633145c07p-54), r);
  r = fma(n, number(x, 0x1.f1976b7ed8fbcp-110), r);
  Value q = b.create<arith::AddIOp>(p.location(), toInteger(n),
                                    word(x, static_cast<uint64_t>(quadrant)));
  // (-1)^k / (2k)! and (-1)^k / (2k+1)!; r^18 / 18! is below 2^-58
  std::array<double, 9> even{}, odd{};
  double factorial = 1;
  for (size_t k = 0; k < even.size(); ++k) {
    double sign = k % 2 ? -1 : 1;
    even[k] = sign / factorial;
    factorial *= static_cast<double>(2 * k + 1);
    odd[k] = sign / factorial;
    factorial *= static_cast<double>(2 * k + 2);
  }
  Value square = mul(r, r), cosine = poly(square, even);
  Value sine = fma(mul(square, r), poly(square, ArrayRef(odd).drop_front()), r);
  return inQuadrant(q, sine, cosine);
}

Value DoublePolynomials::pow(Value x, Value y) {
  return withTrivialPowers(x, y, exp(mul(y, log(x))));
}

} // namespace tessera::cpu
