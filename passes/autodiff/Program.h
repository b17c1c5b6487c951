// Names of the module's functions, and the meaning of their arguments.
#pragma once
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/IRMapping.h"

namespace tessera::autodiff {

// Functions of the module, see dialects/graph/README.md.
inline constexpr llvm::StringLiteral kLoss = "loss";
inline constexpr llvm::StringLiteral kGradients = "gradients";
inline constexpr llvm::StringLiteral kInit = "init";
inline constexpr llvm::StringLiteral kTrainStep = "train_step";
inline constexpr llvm::StringLiteral kEvalStep = "eval_step";
inline constexpr llvm::StringLiteral kPrepareStep = "prepare_step";
inline constexpr llvm::StringLiteral kFinishStep = "finish_step";

/// What the cotangent of @loss's first result is called as an input, and with a
/// dot and the name of the output those of its others.
inline constexpr llvm::StringLiteral kCotangent = "cotangent";

/// A target that contributes nothing to the loss (PyTorch's convention).
inline constexpr int64_t kIgnoredTarget = -100;

struct Parameter {
  unsigned index; ///< of the argument
  mlir::StringAttr name;
  mlir::RankedTensorType type;
  bool decay;
  bool fixed; ///< has no gradient; @finish_step gives its next value
};

/// Arguments of role parameter, in order.
llvm::SmallVector<Parameter> parametersOf(mlir::func::FuncOp function);

/// The argument that the host writes as `name`; null if there is none.
mlir::Value findInput(mlir::func::FuncOp function, llvm::StringRef name);
/// What result `index` is called as an output; empty if it is none.
llvm::StringRef outputName(mlir::func::FuncOp function, unsigned index);

/// The module's function of that name, plain (requirePlainFunction). Null after
/// an error that says what is wrong or what makes it.
mlir::func::FuncOp requireFunction(mlir::ModuleOp module, llvm::StringRef name,
                                   llvm::StringRef madeBy);

/// Name, type and attributes of an argument or result of a program.
struct Port {
  mlir::RankedTensorType type;
  mlir::DictionaryAttr attrs;
};
Port statePort(mlir::StringAttr name, mlir::RankedTensorType type,
               graph::Role role, bool decay = false);
Port inputPort(llvm::StringRef name, mlir::RankedTensorType type);
Port outputPort(llvm::StringRef name, mlir::RankedTensorType type);

/// A public function with an empty entry block.
mlir::func::FuncOp createProgram(mlir::OpBuilder &builder, mlir::Location loc,
                                 llvm::StringRef name,
                                 llvm::ArrayRef<Port> arguments,
                                 llvm::ArrayRef<Port> results);

/// Clones the body of `function` with its arguments mapped; returns what it
/// returns.
llvm::SmallVector<mlir::Value> inlineBody(mlir::OpBuilder &builder,
                                          mlir::func::FuncOp function,
                                          mlir::IRMapping &map);

/// How many of `targets` are not kIgnoredTarget: i64[].
mlir::Value countTargets(mlir::OpBuilder &builder, mlir::Location loc,
                         mlir::Value targets);

} // namespace tessera::autodiff
