// The running softmax of a tile of queries (Milakov & Gimelshein 2018): what
// attention over a sequence and attention over pages of a cache share on a CPU.
//
// Scores are kept transposed, [key × query]: the softmax over keys then runs
// down columns, without a single horizontal reduction, and neither K nor V has
// to be packed: K gives scalars, V and Qᵀ give vectors. Only Qᵀ is made, once a
// block.
#pragma once
#include "passes/kernels/attention/AttentionMatrices.h"
#include <optional>

namespace tessera {

/// Emits what a block does with its queries, key tile after key tile.
class RunningSoftmax {
public:
  /// How products are made: of keys and values as they lie, of copies as f32,
  /// or in matrix registers, there also of integers with scales.
  enum class Products { direct, staged, matrices, scaledMatrices };

  RunningSoftmax(AttentionEmitter &e, Products products);

  /// Takes `queries` rows of `query`; the shape's `tokens` says how the last
  /// tile ends.
  void start(const Matrix &query, mlir::Value queries);
  /// Keys and values as the products want them: `rows` of them staged, those of
  /// int8 times the scales of their rows, or as they are. Keys for matrix
  /// registers are a whole tile, of which what lies behind `rows` may be
  /// anything that `mask` hides.
  std::pair<Matrix, Matrix> stage(const Matrix &key, const Matrix &value,
                                  mlir::Value rows,
                                  const Matrix *keyScales = nullptr,
                                  const Matrix *valueScales = nullptr);
  /// Zeros in the stage, so that tiles may be staged in part.
  void clearStage();
  /// Sees `keys` more keys, whole register tiles or the last of `total`; `mask`
  /// replaces scores of what is not visible.
  void add(const Matrix &key, const Matrix &value, mlir::Value keys,
           int64_t total, llvm::function_ref<void(const Matrix &)> mask);
  /// Divides by the sums and stores `queries` rows into `result`.
  void finish(const Matrix &result, mlir::Value queries);
  /// scale · max + ln(sum), [queryTile].
  mlir::Value logSumExp();

private:
  mlir::Value
  overKeys(mlir::Value keys, mlir::Value start,
           llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)> next);
  void softmax(mlir::Value keys);
  void rescaleOutput();

  AttentionEmitter &e;
  Matrix queryT, scores, output, keyStage{}, valueStage{};
  mlir::Value maximum, sum, rescale; // shared, [queryTile]
  std::optional<AttentionMatrices> matrices;
};

} // namespace tessera
