// Seconds of a training step under a plan, by cause.
#pragma once
#include "parallelism/planner/LayerCost.h"
#include "parallelism/planner/MemoryModel.h"

namespace tessera::planner {

/// Seconds of one rank, by cause. Compute follows from the model; the plan adds
/// the rest.
struct Times {
  double compute = 0;   ///< kernels, each once
  double recompute = 0; ///< kernels again
  double tensor = 0;    ///< exposed collectives of activations
  double expert = 0;    ///< exposed all-to-all
  double context = 0;   ///< exposed sends of ring attention
  /// Kernels run slower while they overlap with a collective, which takes
  /// multiprocessors.
  double tax = 0;

  double total() const {
    return compute + recompute + tensor + expert + context + tax;
  }
  Times &add(const Times &other, double times = 1);
};

/// One microbatch through some layers of a rank.
struct PassTimes {
  Times forward, backward;
  double weight = 0; ///< of backward.compute: gradients of weights
  PassTimes &add(const PassTimes &other, double times = 1);
  double total() const { return forward.total() + backward.total(); }
};

/// A step's seconds; the parts after `perRank` sum with it to `total`.
struct StepCost {
  int64_t microbatches = 0;
  StageLayers stages;
  Times perRank;     ///< of all microbatches, mean over a pipeline's ranks
  double uneven = 0; ///< the slowest rank over the mean
  double bubble = 0; ///< filling and draining the pipeline
  double send = 0;   ///< exposed activations between stages
  double data = 0;   ///< exposed gradients and weights
  double optimizer = 0;
  double total = 0;

  double dataWhole = 0;   ///< all of gradients and weights, exposed or not
  double expertWhole = 0; ///< all-to-all of a sparse layer and microbatch
  double layerWhole = 0;  ///< of a (sparse) layer and microbatch, all-to-all
                          ///< included and exposed
  /// Forward and backward pass of one microbatch on the slowest rank.
  PassTimes slowest;

  /// The fraction of the pipelines' time for filling and draining.
  double bubbleShare() const { return bubble / (bubble + perRank.total()); }
  /// Relative to the bf16 peak of all GPUs.
  double utilization = 0;
  double tokensPerSecond = 0;
};

/// Layer costs of a plan, which many plans share: they do not depend on pipe,
/// interleave, data, zero or schedule.
struct PricedLayers {
  LayerCost dense, sparse, head, embedding;
};

class CostModel {
public:
  CostModel(const ModelShape &model, const Cluster &cluster,
            const Workload &workload);

  PricedLayers price(const ParallelPlan &plan) const;

  /// How layers are distributed: evenly, or with fewer on the rank with the
  /// head, if that is faster. Chunks of a rank are equal, as unequal ones stall
  /// a pipeline; only the last rank's may be smaller.
  StageLayers stages(const ParallelPlan &plan,
                     const PricedLayers &layers) const;

  /// One microbatch through each of pipe * interleave stages, in order. A
  /// rank's layers are distributed evenly over its chunks; the first ones get
  /// the remainder.
  std::vector<PassTimes> stageTimes(const ParallelPlan &plan,
                                    const PricedLayers &layers) const;

  /// The step of a plan that breaks no constraint.
  StepCost step(const ParallelPlan &plan, const PricedLayers &layers) const;
  StepCost step(const ParallelPlan &plan) const {
    return step(plan, price(plan));
  }

  /// bf16 peak of one GPU, FLOP/s.
  double peak() const { return cluster.gpu.bf16; }
  const LayerPricer &pricer() const { return layerPricer; }

private:
  PassTimes overlapped(const LayerCost &layer, const ParallelPlan &plan) const;
  PassTimes futureBlocks(const ParallelPlan &plan,
                         const PricedLayers &layers) const;
  void addPipeline(StepCost &cost, const ParallelPlan &plan,
                   const PricedLayers &layers) const;
  void addCounting(StepCost &cost, const ParallelPlan &plan,
                   const PricedLayers &layers) const;
  void addData(StepCost &cost, const ParallelPlan &plan) const;
  /// Seconds of a step's collectives of parameters.
  struct StateTransfers {
    double gather = 0; ///< of weights (of gradients without ZeRO), once
    double reduce = 0; ///< of gradients to shards, once
    double across = 0; ///< of the shards' sums over replicas, once a step
  };
  StateTransfers stateTransfers(const StepCost &cost,
                                const ParallelPlan &plan) const;
  void addShardedWeights(StepCost &cost, const StateTransfers &transfers) const;
  void addOptimizer(StepCost &cost, const ParallelPlan &plan) const;

  ModelShape model;
  Cluster cluster;
  Workload workload;
  LayerPricer layerPricer;
};

} // namespace tessera::planner
