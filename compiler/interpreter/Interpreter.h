// The reference: runs a function of graph ops in double precision.
#pragma once
#include "compiler/interpreter/Tensor.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"

namespace tessera::interpreter {

struct Options {
  /// Rounds the result of every op to its element type (to nearest even), to
  /// tell what rounding does from what a pass does.
  bool roundToType = false;
};

/// Elements of the largest tensor that the reference takes: 32 GiB of doubles.
inline constexpr int64_t kMaxElements = int64_t{1} << 32;

/// Whether values of this type can be interpreted: tensors of static shape with
/// at most kMaxElements elements.
bool isInterpretable(mlir::Type type);

/// Runs `function` of `module` on `inputs`, one an argument, each of the
/// argument's shape; gives one tensor a result. Float types are taken as double
/// unless rounding is asked for; integers wrap around in their own width. The
/// module must have been verified. Executes func.call and func.return, all
/// graph ops, and composites by their decomposition. Where a program says it is
/// computed changes nothing: shardings are not read and a dist.reshard is the
/// same tensor; collectives need several devices (MeshInterpreter.h). Errors:
/// an unknown function, an input of another shape, an op of another dialect, an
/// index out of bounds.
llvm::Expected<Tensors> interpret(mlir::ModuleOp module,
                                  llvm::StringRef function,
                                  llvm::ArrayRef<Tensor> inputs,
                                  const Options &options = {});

} // namespace tessera::interpreter
