// The sizes and operands of a paged attention, for its skeletons.
#pragma once
#include "passes/kernels/attention/AttentionTiles.h"

namespace tessera {

/// The sizes of one paged attention, and its mask.
struct PagedShape {
  int64_t batch, tokens, heads, kvHeads, headDim;
  int64_t page, pages; ///< keys of a page, pages of a sequence
  double scale;
  int64_t window; ///< 0: none
  double cap;     ///< of scaled scores; 0: none
  bool f32;       ///< all products are of f32

  int64_t context() const { return page * pages; } ///< keys of a sequence
  /// With one token in each sequence (decode), the queries that share keys are
  /// the heads of a group; otherwise they are the tokens of one head.
  bool isDecode() const { return tokens == 1; }
  int64_t group() const { return heads / kvHeads; }
  /// Owners of rows of queries: a sequence's kv heads, or its heads.
  int64_t owners() const { return isDecode() ? kvHeads : heads; }
  int64_t rows() const { return isDecode() ? group() : tokens; }
  /// The same for a CPU's kernel: rows as queries, owners as heads.
  AttentionShape rowsOfBlocks() const;
};

/// Where a paged attention's operands are, as views of a cluster's arguments.
struct PagedOperands {
  AttentionOperand query, keys, values, table, starts, lengths;
  /// Of the rows of keys and values that are int8 (graph.dequantize_rows).
  std::optional<AttentionOperand> keyScales, valueScales;
  std::optional<AttentionOperand> sinks; ///< [heads]
  /// The layout of the result in the cluster's only result.
  View output() const;
  /// Bytes of keys and values that the sequences see at most.
  int64_t cacheBytes(graph::ClusterOp cluster, const PagedShape &shape) const;
};

} // namespace tessera
