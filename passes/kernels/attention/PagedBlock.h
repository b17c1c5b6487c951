// A CPU's block of a paged attention: a tile of queries that share keys, which
// walks over the pages that they see.
#pragma once
#include "passes/kernels/attention/PagedAttention.h"
#include "passes/kernels/attention/ScoreModifier.h"
#include <memory>
#include <optional>

namespace tessera {

/// A page of a sequence: the keys [first, first + count), of which the memory
/// after the last is undefined.
struct KeyPage {
  Matrix keys, values; ///< [token × head_dim]
  /// Of the rows of int8: column 0.
  std::optional<Matrix> keyScales, valueScales;
  mlir::Value first, count;
  Matrix nextKeys; ///< of the next page, or of this one if it is the last
};

class PagedBlock {
public:
  PagedBlock(AttentionEmitter &e, tile::KernelOp kernel,
             const PagedOperands &operands, const PagedShape &shape)
      : e(e), b(e.b), shape(shape), kernel(kernel), o(operands) {}
  virtual ~PagedBlock() = default;
  void emit();

protected:
  /// Takes the block's rows of queries; `sinks` [queryTile] may be null.
  virtual void start(const Matrix &query, mlir::Value sinks) = 0;
  virtual void add(const KeyPage &page) = 0;
  virtual void finish(const Matrix &result) = 0;

  /// Whether some scores of the page must be masked: it ends early, or the
  /// diagonal or the window's edge crosses it.
  mlir::Value isCrossed(const KeyPage &page) const;

  AttentionEmitter &e;
  mlir::OpBuilder &b;
  const PagedShape &shape;
  mlir::Value queries;  ///< of the block
  mlir::Value position; ///< of the first one

private:
  mlir::Value view(const AttentionOperand &operand) const;
  mlir::Value number(const AttentionOperand &operand,
                     mlir::ValueRange at) const;
  void locate();
  mlir::Value sinks() const;
  std::pair<mlir::Value, mlir::Value> visibleKeys() const;
  Matrix rowsOf(mlir::Value memory) const;
  KeyPage page(mlir::Value first, mlir::Value end) const;

  tile::KernelOp kernel;
  const PagedOperands &o;
  mlir::Value batch, owner, kvHead, first, length;
};

/// A tile of fewer queries has keys in lanes instead.
inline constexpr int64_t kQueriesInLanes = 8;

/// Whether keys can be in lanes: those of decode, with few queries that share
/// keys.
bool canPutKeysInLanes(const PagedShape &shape);

std::unique_ptr<PagedBlock> pagedKeyLanes(AttentionEmitter &e,
                                          tile::KernelOp kernel,
                                          const PagedOperands &operands,
                                          const PagedShape &shape);

} // namespace tessera
