// The module of a model that an op comes from, which builders record as its
// location.
#pragma once
#include "mlir/IR/Location.h"
#include <string>

namespace tessera::graph {

/// "self_attn.q_proj": the innermost name of the location; of a fused one that
/// of its first. Empty without a name.
inline std::string originOf(mlir::Location location) {
  std::string origin;
  location->walk([&](mlir::Location inner) {
    auto name = llvm::dyn_cast<mlir::NameLoc>(inner);
    if (!name)
      return mlir::WalkResult::advance();
    origin = name.getName().str();
    return mlir::WalkResult::interrupt();
  });
  return origin;
}

} // namespace tessera::graph
