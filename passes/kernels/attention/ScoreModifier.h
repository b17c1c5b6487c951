// What attention does to scores before their softmax: the cap, and the causal
// and the window mask, of all attention kernels. What bounds the keys
// themselves (documents, the end of a sequence) each kernel adds to the mask.
#pragma once
#include "passes/kernels/KernelOps.h"
#include "passes/kernels/attention/AttentionTiles.h"

namespace tessera {

struct PagedShape;

class ScoreModifier {
public:
  ScoreModifier(const KernelOps &e, const AttentionShape &shape)
      : e(e), scale(shape.scale), cap(shape.cap), causal(shape.causal),
        window(shape.window) {}
  /// Each query of a cache's sequence sees the keys up to its own.
  ScoreModifier(const KernelOps &e, const PagedShape &shape);

  /// Of scores that are still to be scaled: scale × score becomes
  /// cap tanh(scale × score / cap). Unchanged without a cap.
  mlir::Value bound(mlir::Value scores) const;
  /// The derivative of `bound`, from its result: 1 − (scale × score / cap)².
  /// Null without a cap. Masked scores are far out of the cap's range, where a
  /// square would not be finite: `areMasked` limits them to it.
  mlir::Value slope(mlir::Value bounded, bool areMasked) const;

  /// Whether one query of a tile may not see one of its keys; null if each sees
  /// all. Positions, as indices: the tile's first key and the one past its
  /// last, the one past the last key that the first query sees, the last query.
  mlir::Value isCrossed(mlir::Value key, mlir::Value keyEnd,
                        mlir::Value firstHidden, mlir::Value lastQuery) const;
  /// Pairs, i32 of one shape: whether the query sees the key; null if each sees
  /// all. `lastKeys`: the last keys that queries see, their own or later ones.
  mlir::Value isVisible(mlir::Value keys, mlir::Value queries,
                        mlir::Value lastKeys) const;
  /// Both conditions; either may be null.
  mlir::Value both(mlir::Value one, mlir::Value other) const;
  /// Any of two conditions; either may be null.
  mlir::Value either(mlir::Value one, mlir::Value other) const;

private:
  const KernelOps &e;
  double scale, cap;
  bool causal;
  int64_t window;
};

} // namespace tessera
