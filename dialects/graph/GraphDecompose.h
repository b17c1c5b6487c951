// Pieces that decompositions and gradients of composites share.
#pragma once
#include "dialects/graph/Build.h"

namespace tessera::graph::detail {

/// f64 for f64, else f32: in what statistics are computed.
mlir::Type statisticsType(mlir::Value x);

/// x without its mean (if `center`) over its root mean square, along the last
/// dimension; `inverse` is 1 / sqrt(mean of squares + eps), of x's rank less
/// one. Both in the statistics type.
struct Normalized {
  mlir::Value value, inverse;
};
Normalized normalize(Emitter &e, mlir::Value x, double eps, bool center);

/// exp(x - max) along the last dimension, its sum, and the natural logarithm of
/// the sum of exp(x). A row of -inf has exponentials 0 and logarithm -inf.
struct Exponentials {
  mlir::Value value, sum, logSum;
};
Exponentials exponentials(Emitter &e, mlir::Value x);

/// offset + weight in `type`: what a norm multiplies with.
mlir::Value normWeight(Emitter &e, mlir::Value weight, double offset,
                       mlir::Type type);

/// Of an op with a `cap`.
template <typename Op> std::optional<double> capOf(Op op) {
  std::optional<llvm::APFloat> cap = op.getCap();
  return cap ? std::optional(cap->convertToDouble()) : std::nullopt;
}

/// What the gradients of attention need besides the cotangent of its result.
struct AttentionInputs {
  mlir::Value query, key, value;
  mlir::Value start; ///< null: 0
  double scale;
  bool causal;
  std::optional<uint64_t> window;
  std::optional<double> cap; ///< of scaled scores

  /// Of an attention or its gradient.
  template <typename Op> static AttentionInputs of(Op op) {
    return {op.getQuery(),
            op.getKey(),
            op.getValue(),
            op.getStart(),
            op.getScale().convertToDouble(),
            op.getCausal(),
            op.getWindow(),
            capOf(op)};
  }
};

/// Gradients of query, key, value. `lse` and `rowSums` (of dP ∘ P, less the
/// cotangent of lse if it has one) are [batch, heads, tokens].
llvm::SmallVector<mlir::Value>
attentionGradients(Emitter &e, const AttentionInputs &in, mlir::Value lse,
                   mlir::Value rowSums, mlir::Value cotangent);

/// Sums over head_dim of output × cotangent: [batch, heads, tokens].
mlir::Value attentionRowSums(Emitter &e, mlir::Value output,
                             mlir::Value cotangent);

} // namespace tessera::graph::detail
