// The module's programs, and the meaning of their arguments.
#pragma once
#include "dialects/graph/Programs.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/IRMapping.h"

namespace tessera::autodiff {

/// What the cotangent of @loss's first result is called as an input, and with a
/// dot and the name of the output those of its others.
inline constexpr llvm::StringLiteral kCotangent = "cotangent";

/// A target that contributes nothing to the loss (PyTorch's convention).
inline constexpr int64_t kIgnoredTarget = -100;

struct Parameter {
  unsigned index; ///< of the argument
  mlir::StringAttr name;
  mlir::RankedTensorType type;
  graph::LayerAttr layer; ///< null outside the layers
  bool decay;
  bool frozen; ///< has no gradient; @finish_step may give its next value
  mlir::Attribute quantized = {}; ///< graph.quantized; null: as stored
};

/// Arguments of role parameter, in order.
llvm::SmallVector<Parameter> parametersOf(mlir::func::FuncOp function);

/// The argument that the host writes as `name`; null if there is none.
mlir::Value findInput(mlir::func::FuncOp function, llvm::StringRef name);
/// Those of graph::batchInputs() that the function has.
llvm::SmallVector<llvm::StringRef> batchInputsOf(mlir::func::FuncOp function);
/// What result `index` is called as an output; empty if it is none.
llvm::StringRef outputName(mlir::func::FuncOp function, unsigned index);

/// The module's program of that kind, plain (requirePlainFunction). Null after
/// an error that says what is wrong or what makes it.
mlir::func::FuncOp requireProgram(mlir::ModuleOp module, graph::Program kind,
                                  llvm::StringRef madeBy);

/// Name, type and attributes of an argument or result of a program.
struct Port {
  mlir::RankedTensorType type;
  mlir::DictionaryAttr attrs;
};
Port statePort(mlir::StringAttr name, mlir::RankedTensorType type,
               graph::Role role, graph::LayerAttr layer = {});
Port parameterPort(const Parameter &parameter);
Port inputPort(llvm::StringRef name, mlir::RankedTensorType type);
Port outputPort(llvm::StringRef name, mlir::RankedTensorType type);

/// A program with an empty entry block.
mlir::func::FuncOp createProgram(mlir::OpBuilder &builder, mlir::Location loc,
                                 graph::Program kind,
                                 llvm::ArrayRef<Port> arguments,
                                 llvm::ArrayRef<Port> results);

/// Clones the body of `function` with its arguments mapped; returns what it
/// returns.
llvm::SmallVector<mlir::Value> inlineBody(mlir::OpBuilder &builder,
                                          mlir::func::FuncOp function,
                                          mlir::IRMapping &map);

/// Moves before a loop over microbatches what is worth a buffer: scalars, and
/// conversions of weights. A view or an elementwise op costs nothing where it
/// is used.
void hoistInvariants(graph::LoopOp loop);

/// How many of `targets` are not kIgnoredTarget: i64[].
mlir::Value countTargets(mlir::OpBuilder &builder, mlir::Location loc,
                         mlir::Value targets);

/// The number of terms that the loss of a batch is a mean over: its targets, or
/// (graph::kDocumentsPerTermAttr on `loss`) groups of its documents, of those
/// with a label if the loss has labels. `batch`
/// gives the value of an input with sequences in its last dimension. i64[].
mlir::Value countTerms(mlir::OpBuilder &builder, mlir::Location loc,
                       mlir::func::FuncOp loss,
                       llvm::function_ref<mlir::Value(llvm::StringRef)> batch);

} // namespace tessera::autodiff
