// Shorthand for emitting graph ops: result types follow from the operands.
// Used by model builders, gradients, decompositions and passes.
#pragma once
#include "dialects/graph/GraphOps.h"
#include "mlir/IR/Builders.h"
#include <optional>

namespace tessera::graph {

class Emitter {
public:
  Emitter(mlir::OpBuilder &builder, mlir::Location loc)
      : b(builder), loc(loc) {}

  // Constants. `like` gives shape and element type.
  mlir::Value splat(double value, mlir::RankedTensorType type);
  mlir::Value splatLike(double value, mlir::Value like) {
    return splat(value, tensorType(like));
  }
  mlir::Value zeros(mlir::RankedTensorType type) { return splat(0.0, type); }
  mlir::Value iota(mlir::RankedTensorType type, int64_t dim);

  // Elementwise, operands of one type.
  template <typename Op> mlir::Value unary(mlir::Value x) {
    return b.create<Op>(loc, x);
  }
  template <typename Op> mlir::Value binary(mlir::Value x, mlir::Value y) {
    return b.create<Op>(loc, x, y);
  }
  mlir::Value neg(mlir::Value x) { return unary<NegOp>(x); }
  mlir::Value exp(mlir::Value x) { return unary<ExpOp>(x); }
  mlir::Value add(mlir::Value x, mlir::Value y) { return binary<AddOp>(x, y); }
  mlir::Value sub(mlir::Value x, mlir::Value y) { return binary<SubOp>(x, y); }
  mlir::Value mul(mlir::Value x, mlir::Value y) { return binary<MulOp>(x, y); }
  mlir::Value div(mlir::Value x, mlir::Value y) { return binary<DivOp>(x, y); }
  mlir::Value max(mlir::Value x, mlir::Value y) { return binary<MaxOp>(x, y); }
  mlir::Value min(mlir::Value x, mlir::Value y) { return binary<MinOp>(x, y); }
  mlir::Value mul(mlir::Value x, double y) { return mul(x, splatLike(y, x)); }
  mlir::Value add(mlir::Value x, double y) { return add(x, splatLike(y, x)); }
  mlir::Value gelu(mlir::Value x, GeluKind kind);
  mlir::Value compare(mlir::Value x, ComparePredicate predicate, mlir::Value y);
  mlir::Value select(mlir::Value condition, mlir::Value x, mlir::Value y);
  /// Change of element type; the value itself where nothing changes.
  mlir::Value convert(mlir::Value x, mlir::Type elementType);

  // Shape.
  mlir::Value reshape(mlir::Value x, llvm::ArrayRef<int64_t> shape);
  mlir::Value transpose(mlir::Value x, llvm::ArrayRef<int64_t> permutation);
  /// Input dimension i becomes dimension dims[i] of `shape`.
  mlir::Value broadcast(mlir::Value x, llvm::ArrayRef<int64_t> dims,
                        llvm::ArrayRef<int64_t> shape);
  /// Scalar → shape and element type of `like` (element types must agree).
  mlir::Value broadcastScalar(mlir::Value x, llvm::ArrayRef<int64_t> shape);
  /// [c] → [..., c]: repeats along all leading dimensions.
  mlir::Value broadcastLast(mlir::Value x, llvm::ArrayRef<int64_t> shape);
  /// [...] → [..., c]: undoes a reduction of the last dimension.
  mlir::Value broadcastFirst(mlir::Value x, llvm::ArrayRef<int64_t> shape);
  mlir::Value slice(mlir::Value x, llvm::ArrayRef<int64_t> start,
                    llvm::ArrayRef<int64_t> shape);
  mlir::Value concat(mlir::ValueRange xs, int64_t dim);
  mlir::Value pad(mlir::Value x, llvm::ArrayRef<int64_t> low,
                  llvm::ArrayRef<int64_t> shape);
  mlir::Value dynamicSlice(mlir::Value x, mlir::Value index);

  // Reductions and contractions.
  mlir::Value reduce(mlir::Value x, ReduceKind kind,
                     llvm::ArrayRef<int64_t> dims);
  mlir::Value sum(mlir::Value x, llvm::ArrayRef<int64_t> dims) {
    return reduce(x, ReduceKind::sum, dims);
  }
  /// Over the last dimension.
  mlir::Value sumLast(mlir::Value x);
  mlir::Value maxLast(mlir::Value x);
  /// Over every dimension, to a scalar.
  mlir::Value sumAll(mlir::Value x);
  /// The element type of the result is lhs's unless given.
  mlir::Value einsum(llvm::StringRef equation, mlir::Value lhs, mlir::Value rhs,
                     mlir::Type elementType = {});
  mlir::Value groupedMatmul(mlir::Value lhs, mlir::Value rhs,
                            mlir::Value groups, bool transposed);
  mlir::Value embedding(mlir::Value table, mlir::Value ids);
  mlir::Value scatterRows(mlir::Value updates, mlir::Value ids,
                          mlir::Value base);

  // Routing (GraphMoeOps.td).
  mlir::Value topK(mlir::Value scores, int64_t k);
  mlir::Value pick(mlir::Value x, mlir::Value indices);
  /// `scores` may be null.
  mlir::Value rankInGroup(mlir::Value ids, mlir::Value scores, int64_t groups);
  GroupRowsOp groupRows(mlir::Value ids, int64_t groups);
  /// `weights` may be null.
  mlir::Value dispatchRows(mlir::Value x, mlir::Value slots,
                           mlir::Value weights, int64_t rows);
  mlir::Value combineRows(mlir::Value rows, mlir::Value slots,
                          mlir::Value weights);
  /// Of the element type of `like`.
  mlir::Value dotRows(mlir::Value x, mlir::Value rows, mlir::Value slots,
                      mlir::Value like);

  mlir::Value layerNorm(mlir::Value x, mlir::Value weight, mlir::Value bias,
                        double eps);
  mlir::Value rmsNorm(mlir::Value x, mlir::Value weight, double eps,
                      double offset = 0);

  /// cap × tanh(x / cap), or `x` without a cap.
  mlir::Value softCap(mlir::Value x, std::optional<double> cap);
  /// The cotangent of x from that of its capped value.
  mlir::Value softCapGradient(mlir::Value cotangent, mlir::Value capped,
                              std::optional<double> cap);

  mlir::OpBuilder &builder() { return b; }
  mlir::Location location() const { return loc; }

private:
  mlir::OpBuilder &b;
  mlir::Location loc;
};

} // namespace tessera::graph
