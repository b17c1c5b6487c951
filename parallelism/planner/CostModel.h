// Seconds of a training step under a plan, by what they go to.
#pragma once
#include "parallelism/planner/LayerCost.h"
#include "parallelism/planner/MemoryModel.h"

namespace tessera::planner {

/// Seconds of one rank, by cause. Compute is what the model asks for; the rest
/// is what the plan adds.
struct Times {
  double compute = 0;   ///< kernels, each once
  double recompute = 0; ///< kernels again
  double tensor = 0;    ///< collectives of activations that nothing hides
  double expert = 0;    ///< all-to-all that nothing hides
  double context = 0;   ///< ring attention's sends that nothing hides
  /// Kernels run slower beside a collective, which takes multiprocessors.
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
  double send = 0;   ///< activations between stages that nothing hides
  double data = 0;   ///< gradients and weights that nothing hides
  double optimizer = 0;
  double total = 0;

  double dataWhole = 0;   ///< all of gradients and weights, hidden or not
  double expertWhole = 0; ///< all-to-all of a sparse layer and microbatch
  double layerWhole = 0;  ///< of a (sparse) layer and microbatch, all-to-all
                          ///< included and not hidden
  /// Forward and backward pass of one microbatch on the slowest rank.
  PassTimes slowest;

  /// Of the time that pipelines run: what filling and draining takes.
  double bubbleShare() const { return bubble / (bubble + perRank.total()); }
  /// Of the peak of bf16 on all GPUs.
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

  /// How layers are dealt out: evenly, or so that the rank with the head is not
  /// the slowest as long as another split is faster. Chunks of a rank are
  /// alike, as unequal ones stall a pipeline; only the last rank's may be
  /// smaller.
  StageLayers stages(const ParallelPlan &plan,
                     const PricedLayers &layers) const;

  /// One microbatch through each of pipe * interleave stages, in order. A
  /// rank's layers are dealt to its chunks evenly, the first ones getting what
  /// is left.
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
  void addShardedWeights(StepCost &cost, const ParallelPlan &plan,
                         double gather, double reduce) const;
  void addOptimizer(StepCost &cost, const ParallelPlan &plan) const;

  ModelShape model;
  Cluster cluster;
  Workload workload;
  LayerPricer layerPricer;
};

} // namespace tessera::planner
