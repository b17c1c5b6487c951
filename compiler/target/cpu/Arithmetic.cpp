#include "compiler/target/cpu/Arithmetic.h"

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

} // namespace tessera::cpu
