// Bytes of a rank at the peak of a training step, by category.
#pragma once
#include "parallelism/planner/ParallelPlan.h"

namespace tessera::planner {

/// Bytes. Sources: ZeRO (arXiv 1910.02054) for state sharded over data ranks,
/// Korthikanti et al. (2205.05198) for activations, Narayanan et al.
/// (2104.04473) for microbatches in flight.
struct Memory {
  double weights = 0; ///< as they are computed with
  double gradients = 0;
  double optimizer = 0;   ///< fp32 copy and moments
  double activations = 0; ///< kept from forward to backward passes
  double buffers = 0;     ///< of collectives
  double workspace = 0;   ///< one layer at work, the head, the libraries' own
  double total() const {
    return weights + gradients + optimizer + activations + buffers + workspace;
  }
  double state() const { return weights + gradients + optimizer; }
};

/// Layers of a pipeline's ranks: the last, which has the head, may hold fewer.
struct StageLayers {
  int64_t most = 0; ///< of the fullest rank but the last
  int64_t last = 0;
  bool operator==(const StageLayers &) const = default;
};

/// Parameters of a rank with `layers` layers, by the number of their copies.
struct RankParameters {
  double dense = 0;   ///< one copy for each data and context rank
  double experts = 0; ///< one for each of expertCopies()
};
RankParameters rankParameters(const ModelShape &model, const ParallelPlan &plan,
                              int64_t layers, bool embedding, bool head);

/// Bytes that a layer keeps of one microbatch on one rank under `recompute`.
double layerActivations(const ModelShape &model, const Workload &workload,
                        const ParallelPlan &plan, bool sparse,
                        Recompute recompute);

/// Microbatches whose activations the first rank holds at one time; not a whole
/// number if interleaved, as some chunks hold one more. An all-to-all that
/// overlaps with another microbatch needs a chunk of that one too.
double microbatchesInFlight(const ParallelPlan &plan, const Workload &workload);

/// The layers and ends of a model that a rank has.
struct RankLayers {
  int64_t layers = 0;
  bool first = false; ///< it has the embedding
  bool last = false;  ///< it has the head
};

/// The memory of a rank of a program of this compiler (Workload::compiled).
Memory compiledMemory(const ModelShape &model, const Workload &workload,
                      const ParallelPlan &plan, RankLayers rank);

/// Microbatches whose activations a rank holds at one time.
double rankInFlight(const ParallelPlan &plan, const Workload &workload,
                    bool last);

/// Weights, gradients and optimizer state under ZeRO (arXiv 1910.02054): of
/// `all` parameters a rank has `shared` if they are sharded. In bf16, bytes a
/// parameter over d ranks: 18, stage 1: 6 + 12/d, 2: 2 + 16/d, 3: 18/d.
Memory heldState(const Workload &workload, int zero, double all, double shared);

/// The fullest rank's memory: the first (activations of most microbatches) or
/// the last (the head).
Memory peakMemory(const ModelShape &model, const Workload &workload,
                  const ParallelPlan &plan, StageLayers stages);

/// The memory of a GPU that a plan may use: all but fragmentation.
double usableMemory(const Gpu &gpu);

} // namespace tessera::planner
