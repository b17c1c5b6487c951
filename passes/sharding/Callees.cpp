#include "passes/sharding/Callees.h"
#include "dialects/graph/GraphOps.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;

static bool isPointwiseOp(Operation &op) {
  if (auto broadcast = dyn_cast<graph::BroadcastOp>(op))
    return graph::tensorType(broadcast.getInput()).getRank() == 0;
  if (auto constant = dyn_cast<graph::ConstantOp>(op))
    return isa<SplatElementsAttr>(constant.getValue());
  return isa<graph::Elementwise, func::ReturnOp>(op);
}

bool sharding::isPointwise(func::FuncOp function) {
  if (!function || function.isPublic() || !function.getBody().hasOneBlock())
    return false;
  Type shaped;
  auto fits = [&](Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor || tensor.getRank() == 0)
      return static_cast<bool>(tensor);
    if (!shaped)
      shaped = tensor;
    return tensor.getShape() == cast<RankedTensorType>(shaped).getShape();
  };
  return llvm::all_of(function.getArgumentTypes(), fits) &&
         llvm::all_of(function.getResultTypes(), fits) && shaped &&
         llvm::all_of(function.getBody().front(), isPointwiseOp);
}

Callees::Callees(ModuleOp module) : symbols(module) {
  for (auto function : module.getOps<func::FuncOp>())
    if (sharding::isPointwise(function))
      pointwise.insert(function);
}
