// Elementary functions of f32 as straight-line arithmetic, for scalars and for
// vectors of any width. Every result is within 4 units in the last place
// (test/compiler/target/cpu measures it); NaN gives NaN.
#pragma once
#include "compiler/target/cpu/Arithmetic.h"

namespace tessera::cpu {

class Polynomials : Arithmetic {
public:
  /// `hasScale`: vscalefps exists for vectors of 16.
  Polynomials(PieceBuilder &pieces, bool hasScale)
      : Arithmetic(pieces), hasScale(hasScale) {}

  mlir::Value exp(mlir::Value x);
  mlir::Value exp2(mlir::Value x);
  mlir::Value expm1(mlir::Value x);
  mlir::Value log(mlir::Value x);
  mlir::Value log2(mlir::Value x);
  mlir::Value log10(mlir::Value x);
  mlir::Value log1p(mlir::Value x);
  mlir::Value tanh(mlir::Value x);
  mlir::Value erf(mlir::Value x);
  /// Reduced in f64: accurate for |x| up to 2^30 radians.
  mlir::Value sin(mlir::Value x) { return sinusoid(x, 0); }
  mlir::Value cos(mlir::Value x) { return sinusoid(x, 1); }
  using Arithmetic::rsqrt;
  /// x^y for x ≥ 0 (NaN for x < 0), 1 where y is 0 or x is 1.
  mlir::Value pow(mlir::Value x, mlir::Value y);

private:
  /// Whether such a value is scaled by one instruction.
  bool scalesAtOnce(mlir::Value y) const;
  /// An exponent whose power of two is zero, computed without a denormal.
  double leastExponent(mlir::Value y) const;
  /// y × 2^n for integral n from leastExponent on, up to 300, rounded once.
  mlir::Value scale(mlir::Value y, mlir::Value n);
  mlir::Value toInteger(mlir::Value n); // n integral
  mlir::Value sinusoid(mlir::Value x, int quadrant);
  /// x = n ln 2 + r; returns (n, e^r - 1), with full accuracy unless 2^n is
  /// zero.
  std::pair<mlir::Value, mlir::Value> reduceExp(mlir::Value x);
  std::pair<mlir::Value, mlir::Value> mantissa(mlir::Value x) {
    return Arithmetic::mantissa(x, 23, 0x1p-126, 0x3f3504f3);
  }
  /// log(1 + f) for 1 + f in [sqrt ½, sqrt 2): f - f²/2 + f³ P(f) without `f`
  mlir::Value logTail(mlir::Value f);
  mlir::Value extend(mlir::Value x);
  mlir::Value narrow(mlir::Value x);

  bool hasScale;
};

} // namespace tessera::cpu
