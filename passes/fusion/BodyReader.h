// Traces values back to the arguments that they are computed from, within one
// box of an iteration space.
#pragma once
#include "passes/fusion/ClusterExpression.h"
#include <map>

namespace tessera {

/// Adds to the nodes of `piece` the computation of a value at an index. If that
/// is not a linear form, `wanted` says how the box must be divided first, or
/// `culprit` names the op that fits no expression.
class BodyReader {
public:
  BodyReader(ExprPiece &piece, const ExpressionOptions &options)
      : piece(piece), options(options) {}

  std::optional<unsigned> build(mlir::Value value, const Linear &at);

  Linear reduced; ///< index among the reduced elements
  std::optional<Division> wanted;
  mlir::Operation *culprit = nullptr;

private:
  std::optional<unsigned> make(mlir::Value value, const Linear &at);
  std::optional<unsigned> makeElementwise(mlir::Operation *op,
                                          const Linear &at);
  std::optional<unsigned> visit(graph::ReduceOp op, const Linear &at);
  std::optional<unsigned> visit(graph::EmbeddingOp op, const Linear &at);
  std::optional<unsigned> visit(graph::ConcatOp op, const Linear &at);
  std::optional<unsigned> visit(graph::PadOp op, const Linear &at);
  std::optional<unsigned> visit(graph::RandomOp op, const Linear &at);
  /// The node of a view's input, given how its indices follow from the
  /// result's.
  std::optional<unsigned>
  view(mlir::Operation *op, const Linear &at,
       llvm::function_ref<void(llvm::ArrayRef<Linear>,
                               llvm::MutableArrayRef<Linear>)>
           map);
  std::optional<llvm::SmallVector<Linear>> indices(mlir::Value value,
                                                   const Linear &at) {
    return delinearize(at, graph::tensorType(value).getShape(), piece.sizes,
                       wanted);
  }
  unsigned add(ExprNode node) {
    piece.nodes.push_back(std::move(node));
    return piece.nodes.size() - 1;
  }
  bool dependsOnReduced(const Linear &at) const {
    for (size_t k = piece.rank() - piece.groups.back(); k < piece.rank(); ++k)
      if (piece.sizes[k] > 1 && at.dependsOn(k))
        return true;
    return false;
  }

  ExprPiece &piece;
  const ExpressionOptions &options;
  std::map<std::pair<void *, std::vector<int64_t>>, unsigned> made;
};

} // namespace tessera
