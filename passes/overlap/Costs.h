// Estimated seconds of ops. Only their ratios mean anything.
#pragma once
#include "dialects/dist/Cluster.h"
#include "mlir/IR/Operation.h"

namespace tessera::overlap {

/// The devices that take part in a collective.
int64_t membersOf(dist::CollectiveOpInterface collective);

/// Seconds on the cluster of a module (`dist.cluster`).
class Costs {
public:
  explicit Costs(mlir::Operation *inModule);

  /// A cluster of ops by its roofline, a loop with all iterations; views take
  /// none.
  double ofComputing(mlir::Operation *op) const;
  double ofCollective(dist::CollectiveOpInterface collective) const;
  /// The size of a bucket, of `total` bytes over the same links: an eighth, so
  /// that most of them are sent while others are computed, but large enough for
  /// the latency.
  int64_t bucketBytes(dist::CollectiveOpInterface collective,
                      int64_t total) const;

private:
  explicit Costs(const hardware::ClusterRates &rates)
      : device(rates.device), collectives(rates.links) {}

  hardware::Device device;
  planner::CollectiveCost collectives;
};

int64_t bytesOf(mlir::Value tensor);
/// The bytes of the whole tensor that is reduced, gathered or scattered.
int64_t bytesOf(mlir::Operation *collective);

} // namespace tessera::overlap
