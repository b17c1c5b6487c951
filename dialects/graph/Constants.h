// What is known of a value without computing it.
#pragma once
#include "dialects/graph/GraphOps.h"

namespace tessera::graph {

/// A constant of zeros; of floats, positive ones.
inline bool isZero(mlir::Value value) {
  auto constant = value.getDefiningOp<ConstantOp>();
  auto splat =
      constant ? mlir::dyn_cast<mlir::SplatElementsAttr>(constant.getValue())
               : nullptr;
  if (!splat)
    return false;
  if (mlir::isa<mlir::FloatType>(splat.getElementType()))
    return splat.getSplatValue<llvm::APFloat>().isPosZero();
  return splat.getSplatValue<llvm::APInt>().isZero();
}

} // namespace tessera::graph
