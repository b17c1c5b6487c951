// Arithmetic on one piece (a scalar or a vector of floats), used by the
// expansions of elementary functions.
#pragma once
#include "compiler/target/cpu/Pieces.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace tessera::cpu {

class Arithmetic {
protected:
  explicit Arithmetic(PieceBuilder &pieces) : p(pieces), b(pieces.builder()) {}

  mlir::Value number(mlir::Value like, double value) {
    return p.number(like.getType(), value);
  }
  mlir::Value add(mlir::Value x, mlir::Value y) {
    return b.create<mlir::arith::AddFOp>(p.location(), x, y);
  }
  mlir::Value sub(mlir::Value x, mlir::Value y) {
    return b.create<mlir::arith::SubFOp>(p.location(), x, y);
  }
  mlir::Value mul(mlir::Value x, mlir::Value y) {
    return b.create<mlir::arith::MulFOp>(p.location(), x, y);
  }
  mlir::Value div(mlir::Value x, mlir::Value y) {
    return b.create<mlir::arith::DivFOp>(p.location(), x, y);
  }
  mlir::Value fma(mlir::Value x, mlir::Value y, mlir::Value z) {
    return b.create<mlir::math::FmaOp>(p.location(), x, y, z);
  }
  mlir::Value abs(mlir::Value x) {
    return b.create<mlir::math::AbsFOp>(p.location(), x);
  }
  mlir::Value withSign(mlir::Value magnitude, mlir::Value sign) {
    return b.create<mlir::math::CopySignOp>(p.location(), magnitude, sign);
  }
  mlir::Value roundEven(mlir::Value x) {
    return b.create<mlir::math::RoundEvenOp>(p.location(), x);
  }
  mlir::Value select(mlir::Value condition, mlir::Value x, mlir::Value y) {
    return b.create<mlir::arith::SelectOp>(p.location(), condition, x, y);
  }
  mlir::Value compare(mlir::arith::CmpFPredicate predicate, mlir::Value x,
                      mlir::Value y) {
    return b.create<mlir::arith::CmpFOp>(p.location(), predicate, x, y);
  }
  /// A comparison with NaN is false, so NaN is passed through.
  mlir::Value clamp(mlir::Value x, double low, double high);
  /// Σ coefficients[i] x^i by Horner's rule.
  mlir::Value poly(mlir::Value x, llvm::ArrayRef<double> coefficients);

  // The bits of f32 as i32, of f64 as i64, in the same shape.
  mlir::Value integer(mlir::Value x);
  mlir::Value real(mlir::Value bits);
  mlir::Value word(mlir::Value like, uint64_t value); ///< a constant of bits

  mlir::Value rsqrt(mlir::Value x);
  /// x = m 2^e with m in [sqrt ½, sqrt 2), x positive, normal or not, by the
  /// format's mantissa bits, least normal number and the bits of sqrt ½.
  std::pair<mlir::Value, mlir::Value>
  mantissa(mlir::Value x, int digits, double leastNormal, uint64_t sqrtHalf);
  /// A logarithm of x with its values at 0, infinity, below 0 and at NaN.
  mlir::Value logEdges(mlir::Value x, mlir::Value result);

  PieceBuilder &p;
  mlir::OpBuilder &b;
};

/// The type with another element.
mlir::Type retyped(mlir::Type type, mlir::Type element);

} // namespace tessera::cpu
