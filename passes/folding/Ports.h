// What a function takes and returns, and the layers of its state: read once,
// since a deep model has many thousands.
#pragma once
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <vector>

namespace tessera::folding {

struct Port {
  mlir::Type type;
  mlir::DictionaryAttr attrs; ///< null where there are none
  graph::LayerAttr layer;     ///< of state of a layer; or null
};

/// Points into the attributes of the function as it is now.
struct Ports {
  explicit Ports(mlir::func::FuncOp function);
  std::vector<Port> arguments, results;
};

} // namespace tessera::folding
