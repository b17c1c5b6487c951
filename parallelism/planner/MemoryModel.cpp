#include "parallelism/planner/MemoryModel.h"

#include <algorithm>

namespace tessera::planner {
namespace {

/// A planned arena has no fragmentation; other allocations have.
constexpr double usableShare = 0.97;
/// Rows of the head's loss that exist at once where it is chunked.
constexpr double chunkRows = 4096;
/// Gradients of a bucket that is being sent, twice.
constexpr double bucketParameters = 40e6;

/// Activations of a microbatch that a layer reads or writes, in elements.
struct LayerSizes {
  double row = 0;    ///< tokens * hidden of a rank under sequence parallelism
  double tokens = 0; ///< all tensor ranks'
  double heads = 0;  ///< of a tensor rank
};

LayerSizes sizesOf(const ModelShape &model, const Workload &workload,
                   const ParallelPlan &plan) {
  LayerSizes sizes;
  sizes.tokens =
      double(plan.micro) * double(workload.sequence) / double(plan.context);
  sizes.row = sizes.tokens * double(model.hidden) / double(plan.tensor);
  sizes.heads = double(model.heads) / double(plan.tensor);
  return sizes;
}

/// q, k, v, attention's result and its log-sum-exp, the residual after it.
double attentionBytes(const ModelShape &model, const Workload &workload,
                      const ParallelPlan &plan, const LayerSizes &sizes,
                      Recompute recompute) {
  double tensor = double(plan.tensor);
  double queries = sizes.tokens * double(model.queryWidth()) / tensor;
  double keys = sizes.tokens * double(model.kvHeads) *
                double(model.headDim + model.valueHeadDim) / tensor;
  double values = sizes.tokens * sizes.heads * double(model.valueHeadDim);
  double bytes = 2 * (queries + keys + values) + 2 * sizes.row;
  if (model.keyValueRank > 0) {
    double compressed =
        sizes.tokens / tensor * double(model.queryRank + model.keyValueRank);
    // Heads are recomputed from the compressed vectors.
    bytes += 2 * compressed;
    if (recompute != Recompute::None)
      bytes -= 2 * (queries + keys);
  }
  if (workload.flashAttention)
    bytes += 4 * sizes.tokens * sizes.heads;
  else if (recompute == Recompute::None) // 5as/h of sbh: softmax, dropout
    bytes += (workload.dropout ? 5 : 2) * sizes.tokens * sizes.heads *
             double(workload.sequence);
  if (workload.dropout)
    bytes += sizes.row;
  if (recompute == Recompute::None)
    bytes += 2 * sizes.row; // the norm's result
  return bytes;
}

double mlpBytes(const ModelShape &model, const Workload &workload,
                const ParallelPlan &plan, const LayerSizes &sizes, bool sparse,
                Recompute recompute) {
  double ways = model.gated ? 2 : 1;
  bool all = recompute == Recompute::None;
  double bytes = workload.dropout ? sizes.row : 0;
  if (all)
    bytes += 2 * sizes.row; // the norm's result
  double dense = double(sparse ? model.sharedWidth : model.intermediate) *
                 sizes.tokens / double(plan.tensor);
  bytes += 2 * (ways + (all ? 1 : 0)) * dense;
  if (!sparse)
    return bytes;
  double routed = sizes.tokens / double(plan.tensor) *
                  double(model.expertsPerToken) * workload.imbalance;
  // Rows in order of experts, whole on each of expertTensor ranks; those split
  // the width, and have the rows of all of them.
  double rows = routed * double(plan.expertTensor) * double(model.hidden);
  bytes += 2 * rows;
  bytes += 2 * (ways + (all ? 1 : 0)) * routed * double(model.expertWidth);
  if (all)
    bytes += 2 * rows; // results of experts
  bytes += 4 * sizes.tokens / double(plan.tensor) * double(model.experts);
  return bytes;
}

} // namespace

double usableMemory(const Gpu &gpu) { return gpu.memory * usableShare; }

RankParameters rankParameters(const ModelShape &model, const ParallelPlan &plan,
                              int64_t layers, bool embedding, bool head) {
  double sparse = 0;
  if (model.experts > 0) {
    // The dense layers are the first; a rank of others has none.
    double denseLayers =
        embedding ? double(std::min(model.denseLayers, layers)) : 0;
    sparse = double(layers) - denseLayers;
  }
  double tensor = double(plan.tensor);
  RankParameters result;
  result.dense =
      (double(layers) * double(model.attentionParameters()) +
       (double(layers) - sparse) * double(model.denseMlpParameters()) +
       sparse * double(model.sharedParameters())) /
      tensor;
  result.experts = sparse * double(model.experts) *
                   double(model.expertParameters()) /
                   double(plan.expert * plan.expertTensor);
  if (embedding)
    result.dense += double(model.embeddingParameters()) / tensor;
  if (head && !(embedding && model.tied)) // tied: a copy where there are stages
    result.dense += double(model.vocab * model.hidden) / tensor;
  if (head && model.futureLayers > 0) {
    double blocks = double(model.futureLayers);
    result.dense +=
        blocks *
        double(model.attentionParameters() + model.sharedParameters() +
               2 * model.hidden * model.hidden) /
        tensor;
    result.experts += blocks * double(model.experts) *
                      double(model.expertParameters()) /
                      double(plan.expert * plan.expertTensor);
  }
  return result;
}

double layerActivations(const ModelShape &model, const Workload &workload,
                        const ParallelPlan &plan, bool sparse,
                        Recompute recompute) {
  LayerSizes sizes = sizesOf(model, workload, plan);
  double bytes = 2 * sizes.row; // the layer's input
  if (recompute != Recompute::Full) {
    if (recompute != Recompute::Attention)
      bytes += attentionBytes(model, workload, plan, sizes, recompute);
    bytes += mlpBytes(model, workload, plan, sizes, sparse, recompute);
  }
  return bytes * workload.elementBytes / 2;
}

double microbatchesInFlight(const ParallelPlan &plan,
                            const Workload &workload) {
  double stages = double(plan.pipe);
  double held = stages;
  if (plan.schedule == Schedule::Interleaved)
    held = stages + (stages - 1) / double(plan.interleave);
  if (workload.overlap.expert && plan.expert > 1)
    held += 1 / double(plan.interleave);
  return std::min(held, double(microbatches(plan, workload)));
}

double rankInFlight(const ParallelPlan &plan, const Workload &workload,
                    bool last) {
  double inFlight = microbatchesInFlight(plan, workload);
  if (last && plan.pipe > 1 && plan.schedule == Schedule::OneF1B)
    inFlight -= double(plan.pipe - 1); // it goes back at once
  return std::max(1.0, inFlight);
}

Memory heldState(const Workload &workload, int zero, double all,
                 double shared) {
  Memory memory;
  memory.optimizer = workload.optimizerBytes * (zero >= 1 ? shared : all);
  memory.gradients = workload.gradientBytes * (zero >= 2 ? shared : all);
  memory.weights = workload.elementBytes * (zero >= 3 ? shared : all);
  return memory;
}

static Memory rankMemory(const ModelShape &model, const Workload &workload,
                         const ParallelPlan &plan, int64_t layers, bool first,
                         bool last) {
  if (workload.compiled)
    return compiledMemory(model, workload, plan, {layers, first, last});
  RankParameters parameters = rankParameters(model, plan, layers, first, last);
  double all = parameters.dense + parameters.experts;
  // A parameter's shard if it is sharded over a replica's data ranks.
  double shared = parameters.dense / double(plan.shardRanks()) +
                  parameters.experts / double(plan.expertShardRanks());
  Memory memory = heldState(workload, plan.zero, all, shared);
  bool sparse = model.experts > 0;
  double layer =
      layerActivations(model, workload, plan, sparse, plan.recompute);
  memory.activations =
      rankInFlight(plan, workload, last) * double(layers) * layer;

  LayerSizes sizes = sizesOf(model, workload, plan);
  double element = workload.elementBytes;
  if (plan.tensor > 1) // rows of all tensor ranks, before and after a matmul
    memory.buffers += 2 * element * sizes.tokens * double(model.hidden);
  if (plan.pipe > 1)
    memory.buffers += 4 * element * sizes.row;
  if (plan.context > 1)
    memory.buffers += 4 * element * sizes.tokens *
                      double(model.keyValueWidth()) / double(plan.tensor);
  if (sparse && plan.expert > 1)
    memory.buffers += 2 * element * sizes.row * double(model.expertsPerToken) *
                      workload.imbalance;
  if (plan.data * plan.context > 1)
    memory.buffers +=
        2 * workload.gradientBytes * std::min(bucketParameters, all);
  if (plan.zero >= 3) // two layers' weights and a layer's gradient, whole
    memory.buffers += (2 * element + workload.gradientBytes) * all /
                      double(std::max<int64_t>(1, layers));

  // The backward pass of a layer has all of its values and their gradients.
  memory.workspace =
      workload.libraryBytes +
      layerActivations(model, workload, plan, sparse, Recompute::None);
  if (last) {
    double rows =
        workload.chunkedLoss ? std::min(sizes.tokens, chunkRows) : sizes.tokens;
    memory.workspace += rows * double(model.vocab) / double(plan.tensor) *
                        (workload.chunkedLoss ? 4 : 6);
  }
  return memory;
}

Memory peakMemory(const ModelShape &model, const Workload &workload,
                  const ParallelPlan &plan, StageLayers stages) {
  if (plan.pipe == 1)
    return rankMemory(model, workload, plan, stages.last, true, true);
  Memory first = rankMemory(model, workload, plan, stages.most, true, false);
  Memory last = rankMemory(model, workload, plan, stages.last, false, true);
  return first.total() >= last.total() ? first : last;
}

} // namespace tessera::planner
