// Many equal layers as few, while it is decided how they are computed.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

namespace tessera {

#define GEN_PASS_DECL
#include "passes/folding/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/folding/Passes.h.inc"

} // namespace tessera
