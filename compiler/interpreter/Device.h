// What the ops of the dist dialect do when one of several devices runs a
// program.
#pragma once
#include "compiler/interpreter/Interpreter.h"
#include "mlir/IR/Operation.h"

namespace tessera::interpreter {

/// What an op takes, in the order of its operands.
using Operands = llvm::ArrayRef<const Tensor *>;

class Device {
public:
  virtual ~Device() = default;

  /// The result of a collective or of dist.offset, which has no operands. A
  /// started collective completes at once: its result replaces the pending
  /// tensor. Errors: the devices do not execute matching collectives.
  virtual llvm::Expected<Tensor> execute(mlir::Operation *op,
                                         Operands operands) = 0;
};

/// `interpret`, on a device.
llvm::Expected<Tensors> interpretOn(Device &device, mlir::ModuleOp module,
                                    llvm::StringRef function,
                                    llvm::ArrayRef<Tensor> inputs,
                                    const Options &options);

} // namespace tessera::interpreter
