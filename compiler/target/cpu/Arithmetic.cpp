#include "compiler/target/cpu/Arithmetic.h"
#include "mlir/IR/TypeUtilities.h"
#include <cmath>

using namespace mlir;
using arith::CmpFPredicate;

namespace tessera::cpu {

Type retyped(Type type, Type element) {
  if (auto vector = dyn_cast<VectorType>(type))
    return VectorType::get(vector.getShape(), element);
  return element;
}

Value Arithmetic::clamp(Value x, double low, double high) {
  Value lo = number(x, low), hi = number(x, high);
  x = select(compare(CmpFPredicate::OLT, x, lo), lo, x);
  return select(compare(CmpFPredicate::OGT, x, hi), hi, x);
}

Value Arithmetic::poly(Value x, ArrayRef<double> coefficients) {
  Value result = number(x, coefficients.back());
  for (double c : llvm::reverse(coefficients.drop_back()))
    result = fma(result, x, number(x, c));
  return result;
}

static unsigned widthOf(Value x) {
  return getElementTypeOrSelf(x).getIntOrFloatBitWidth();
}

Value Arithmetic::integer(Value x) {
  Type bits = retyped(x.getType(), b.getIntegerType(widthOf(x)));
  return b.create<arith::BitcastOp>(p.location(), bits, x);
}

Value Arithmetic::real(Value bits) {
  Type element = widthOf(bits) == 64 ? b.getF64Type() : b.getF32Type();
  return b.create<arith::BitcastOp>(p.location(),
                                    retyped(bits.getType(), element), bits);
}

Value Arithmetic::word(Value like, uint64_t value) {
  return p.bits(retyped(like.getType(), b.getIntegerType(widthOf(like))),
                value);
}

Value Arithmetic::rsqrt(Value x) {
  return div(number(x, 1.0), b.create<math::SqrtOp>(p.location(), x));
}

std::pair<Value, Value> Arithmetic::mantissa(Value x, int digits,
                                             double leastNormal,
                                             uint64_t sqrtHalf) {
  // Denormals are first multiplied by a power of two.
  int shift = digits + 2;
  Value tiny = compare(CmpFPredicate::OLT, x, number(x, leastNormal));
  x = select(tiny, mul(x, number(x, std::ldexp(1.0, shift))), x);
  Value shifted =
      b.create<arith::SubIOp>(p.location(), integer(x), word(x, sqrtHalf));
  Value e = b.create<arith::ShRSIOp>(p.location(), shifted, word(x, digits));
  Value fraction = b.create<arith::AndIOp>(
      p.location(), shifted, word(x, (uint64_t(1) << digits) - 1));
  Value m =
      real(b.create<arith::AddIOp>(p.location(), fraction, word(x, sqrtHalf)));
  Value exponent = b.create<arith::SIToFPOp>(p.location(), x.getType(), e);
  exponent = sub(exponent, select(tiny, number(x, shift), number(x, 0.0)));
  return {m, exponent};
}

Value Arithmetic::logEdges(Value x, Value result) {
  Value zero = number(x, 0.0), infinity = number(x, INFINITY);
  result = select(compare(CmpFPredicate::OEQ, x, zero), number(x, -INFINITY),
                  result);
  result = select(compare(CmpFPredicate::OEQ, x, infinity), infinity, result);
  // false for NaN too
  return select(compare(CmpFPredicate::OGE, x, zero), result, number(x, NAN));
}

} // namespace tessera::cpu
