// Random functions of graph ops in which nothing is undefined: every argument
// has a range, and ops are chosen by the ranges of what they read.
#pragma once
#include "compiler/interpreter/Tensor.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace tessera::metamorphic {

/// What becomes of a graph, which decides what may stand in it.
enum class Kind {
  kernels,     ///< f32, bf16, i32, i64 and i1: what kernels are made for
  mixed,       ///< f32 to be narrowed by apply-precision: no loops
  interpreter, ///< f64, f16, i16, i8 and ui8 too
};

/// The kind that a seed stands for: most are `kernels`.
Kind kindOf(uint64_t seed);

/// A module with the public function @f, and private blocks that it calls. The
/// same seed gives the same module. Each argument of @f has the attribute
/// `metamorphic.range`, the module `metamorphic.seed`.
mlir::OwningOpRef<mlir::ModuleOp> generate(mlir::MLIRContext *context,
                                           uint64_t seed);

/// The dialects that generated modules hold.
void loadDialects(mlir::MLIRContext &context);

/// On an argument: array<f64: low, high>, the values it takes, both included.
inline constexpr llvm::StringLiteral kRangeAttr = "metamorphic.range";
/// On the module: i64, from which inputs are drawn.
inline constexpr llvm::StringLiteral kSeedAttr = "metamorphic.seed";

/// On the module: "bf16" where apply-precision is to narrow it.
inline constexpr llvm::StringLiteral kComputeAttr = "metamorphic.compute";
/// On the module: i64, the largest chunk of logits that the head may make.
inline constexpr llvm::StringLiteral kChunkBytesAttr =
    "metamorphic.chunk_bytes";

/// Inputs for @f as its ranges and the module's seed say, each a number of its
/// element type; an argument without a range takes [-1, 1] or, if integer, 0
/// and 1.
interpreter::Tensors makeInputs(mlir::ModuleOp module);

} // namespace tessera::metamorphic
