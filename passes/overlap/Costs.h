// Estimated seconds of ops. Only their ratios mean anything.
#pragma once
#include "dialects/dist/DistOps.h"
#include "mlir/IR/Operation.h"

namespace tessera::overlap {

/// A cluster by its roofline, a loop with all iterations; views take none.
double computeSeconds(mlir::Operation *op);

/// The links of a collective: the members of its group, and the slowest tier
/// that it crosses.
struct Links {
  static Links of(dist::CollectiveOpInterface collective);

  int64_t members = 1;
  dist::LinkTier tier = dist::LinkTier::memory;

  /// In a ring of the members, for a tensor of so many bytes.
  double seconds(dist::CollectiveOpInterface collective, int64_t bytes) const;
  /// The size of a bucket, of `total` bytes over the same links: an eighth, so
  /// that most of them are sent while others are computed, but large enough for
  /// the latency.
  int64_t bucketBytes(int64_t total) const;
};

int64_t bytesOf(mlir::Value tensor);
/// The bytes of the whole tensor that is reduced, gathered or scattered.
int64_t bytesOf(mlir::Operation *collective);

} // namespace tessera::overlap
