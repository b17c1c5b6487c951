// Seconds that one microbatch spends in one layer of one rank: kernels and
// collectives, before anything is overlapped.
#pragma once
#include "hardware/CollectiveCost.h"
#include "parallelism/planner/KernelCost.h"
#include "parallelism/planner/ParallelPlan.h"

namespace tessera::planner {

/// A collective's seconds in the two directions.
struct Transfer {
  double forward = 0, backward = 0;
};

struct LayerCost {
  double forward = 0;
  double input = 0;     ///< backward: gradients of activations
  double weight = 0;    ///< backward: gradients of weights
  double recompute = 0; ///< forward kernels that the backward pass repeats
  Transfer tensor;      ///< all-gathers and reduce-scatters of activations
  /// The fraction of `tensor` that products can overlap with: in t chunks, all
  /// but the first.
  double overlapped = 0;
  Transfer expert; ///< dispatch and combine
  /// Ring attention's sends that attention on the block at hand does not cover.
  Transfer context;

  double backward() const { return input + weight + recompute; }
  /// What of `tensor` overlaps with no kernel.
  Transfer exposedTensor() const;
};

/// Prices layers of one model on one cluster.
class LayerPricer {
public:
  LayerPricer(const ModelShape &model, const Cluster &cluster,
              const Workload &workload);

  /// A dense or a sparse layer, with products in chunks that overlap with the
  /// collectives of tensor parallelism, or whole if that is faster. Of the plan
  /// only tensor, context, expert, expertTensor, data, micro and recompute
  /// matter.
  LayerCost layer(const ParallelPlan &plan, bool sparse) const;

  /// The last norm, the head and the loss.
  LayerCost head(const ParallelPlan &plan) const;

  /// The table lookup and its gradient.
  LayerCost embedding(const ParallelPlan &plan) const;

  /// The time of the slowest rank's experts over that of mean experts. Memory
  /// is planned for the fullest expert of a whole run, some four standard
  /// deviations above the mean; the fullest in one microbatch is about two. A
  /// rank's experts vary apart, so their sum's excess shrinks with their root.
  double expertSlowdown(const ParallelPlan &plan) const;
  /// Of one exchange of rows between expert ranks, of `tokens` of a rank.
  double exchangeSeconds(const ParallelPlan &plan, double tokens) const;

  const KernelCost &kernels() const { return kernel; }
  const CollectiveCost &collectives() const { return collective; }

private:
  struct Pass;
  LayerCost priced(const ParallelPlan &plan, bool sparse, bool chunks) const;
  void addAttention(Pass &pass) const;
  void addLatentProjections(Pass &pass) const;
  void addScores(Pass &pass) const;
  void addUnfusedScores(Pass &pass) const;
  void addMlp(Pass &pass, int64_t width) const;
  void addExperts(Pass &pass) const;
  void addNormsAndResiduals(Pass &pass, bool attentionHalf) const;

  ModelShape model;
  Workload workload;
  KernelCost kernel;
  CollectiveCost collective;
  bool sendsBuffers;
};

} // namespace tessera::planner
