// Shared by the skeletons with reductions: neutral elements, combining,
// accumulation over register tiles.
#pragma once
#include "passes/kernels/ClusterLaunch.h"

namespace tessera {

/// The element that `kind` leaves unchanged, as a scalar of a held type.
mlir::Value neutral(mlir::OpBuilder &b, mlir::Location loc,
                    graph::ReduceKind kind, mlir::Type held);
/// x ∘ y on scalars or vectors of one type.
mlir::Value combine(mlir::OpBuilder &b, mlir::Location loc,
                    graph::ReduceKind kind, mlir::Value x, mlir::Value y);
/// A rank-1 vector to a scalar; a scalar is its own reduction.
mlir::Value reduceTile(mlir::OpBuilder &b, mlir::Location loc,
                       graph::ReduceKind kind, mlir::Value tile);
inline graph::ReduceKind kindOf(const ExprNode &node) {
  return mlir::cast<graph::ReduceOp>(node.op).getKind();
}

/// Sums of exponentials, by node, with the node of the maximum that each is
/// relative to: Σ exp(x - max(max x, the least number)). A GPU computes both in
/// one pass over x (Milakov & Gimelshein 2018).
using OnlineSums = llvm::SmallDenseMap<unsigned, unsigned>;
/// Those of the piece whose maximum has no other use.
OnlineSums findOnlineSums(const ExprPiece &piece);

/// Reduces the operands of `nodes` (reductions) over dimensions [dim, rank) of
/// the piece, the last one in register tiles, starting from `scalars`. `enter`
/// prepares the innermost level of each tile, `leave` is called with the same
/// level once the operands are emitted. Nodes in `online` follow the nodes of
/// their maxima. Returns a scalar for each node.
llvm::SmallVector<mlir::Value>
reduceOver(EmitScope &level, llvm::ArrayRef<unsigned> nodes, unsigned dim,
           mlir::ValueRange scalars, const TileTarget &target,
           llvm::function_ref<void(EmitScope &)> enter,
           llvm::function_ref<void(EmitScope &)> leave,
           const OnlineSums &online = OnlineSums());

/// On a GPU: whether a column cluster reduces so many rows that several blocks
/// share a micropanel, and its two launches in that case (passes/kernels/gpu).
bool isTallColumn(const ClusterExpression &expression);
llvm::Expected<llvm::SmallVector<mlir::Value>>
tileGpuColumn(graph::ClusterOp cluster, const ClusterExpression &expression,
              TilingContext &context);

} // namespace tessera
