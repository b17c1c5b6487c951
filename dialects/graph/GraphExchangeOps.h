// Where rows of experts may change devices: graph.send_rows, graph.return_rows.
#pragma once
#include "dialects/graph/GraphOps.h"

namespace tessera::graph {

/// On a loop: its iterations are the rounds of exchanges after the first, so
/// that on whole tensors there are none. `partition-to-local` makes it a
/// counted loop or removes it.
inline constexpr llvm::StringLiteral kOverflowAttr = "graph.overflow";
/// On a loop: the first carried value, i32[] and the same in all iterations,
/// limits their number.
inline constexpr llvm::StringLiteral kCountedAttr = "graph.counted";

} // namespace tessera::graph

#define GET_OP_CLASSES
#include "dialects/graph/GraphExchangeOps.h.inc"
