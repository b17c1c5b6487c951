// What a function takes and hands out, and the layers in the names of its
// state: read once, since a deep model has many thousands.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/folding/LayerNames.h"
#include <vector>

namespace tessera::folding {

struct Port {
  mlir::Type type;
  mlir::DictionaryAttr attrs;    ///< null where there are none
  std::optional<LayerName> name; ///< of state that has a layer
};

/// Points into the attributes of the function as it is now.
struct Ports {
  explicit Ports(mlir::func::FuncOp function);
  std::vector<Port> arguments, results;
};

} // namespace tessera::folding
