// What each collective computes, given the inputs of all devices that take
// part in it.
#pragma once
#include "compiler/interpreter/Device.h"
#include "mlir/IR/Operation.h"
#include "llvm/Support/Error.h"

namespace tessera::interpreter {

/// The results of all devices, in their order. `ops` are what each of them
/// executes, on `operands`: the same collective with the same attributes,
/// though shares may differ. Combines in the order of devices. Errors: operands
/// do not fit.
llvm::Expected<Tensors> collect(llvm::ArrayRef<mlir::Operation *> ops,
                                llvm::ArrayRef<Operands> operands);

} // namespace tessera::interpreter
