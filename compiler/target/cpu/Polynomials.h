// Elementary functions as straight-line arithmetic, for scalars and for vectors
// of any width. NaN gives NaN.
#pragma once
#include "compiler/target/cpu/Arithmetic.h"

namespace tessera::cpu {

/// The functions of a format of floats: what both share, by its constants and
/// by the steps that differ.
class Polynomials : protected Arithmetic {
public:
  virtual ~Polynomials() = default;

  mlir::Value exp(mlir::Value x);
  virtual mlir::Value exp2(mlir::Value x) = 0;
  mlir::Value expm1(mlir::Value x);
  mlir::Value log(mlir::Value x);
  virtual mlir::Value log2(mlir::Value x) = 0;
  mlir::Value log10(mlir::Value x);
  mlir::Value log1p(mlir::Value x);
  mlir::Value tanh(mlir::Value x);
  virtual mlir::Value erf(mlir::Value x) = 0;
  mlir::Value sin(mlir::Value x) { return sinusoid(x, 0); }
  mlir::Value cos(mlir::Value x) { return sinusoid(x, 1); }
  using Arithmetic::rsqrt;
  /// x^y for x ≥ 0 (NaN for x < 0), 1 where y is 0 or x is 1.
  virtual mlir::Value pow(mlir::Value x, mlir::Value y) = 0;

protected:
  struct Format {
    int digits, bias; ///< of the mantissa; of exponents
    uint64_t magic;   ///< bits of 1.5 × 2^digits
    double leastNormal;
    uint64_t sqrtHalf; ///< bits of sqrt ½
    double ln2High, ln2Low;
    llvm::ArrayRef<double> exponential; ///< P of e^r - 1 = r + r² P(r)
    /// Bounds from which on results are infinite, or -1 or 1.
    double mostExp, leastExpm1, mostTanh;
  };
  static constexpr double kLog2E = 1.4426950408889634;

  Polynomials(PieceBuilder &pieces, const Format &format)
      : Arithmetic(pieces), format(format) {}

  /// An exponent whose power of two is zero, computed without a denormal.
  virtual double leastExponent(mlir::Value y) const = 0;
  /// y × 2^n for integral n from leastExponent on, rounded once.
  virtual mlir::Value scale(mlir::Value y, mlir::Value n) = 0;
  /// log(1 + f) - f for 1 + f in [sqrt ½, sqrt 2)
  virtual mlir::Value logTail(mlir::Value f) = 0;
  virtual mlir::Value sinusoid(mlir::Value x, int quadrant) = 0;

  /// The integer that an integral float holds.
  mlir::Value toInteger(mlir::Value n);
  /// 2^e of an integer.
  mlir::Value powerOfTwo(mlir::Value e);
  /// x = n ln 2 + r; returns (n, e^r - 1), with full accuracy unless 2^n is
  /// zero.
  std::pair<mlir::Value, mlir::Value> reduceExp(mlir::Value x);
  std::pair<mlir::Value, mlir::Value> mantissa(mlir::Value x) {
    return Arithmetic::mantissa(x, format.digits, format.leastNormal,
                                format.sqrtHalf);
  }
  /// The sine of r + q π/2, of those of r.
  mlir::Value inQuadrant(mlir::Value q, mlir::Value sine, mlir::Value cosine);
  mlir::Value withTrivialPowers(mlir::Value x, mlir::Value y,
                                mlir::Value power);

private:
  const Format &format;
};

/// Of f32: every result is within 4 units in the last place
/// (test/compiler/target/cpu measures it). Angles are reduced in f64: accurate
/// for |x| up to 2^30 radians.
class FloatPolynomials final : public Polynomials {
public:
  /// `hasScale`: vscalefps exists for vectors of 16.
  FloatPolynomials(PieceBuilder &pieces, bool hasScale)
      : Polynomials(pieces, kFormat), hasScale(hasScale) {}
  mlir::Value exp2(mlir::Value x) override;
  mlir::Value log2(mlir::Value x) override;
  mlir::Value erf(mlir::Value x) override;
  mlir::Value pow(mlir::Value x, mlir::Value y) override;

private:
  static const Format kFormat;
  /// Whether such a value is scaled by one instruction.
  bool scalesAtOnce(mlir::Value y) const;
  double leastExponent(mlir::Value y) const override;
  mlir::Value scale(mlir::Value y, mlir::Value n) override;
  mlir::Value logTail(mlir::Value f) override;
  mlir::Value sinusoid(mlir::Value x, int quadrant) override;
  mlir::Value extend(mlir::Value x);
  mlir::Value narrow(mlir::Value x);

  bool hasScale;
};

/// Of f64, for programs that compute in fp64 (`convert-programs-to-f64`):
/// within 8 units in the last place, those of pow within 2^-52 (2 + |y ln x|)
/// of it (DoubleMathTest.cpp). Angles are accurate for |x| up to 2^20 radians.
class DoublePolynomials final : public Polynomials {
public:
  explicit DoublePolynomials(PieceBuilder &pieces)
      : Polynomials(pieces, kFormat) {}
  mlir::Value exp2(mlir::Value x) override;
  mlir::Value log2(mlir::Value x) override;
  mlir::Value erf(mlir::Value x) override;
  mlir::Value pow(mlir::Value x, mlir::Value y) override;

private:
  static const Format kFormat;
  double leastExponent(mlir::Value) const override { return -1076; }
  mlir::Value scale(mlir::Value y, mlir::Value n) override;
  mlir::Value logTail(mlir::Value f) override;
  mlir::Value sinusoid(mlir::Value x, int quadrant) override;
};

} // namespace tessera::cpu
