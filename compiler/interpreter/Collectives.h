// What each collective computes, given the inputs of all devices that take
// part in it.
#pragma once
#include "compiler/interpreter/Tensor.h"
#include "mlir/IR/Operation.h"
#include "llvm/Support/Error.h"

namespace tessera::interpreter {

/// The results of all devices, in their order. `ops` are what each of them
/// executes: the same collective with the same attributes, though shares may
/// differ. Combines in the order of devices. Errors: inputs do not fit.
llvm::Expected<Tensors> collect(llvm::ArrayRef<mlir::Operation *> ops,
                                llvm::ArrayRef<const Tensor *> inputs);

} // namespace tessera::interpreter
