#include "dialects/graph/Einsum.h"
#include "dialects/graph/GraphOps.h"
#include "llvm/ADT/SmallVectorExtras.h"

using namespace mlir;

namespace tessera::graph::detail {

LogicalResult verifyInferred(Operation *op, bool anyElement) {
  SmallVector<Type> types;
  if (failed(cast<InferTypeOpInterface>(op).inferReturnTypes(
          op->getContext(), op->getLoc(), op->getOperands(),
          op->getRawDictionaryAttrs(), op->getPropertiesStorage(),
          op->getRegions(), types)))
    return failure();
  for (auto [result, type] : llvm::zip(op->getResults(), types)) {
    if (anyElement)
      type = cast<RankedTensorType>(type).clone(
          tensorType(result).getElementType());
    if (result.getType() != type)
      return op->emitOpError()
             << "has result type " << result.getType() << ", expected " << type;
  }
  return success();
}

Type statisticsType(Value x) {
  Type element = tensorType(x).getElementType();
  return element.isF64() ? element : Float32Type::get(element.getContext());
}

RankedTensorType transposedType(Value x, ArrayRef<int64_t> permutation) {
  return tensorType(x).clone(llvm::map_to_vector(
      permutation, [&](int64_t dim) { return shapeOf(x)[dim]; }));
}

RankedTensorType concatType(ValueRange xs, int64_t dim) {
  SmallVector<int64_t> shape(shapeOf(xs[0]));
  for (Value x : xs.drop_front())
    shape[dim] += shapeOf(x)[dim];
  return tensorType(xs[0]).clone(shape);
}

RankedTensorType entryType(Value x) {
  return tensorType(x).clone(shapeOf(x).drop_front());
}

RankedTensorType reducedType(Value x, ArrayRef<int64_t> dims) {
  SmallVector<int64_t> shape;
  for (auto [dim, size] : llvm::enumerate(shapeOf(x)))
    if (!llvm::is_contained(dims, static_cast<int64_t>(dim)))
      shape.push_back(size);
  return tensorType(x).clone(shape);
}

RankedTensorType einsumType(StringRef equation, Value lhs, Value rhs) {
  Einsum e = llvm::cantFail(Einsum::parse(equation));
  SmallVector<int64_t> shape;
  for (char label : e.out)
    shape.push_back(StringRef(e.lhs).contains(label)
                        ? Einsum::sizeOf(label, e.lhs, shapeOf(lhs))
                        : Einsum::sizeOf(label, e.rhs, shapeOf(rhs)));
  return tensorType(lhs).clone(shape);
}

RankedTensorType rowsType(Value table, Value ids) {
  SmallVector<int64_t> shape(shapeOf(ids));
  shape.push_back(shapeOf(table)[1]);
  return tensorType(table).clone(shape);
}

RankedTensorType rowScalesType(Value rows) {
  SmallVector<int64_t> shape(shapeOf(rows));
  shape.back() = 1;
  return tensorType(rows).clone(shape);
}

RankedTensorType lseType(Value query) {
  ArrayRef<int64_t> shape = shapeOf(query);
  return RankedTensorType::get({shape[0], shape[2], shape[1]},
                               statisticsType(query));
}

RankedTensorType groupedMatmulType(Value lhs, Value rhs, bool transposed) {
  SmallVector<int64_t> shape(shapeOf(lhs));
  shape.back() = shapeOf(rhs)[transposed ? 1 : 2];
  return tensorType(lhs).clone(shape);
}

RankedTensorType groupedOuterType(Value lhs, Value rhs, Value groups) {
  const bool isPadded = tensorType(lhs).getRank() == 3;
  return tensorType(lhs).clone({shapeOf(groups)[0] - (isPadded ? 0 : 1),
                                shapeOf(lhs).back(), shapeOf(rhs).back()});
}

} // namespace tessera::graph::detail
