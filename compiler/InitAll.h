// Everything that MLIR-based tools of Tessera register, in one place: a new
// dialect or pass group is added here and every tool has it.
#pragma once

namespace mlir {
class DialectRegistry;
}

namespace tessera {

/// Our dialects, and those of MLIR that our IR and its lowerings hold.
void registerAllDialects(mlir::DialectRegistry &registry);

/// Our passes, and of MLIR's those that help to read and reduce IR.
void registerAllPasses();

} // namespace tessera
