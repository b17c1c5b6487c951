// The products of attention in matrix registers (AMX), for keys and values of
// bf16, or of int8 with a scale for each row.
//
// Keys of bf16 are a left operand in place. Integers become bf16, which holds
// them exactly, and their scales are applied to the scores and the weights.
// Queries and values are staged in pairs. Weights, which softmax has as [key ×
// query], are transposed as they are rounded to bf16. Sums are f32 in memory.
#pragma once
#include "passes/kernels/attention/AttentionTiles.h"
#include <optional>

namespace tessera {

/// What one block stages for tile.mma_staged.
class AttentionMatrices {
public:
  /// Whether tiles of so many keys are whole registers, and `query` and `key`
  /// are supported element types.
  static bool fit(int64_t headDim, int64_t keyTile, mlir::Type query,
                  mlir::Type key);
  /// Fewest queries of a tile.
  static constexpr int64_t kLeastQueries = 16;

  /// `scaled`: keys and values are integers.
  AttentionMatrices(AttentionEmitter &e, bool scaled);

  /// `queries` rows of `query`; the remaining rows of the tile are zeros.
  void takeQueries(const Matrix &query, mlir::Value queries);
  /// Clears values, of which less than a tile may be staged.
  void clearValues();
  void takeValues(const Matrix &value, mlir::Value rows);
  /// Stages `rows` keys and values of int8 and the scales of their rows;
  /// returns the keys as multiplyKeys takes them.
  Matrix takeIntegers(const Matrix &key, const Matrix &value, mlir::Value rows,
                      const Matrix &keyScales, const Matrix &valueScales);
  /// scores[key × query] of a whole tile of keys, whose rows are the last but
  /// one dimension of their memory.
  void multiplyKeys(const Matrix &key, const Matrix &scores);
  /// output[query × head_dim] += weightsᵀ × values; weights are rounded to
  /// bf16.
  void addValues(const Matrix &weights, const Matrix &output);

private:
  mlir::Value alloc(llvm::ArrayRef<int64_t> sizes, tile::Layout layout);
  void clear(const Matrix &pairs, int64_t rows, int64_t cols);
  void copyToPairs(const Matrix &from, mlir::Value row, int64_t rows,
                   const Matrix &to, unsigned rowDim);
  mlir::Value scaleWeights(mlir::Value block, mlir::Value key);
  void roundWeights(const Matrix &weights);
  void multiply(const Matrix &a, const Matrix &b, const Matrix &c, int64_t rows,
                int64_t cols, int64_t depth, bool accumulate);

  AttentionEmitter &e;
  Matrix queries, values, transposed;
  // If keys and values are integers: keys, and [key × 1] of f32.
  std::optional<Matrix> keys, keyScales, valueScales;
};

} // namespace tessera
