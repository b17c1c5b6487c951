// Inputs and results of interpreted functions as safetensors files.
#pragma once
#include "compiler/interpreter/Tensor.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/Error.h"
#include <string>

namespace tessera::interpreter {

/// What the arguments (results) of a function are called in files: their
/// graph.state, else their graph.input (graph.output), else "arg0" ("result0"),
/// "arg1" and so on.
std::vector<std::string> argumentNames(mlir::func::FuncOp function);
std::vector<std::string> resultNames(mlir::func::FuncOp function);

/// Reads the arguments of `function` by name from the file. Any number type is
/// accepted; extra tensors are ignored. Errors: a tensor that is missing or
/// whose shape differs from the argument's.
llvm::Expected<Tensors> readInputs(mlir::func::FuncOp function,
                                   const std::string &path);

/// Writes results under their names, floats as F64 and integers as I64.
llvm::Error writeResults(mlir::func::FuncOp function, const Tensors &results,
                         const std::string &path);

} // namespace tessera::interpreter
