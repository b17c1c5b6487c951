// Doubles as numbers of narrower float types.
#pragma once
#include "mlir/IR/BuiltinTypes.h"

namespace tessera::metamorphic {

/// `value` rounded to the float type (to nearest even).
inline double rounded(double value, mlir::Type element) {
  auto type = mlir::dyn_cast<mlir::FloatType>(element);
  if (!type || type.isF64())
    return value;
  if (type.isF32())
    return static_cast<float>(value);
  llvm::APFloat number(value);
  bool inexact;
  number.convert(type.getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven,
                 &inexact);
  return number.convertToDouble();
}

} // namespace tessera::metamorphic
