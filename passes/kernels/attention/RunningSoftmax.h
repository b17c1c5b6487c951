// The running softmax of a tile of queries (Milakov & Gimelshein 2018), shared
// by attention over a sequence and paged attention on a CPU.
//
// Scores are kept transposed, [key × query]: the softmax over keys then runs
// down columns, without a single horizontal reduction, and neither K nor V has
// to be packed: K gives scalars, V and Qᵀ give vectors. Only Qᵀ is copied, once
// for each block.
#pragma once
#include "passes/kernels/attention/AttentionMatrices.h"
#include <optional>

namespace tessera {

/// Emits a block's computation on its queries, one key tile after another.
class RunningSoftmax {
public:
  /// How products are computed: on keys and values in place, on copies as f32,
  /// or in matrix registers, there also on integers with scales.
  enum class Products { direct, staged, matrices, scaledMatrices };

  RunningSoftmax(AttentionEmitter &e, Products products);

  /// Takes `queries` rows of `query`; the shape's `tokens` says how the last
  /// tile ends, unless any number may be a run (`hasFirst`). `sinks`
  /// [queryTile], if any, are the sinks of the queries.
  void start(const Matrix &query, mlir::Value queries, mlir::Value sinks = {});
  /// Keys and values as the products need them: `rows` of them staged (int8
  /// multiplied by the scales of their rows), or in place. Keys for matrix
  /// registers are a whole tile; those after `rows` may be anything that `mask`
  /// hides.
  std::pair<Matrix, Matrix> stage(const Matrix &key, const Matrix &value,
                                  mlir::Value rows,
                                  const Matrix *keyScales = nullptr,
                                  const Matrix *valueScales = nullptr);
  /// Clears the stages, so that tiles may be staged in part.
  void clearStage();
  /// Processes `keys` more keys, whole register tiles or the last of `total`,
  /// or any number if `total` is 0: staged, or in place with `lastRow`, the
  /// last one of `key` from which a whole register tile may be read. `mask`
  /// replaces scores that are not visible.
  void add(const Matrix &key, const Matrix &value, mlir::Value keys,
           int64_t total, llvm::function_ref<void(const Matrix &)> mask,
           mlir::Value lastRow = {});
  /// Divides by the sums and stores a row for each query into `result`.
  void finish(const Matrix &result);
  /// Stores scale · max + ln(sum) of each query from memory[at] on.
  void storeLogSumExp(mlir::Value memory, mlir::Value at);

private:
  mlir::Value
  overKeys(mlir::Value keys, mlir::Value start,
           llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)> next);
  void softmax(mlir::Value keys, mlir::Value col, int64_t width);
  void rescaleOutput();

  AttentionEmitter &e;
  Matrix queryT, scores, output, queryStage{}, keyStage{}, valueStage{};
  mlir::Value maximum, sum, rescale; // shared, [queryTile]
  mlir::Value queries;               ///< of the tile or run that is computed
  std::optional<AttentionMatrices> matrices;
};

} // namespace tessera
