// What losses of pairs of answers have in common.
#pragma once
#include "dialects/graph/Build.h"

namespace tessera::models {

/// Answer 0 (chosen) or 1 (rejected) of each pair: [B, 2 pairs] → [B, pairs].
inline mlir::Value answer(graph::Emitter &e, mlir::Value x, int64_t which) {
  llvm::ArrayRef<int64_t> shape = graph::tensorType(x).getShape();
  const int64_t rows = shape[0], pairs = shape[1] / 2;
  mlir::Value both = e.reshape(x, {rows, pairs, 2});
  return e.reshape(e.slice(both, {0, 0, which}, {rows, pairs, 1}),
                   {rows, pairs});
}

/// log σ(x), whose gradient is right at 0, where training starts.
inline mlir::Value logSigmoid(graph::Emitter &e, mlir::Value x) {
  mlir::Value zero = e.splatLike(0.0, x);
  mlir::Value isPositive = e.compare(x, graph::ComparePredicate::ge, zero);
  mlir::Value positive = e.select(isPositive, x, zero),
              negative = e.select(isPositive, zero, x);
  auto logOnePlusExp = [&](mlir::Value y) {
    return e.unary<graph::LogOp>(e.add(e.exp(y), 1));
  };
  return e.select(isPositive, e.neg(logOnePlusExp(e.neg(positive))),
                  e.sub(negative, logOnePlusExp(negative)));
}

} // namespace tessera::models
