// Rounds of an exchange of experts' rows after the first. Between send_rows and
// the ops at which rows end (return_rows, grouped_outer) is what one round
// computes; an `overflow` loop repeats it for the rows
// that the first round had no room for, and adds what it gives. Of the rows of
// later rounds nothing is saved: their gradient computes them again.
#pragma once
#include "dialects/graph/GraphOps.h"

namespace tessera::autodiff {

/// Adds the loops of a block that was not differentiated yet.
void addForwardRounds(mlir::Block &block);

/// Adds those of a gradient: `block` has the ops `forward` and those of their
/// gradient. Updates `gradients`, values in the block.
void addGradientRounds(mlir::Block &block,
                       llvm::ArrayRef<mlir::Operation *> forward,
                       llvm::MutableArrayRef<mlir::Value> gradients);

} // namespace tessera::autodiff
