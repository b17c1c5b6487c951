// Which keys a query sees: those of its document, up to its own or the last one
// of its prompt, in its window.
#pragma once
#include "passes/kernels/attention/AttentionTiles.h"

namespace tessera {

/// The mask of an attention, as kernels for CPUs compute it.
class AttentionMask {
public:
  explicit AttentionMask(AttentionEmitter &e) : e(e) {}

  /// Query 0 is at this position among the keys, not at 0.
  void startAt(mlir::Value position) { start = position; }
  /// Queries see no keys before one that `buffer` has for each query of a
  /// sequence, i32 [B, T].
  void locateFirst(mlir::Value buffer, const View &view, mlir::Value batch);
  /// Queries see the keys up to one that `buffer` has for each, also those
  /// after their own. The later one of the two does not decrease.
  void locateLast(mlir::Value buffer, const View &view, mlir::Value batch);

  /// Runs of at most a tile of queries that see the same first key, such as
  /// those of one document, from those that begin at `query` to those that
  /// begin before `query` + `queries`: their first query, number and first key.
  /// They end where a document does and every tile from its beginning on, so
  /// that its bits do not depend on where in a sequence it is.
  void forEachRun(
      mlir::Value query, mlir::Value queries,
      llvm::function_ref<void(mlir::Value, mlir::Value, mlir::Value)> body);
  /// Documents that begin at `query` to those that begin before `query` +
  /// `queries`, of causal attention: their first query, number of queries,
  /// first key and number of keys. Each key is of one of a sequence's
  /// documents, and queries of others do not see it: runs that see the same
  /// keys are of one document.
  void forEachDocument(mlir::Value query, mlir::Value queries,
                       llvm::function_ref<void(mlir::Value, mlir::Value,
                                               mlir::Value, mlir::Value)>
                           body);
  /// The first and the past-the-last key that any of `queries` queries from
  /// `query` sees, or more to make whole tiles; none where the first is not
  /// before the other. Tiles of keys begin at `origin`, which is key 0 unless
  /// the queries are a run.
  std::pair<mlir::Value, mlir::Value>
  visibleKeys(mlir::Value query, mlir::Value queries, mlir::Value origin = {});
  /// Replaces scores[key][query] of invisible pairs by `masked`, if the tile
  /// has any: keys from `key`, queries from `query`.
  void hide(const Matrix &scores, mlir::Value key, mlir::Value keys,
            mlir::Value query, mlir::Value queries, double masked);

private:
  /// A key of each query, and where that of query 0 of the sequence is.
  struct Keys {
    mlir::Value buffer, at;
  };
  Keys locate(mlir::Value buffer, const View &view, mlir::Value batch);
  mlir::Value keyOf(const Keys &keys, mlir::Value query);

  mlir::Value positionOf(mlir::Value query);
  mlir::Value firstKeyOf(mlir::Value query) { return keyOf(first, query); }
  mlir::Value lastKeyOf(mlir::Value query);
  mlir::Value endOfRun(mlir::Value query);
  mlir::Value nextDocument(mlir::Value query, mlir::Value limit);
  mlir::Value keysBefore(mlir::Value query);

  AttentionEmitter &e;
  mlir::Value start;
  Keys first, last;
};

} // namespace tessera
