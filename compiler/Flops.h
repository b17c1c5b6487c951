// Model FLOPs: what the mathematics of the model needs, whatever the compiler
// makes of it. MFU is reported against them.
#pragma once
#include "mlir/IR/BuiltinOps.h"

namespace tessera {

/// Module attribute: those of one forward pass of @loss over a microbatch.
inline constexpr llvm::StringLiteral kForwardFlopsAttr =
    "tessera.forward_flops";

/// Module attribute, where it is not 0: of those, products by weights that are
/// constant (graph.frozen), as an adapter's base is.
inline constexpr llvm::StringLiteral kConstantFlopsAttr =
    "tessera.constant_flops";

/// Counts contractions, attention and the head (2 a multiply-add; only what the
/// mask lets through in attention) in @loss and @logits of an imported module,
/// following calls, and records them as attributes.
void annotateForwardFlops(mlir::ModuleOp module);

/// Records the FLOPs of the programs that autodiff made: 3 forward passes a
/// microbatch for @train_step (backward counts twice forward, but once for
/// products by constant weights, which have no gradient; recomputation does not
/// count, the usual definition of MFU, PaLM appendix B), one for @eval_step.
void annotateProgramFlops(mlir::ModuleOp module);

} // namespace tessera
