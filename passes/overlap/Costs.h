// Seconds of ops, estimated: only their ratios mean anything.
#pragma once
#include "dialects/dist/DistOps.h"
#include "mlir/IR/Operation.h"

namespace tessera::schedule {

/// Of a cluster by its roofline, of a loop all turns; views take none.
double computeSeconds(mlir::Operation *op);

/// Links of a collective: members of its group, and the slowest tier that it
/// crosses.
struct Links {
  static Links of(mlir::Operation *collective);

  int64_t members = 1;
  dist::LinkTier tier = dist::LinkTier::memory;

  /// A ring moves `bytes`, once or, for all_reduce, twice.
  double seconds(mlir::Operation *collective, int64_t bytes) const;
  /// How large is what travels together, of `total` bytes that all go the same
  /// way: an eighth, so that most of them travel while others are made, but
  /// worth the latency.
  int64_t bucketBytes(int64_t total) const;
};

int64_t bytesOf(mlir::Value tensor);
/// Of the whole that is reduced, gathered or scattered.
int64_t bytesOf(mlir::Operation *collective);

} // namespace tessera::schedule
