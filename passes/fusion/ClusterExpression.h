// What a cluster computes, element by element: an expression over an iteration
// space, with every view resolved into addresses. Fusion asks it whether a
// cluster can become a kernel, skeletons emit kernels from it.
#pragma once
#include "dialects/graph/GraphOps.h"
#include "passes/fusion/IndexSpace.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace tessera {

/// One node of an expression: an element of a tensor at an index that is a
/// function of the iteration space.
struct ExprNode {
  enum Kind {
    load,        ///< element `address` of the cluster's argument `argument`
    given,       ///< element `address` of a value that the skeleton provides
    constant,    ///< `op`: a splat graph.constant
    zero,        ///< padding
    index,       ///< `address` itself: graph.iota
    random,      ///< `op` at row-major index `address`; operands: seed, step[,
                 ///< offset]
    elementwise, ///< `op` (Elementwise) of `operands`
    reduce ///< `op` (graph.reduce) of operand 0 over the reduced dimensions
  } kind;
  mlir::Type element; ///< element type of the tensor
  mlir::Operation *op = nullptr;
  llvm::SmallVector<unsigned, 3> operands; ///< earlier nodes
  unsigned argument = 0;                   ///< load, given
  Linear address;
  /// load of a gathered row: operand 0 is the row, each of `rowStride`
  /// elements; `address` is the index within it. 0 otherwise.
  int64_t rowStride = 0;
  uint64_t dims =
      0; ///< the dimensions of the space that it depends on, as bits

  ExprNode(Kind kind, mlir::Type element, mlir::Operation *op = nullptr,
           llvm::ArrayRef<unsigned> operands = {}, unsigned argument = 0,
           Linear address = {}, int64_t rowStride = 0)
      : kind(kind), element(element), op(op),
        operands(operands.begin(), operands.end()), argument(argument),
        address(std::move(address)), rowStride(rowStride) {}
};

/// A box of the iteration space and its computations. Dimensions come in groups
/// (rows, columns); the last group is reduced if there are reductions.
struct ExprPiece {
  llvm::SmallVector<int64_t> sizes;
  llvm::SmallVector<unsigned> groups; ///< dimensions of each group
  std::vector<ExprNode> nodes;        ///< operands before users
  struct Root {
    unsigned node;
    Linear address; ///< element of the result's buffer
  };
  llvm::SmallVector<Root> roots; ///< one for each result of the cluster

  unsigned rank() const { return sizes.size(); }
  bool dependsOn(const ExprNode &node, unsigned dim) const {
    return node.dims >> dim & 1;
  }
};

struct ClusterExpression {
  /// Disjoint boxes that cover the space: one unless concats or pads divide it.
  llvm::SmallVector<ExprPiece, 1> pieces;
  int64_t reduced = 0; ///< elements of each reduction; 0: there are none

  /// Equal keys mean equal computations, within one MLIRContext.
  std::string key() const;
};

struct ExpressionOptions {
  /// Values that the skeleton provides (a contraction's result), in the order
  /// of ExprNode::argument.
  llvm::SmallVector<mlir::Value> given;
  /// Sizes of the groups of kept dimensions; their product is the number of
  /// elements of the results (of a reduction: of its result). One group if
  /// empty.
  llvm::SmallVector<int64_t> groups;
  /// The values to compute; what the cluster yields if empty.
  llvm::SmallVector<mlir::Value> roots;
};

/// The values of a scatter before the addition: its updates and their rows,
/// over a space of [updates, width].
ExpressionOptions scatterExpression(graph::RowScatter scatter);

/// The expression of a cluster's body. Each result has as many elements as the
/// first groups of the space together: all of them, or (rows of a reduction,
/// indices of gathered rows) fewer. The error names the op that fits no
/// expression.
llvm::Expected<ClusterExpression>
buildExpression(graph::ClusterOp cluster,
                const ExpressionOptions &options = {});

/// Cost of one element of a node alone, in additions: the cost of
/// recomputation.
int64_t nodeCost(const ExprNode &node);

} // namespace tessera
