// Sums over the tokens of each document of a sequence.
#pragma once
#include "dialects/graph/Build.h"

namespace tessera::models {

class DocumentSums {
public:
  /// `numbers` [B, T]: the number of each token's document in its sequence,
  /// below `documents`, or a negative one in padding.
  DocumentSums(graph::Emitter &e, mlir::Value numbers, int64_t documents)
      : e(e), numbers(numbers) {
    llvm::ArrayRef<int64_t> shape = graph::tensorType(numbers).getShape();
    wide = {shape[0], documents, shape[1]};
  }

  /// [B, T] → [B, documents]
  mlir::Value operator()(mlir::Value x) {
    return sumOwn(e.broadcast(x, {0, 2}, wide), 2);
  }
  /// [B, documents] → [B, T]: each token has what its document has; padding 0.
  mlir::Value spread(mlir::Value x) {
    return sumOwn(e.broadcast(x, {0, 1}, wide), 1);
  }

private:
  // x: [B, documents, T], of which only tokens in their own document count.
  mlir::Value sumOwn(mlir::Value x, int64_t dim) {
    auto index = mlir::RankedTensorType::get(
        wide, graph::tensorType(numbers).getElementType());
    mlir::Value isOwn = e.compare(e.iota(index, 1), graph::ComparePredicate::eq,
                                  e.broadcast(numbers, {0, 2}, wide));
    return e.sum(e.select(isOwn, x, e.splatLike(0.0, x)), {dim});
  }

  graph::Emitter &e;
  mlir::Value numbers;
  llvm::SmallVector<int64_t> wide;
};

} // namespace tessera::models
