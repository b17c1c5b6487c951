// Elementary functions of f64 as straight-line arithmetic, for programs that
// compute in fp64 (`convert-programs-to-f64`). Every result is within 8 units
// in the last place, those of pow within 2^-52 (2 + |y ln x|) of it
// (test/compiler/target/cpu/DoubleMathTest.cpp measures it); NaN gives NaN.
#pragma once
#include "compiler/target/cpu/Arithmetic.h"

namespace tessera::cpu {

class DoublePolynomials : Arithmetic {
public:
  explicit DoublePolynomials(PieceBuilder &pieces) : Arithmetic(pieces) {}

  mlir::Value exp(mlir::Value x);
  mlir::Value exp2(mlir::Value x);
  mlir::Value expm1(mlir::Value x);
  mlir::Value log(mlir::Value x);
  mlir::Value log2(mlir::Value x);
  mlir::Value log10(mlir::Value x);
  mlir::Value log1p(mlir::Value x);
  mlir::Value tanh(mlir::Value x);
  mlir::Value erf(mlir::Value x);
  /// Accurate for |x| up to 2^20 radians.
  mlir::Value sin(mlir::Value x) { return sinusoid(x, 0); }
  mlir::Value cos(mlir::Value x) { return sinusoid(x, 1); }
  using Arithmetic::rsqrt;
  /// x^y for x ≥ 0 (NaN for x < 0), 1 where y is 0 or x is 1.
  mlir::Value pow(mlir::Value x, mlir::Value y);

private:
  /// Converts an integral f64 n, |n| < 2^51, to an integer.
  mlir::Value toInteger(mlir::Value n);
  /// y × 2^n for integral n in [-2000, 2000], rounded once.
  mlir::Value scale(mlir::Value y, mlir::Value n);
  /// x = n ln 2 + r; returns (n, e^r - 1) for |x| ≤ 750.
  std::pair<mlir::Value, mlir::Value> reduceExp(mlir::Value x);
  std::pair<mlir::Value, mlir::Value> mantissa(mlir::Value x) {
    return Arithmetic::mantissa(x, 52, 0x1p-1022, 0x3fe6a09e667f3bcd);
  }
  /// log(1 + f) - f for 1 + f in [sqrt ½, sqrt 2)
  mlir::Value logTail(mlir::Value f);
  mlir::Value sinusoid(mlir::Value x, int quadrant);
};

} // namespace tessera::cpu
