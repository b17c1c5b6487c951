// Result types that follow from operands and attributes: of what the rules of
// Graph_InfersTypes and Graph_InfersShapes (GraphOpBase.td) are made, and how
// the verifier applies them.
#pragma once
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/OpDefinition.h"

namespace tessera::graph {
namespace detail {

/// Error unless results have the inferred types; their shapes, if `anyElement`.
mlir::LogicalResult verifyInferred(mlir::Operation *op, bool anyElement);

/// f64 for f64, else f32: in what statistics are computed.
mlir::Type statisticsType(mlir::Value x);

// Unless said otherwise, the element type is that of the first operand.

mlir::RankedTensorType transposedType(mlir::Value x,
                                      llvm::ArrayRef<int64_t> permutation);
mlir::RankedTensorType concatType(mlir::ValueRange xs, int64_t dim);
/// `x` without its first dimension.
mlir::RankedTensorType entryType(mlir::Value x);
/// `x` without `dims`.
mlir::RankedTensorType reducedType(mlir::Value x, llvm::ArrayRef<int64_t> dims);
mlir::RankedTensorType einsumType(llvm::StringRef equation, mlir::Value lhs,
                                  mlir::Value rhs);
/// Rows `ids` of a table [rows, width]: [shape of ids, width].
mlir::RankedTensorType rowsType(mlir::Value table, mlir::Value ids);
/// [..., 1] of [..., n].
mlir::RankedTensorType rowScalesType(mlir::Value rows);
/// [batch, heads, tokens] of a query, in the statistics type.
mlir::RankedTensorType lseType(mlir::Value query);
mlir::RankedTensorType groupedMatmulType(mlir::Value lhs, mlir::Value rhs,
                                         bool transposed);
mlir::RankedTensorType groupedOuterType(mlir::Value lhs, mlir::Value rhs,
                                        mlir::Value groups);

} // namespace detail

/// The trait of ops that have such a rule.
template <bool anyElement> struct Inferred {
  template <typename ConcreteOp>
  struct Impl : mlir::OpTrait::TraitBase<ConcreteOp, Inferred::Impl> {
    // After the op's verifier: rules may rely on what it checks.
    static mlir::LogicalResult verifyRegionTrait(mlir::Operation *op) {
      return detail::verifyInferred(op, anyElement);
    }
  };
};

} // namespace tessera::graph
