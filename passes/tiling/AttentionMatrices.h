// The products of attention in matrix registers (AMX), for keys and values of
// bf16.
//
// Keys are a left operand as they lie. Queries and values are staged in pairs,
// and weights, which softmax has as [key × query], are turned as they are
// rounded to bf16. Sums are f32 in memory.
#pragma once
#include "passes/tiling/AttentionTiles.h"

namespace tessera {

/// What one block stages for tile.mma_staged.
class AttentionMatrices {
public:
  /// Whether tiles of these sizes are whole registers.
  static bool fit(const TileTarget &target, const AttentionShape &shape,
                  mlir::Type element);
  /// Fewest queries of a tile.
  static constexpr int64_t kLeastQueries = 16;

  explicit AttentionMatrices(AttentionEmitter &e);

  /// `queries` rows of `query`; what a tile has more are zeros.
  void takeQueries(const Matrix &query, mlir::Value queries);
  /// Zeros for values, of which less than a tile may be staged.
  void clearValues();
  void takeValues(const Matrix &value, mlir::Value rows);
  /// scores[key × query] of a whole tile of keys, whose rows lie along the last
  /// but one dimension of their memory.
  void multiplyKeys(const Matrix &key, const Matrix &scores);
  /// output[query × head_dim] += weightsᵀ × values; weights are rounded to
  /// bf16.
  void addValues(const Matrix &weights, const Matrix &output);

private:
  mlir::Value alloc(llvm::ArrayRef<int64_t> sizes, tile::Layout layout);
  void clear(const Matrix &pairs, int64_t rows, int64_t cols);
  void copyToPairs(const Matrix &from, mlir::Value row, int64_t rows,
                   const Matrix &to, unsigned rowDim);
  void roundWeights(const Matrix &weights);
  void multiply(const Matrix &a, const Matrix &b, const Matrix &c, int64_t rows,
                int64_t cols, int64_t depth, bool accumulate);

  AttentionEmitter &e;
  Matrix queries, values, turned;
};

} // namespace tessera
