// Makes a module that shows a defect smaller while it still shows it.
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace tessera::metamorphic {

/// Drops results, ops, arguments and functions of `module` as long as `fails`
/// holds for what is left. Ops give way to one of their operands or to a new
/// argument that takes the values that the op had, so that nothing becomes
/// undefined. `fails` may crash its own process only.
mlir::OwningOpRef<mlir::ModuleOp>
reduceModule(mlir::ModuleOp module,
             llvm::function_ref<bool(mlir::ModuleOp)> fails);

} // namespace tessera::metamorphic
