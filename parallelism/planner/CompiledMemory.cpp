// The memory of programs of this compiler, as their execution plans have it
// (bench/plan/memory.py compares): what is live at the peak of @train_step.
#include <algorithm>

#include "dialects/graph/HeadChunks.h"
#include "parallelism/planner/MemoryModel.h"

namespace tessera::planner {
namespace {

/// Of one rank and one microbatch.
struct Rank {
  const ModelShape &model;
  const Workload &workload;
  const ParallelPlan &plan;
  RankLayers has;

  double tokens() const {
    return double(plan.micro) * double(workload.sequence) /
           double(plan.context);
  }
  /// Elements of the head's table.
  double table() const {
    return double(model.vocab) * double(model.hidden) / double(plan.tensor);
  }
  /// A step of one microbatch has no loop over them.
  bool loops() const {
    return plan.pipe > 1 || microbatches(plan, workload) > 1;
  }
  bool sparse() const { return model.experts > 0; }
};

/// Kept from the forward to the backward pass of a layer. With selective
/// recomputation the operands of a gated MLP's activation are kept in fp32 too,
/// those of any other with its result.
double keptBytes(const Rank &rank) {
  const Workload &workload = rank.workload;
  double bytes = layerActivations(rank.model, workload, rank.plan,
                                  rank.sparse(), rank.plan.recompute);
  if (rank.plan.recompute == Recompute::None && rank.model.headNorms)
    bytes += workload.elementBytes * rank.tokens() *
             double(rank.model.queryWidth() + rank.model.keyValueWidth()) /
             double(rank.plan.tensor); // operands of the norms
  if (rank.plan.recompute == Recompute::Selective && !rank.sparse()) {
    double width = rank.tokens() * double(rank.model.intermediate) /
                   double(rank.plan.tensor);
    if (!rank.model.gated)
      bytes += workload.elementBytes * width;
    else if (workload.elementBytes < 4)
      bytes += 2 * 4 * width;
  }
  return bytes;
}

/// Weights in the type of products, while fp32 ones are state. The lookup reads
/// the latter; a tied head has a transposed copy as well.
double copiedWeights(const Rank &rank, double all) {
  if (rank.has.first && rank.model.learnedPositions)
    all -= double(rank.model.maxPositions * rank.model.hidden) /
           double(rank.plan.tensor);
  if (rank.has.first && !(rank.model.tied && rank.has.last))
    all -= rank.table();
  if (rank.has.last && rank.model.tied)
    all += rank.table();
  return rank.workload.elementBytes * all;
}

/// The logits of a chunk of tokens in fp32. In a loop the gradient of a tied
/// table is computed before it is added to the sum.
double headBytes(const Rank &rank) {
  if (!rank.has.last)
    return 0;
  const int64_t tokens = int64_t(rank.tokens());
  const int64_t vocab =
      std::max<int64_t>(1, rank.model.vocab / rank.plan.tensor);
  const int64_t limit = graph::headChunkBytes(int64_t(rank.table()), true);
  // As countHeadChunks, without its search for a divisor.
  const double most = std::max(1.0, double(limit) / (4.0 * double(vocab)));
  double logits = 4 * double(vocab) * std::min(double(tokens), most);
  if (rank.model.tied && rank.loops())
    logits += rank.workload.gradientBytes * rank.table();
  return logits;
}

double bufferBytes(const Rank &rank) {
  const ModelShape &model = rank.model;
  const ParallelPlan &plan = rank.plan;
  const double element = rank.workload.elementBytes;
  const double row = rank.tokens() * double(model.hidden);
  double bytes = 0;
  if (plan.tensor > 1) // rows of all tensor ranks, before and after a matmul
    bytes += 2 * element * row;
  if (plan.pipe > 1)
    bytes += 4 * element * row / double(plan.tensor);
  if (plan.context > 1)
    bytes += 4 * element * rank.tokens() * double(model.keyValueWidth()) /
             double(plan.tensor);
  if (rank.sparse() && plan.expert > 1)
    bytes += 2 * element * row / double(plan.tensor) *
             double(model.expertsPerToken) * rank.workload.imbalance;
  return bytes;
}

/// Of a layer at work in the backward pass: its values, and under ZeRO its
/// whole gradient or weights.
double layerBytes(const Rank &rank, double all) {
  const double layers = double(std::max<int64_t>(1, rank.has.layers));
  double bytes = layerActivations(rank.model, rank.workload, rank.plan,
                                  rank.sparse(), Recompute::None);
  if (rank.plan.zero >= 2)
    bytes += rank.workload.gradientBytes * all / layers;
  if (rank.plan.zero >= 3)
    bytes += 2 * rank.workload.elementBytes * all / layers;
  return bytes;
}

} // namespace

Memory compiledMemory(const ModelShape &model, const Workload &workload,
                      const ParallelPlan &plan, RankLayers has) {
  const Rank rank{model, workload, plan, has};
  const RankParameters parameters =
      rankParameters(model, plan, has.layers, has.first, has.last);
  const double all = parameters.dense + parameters.experts;
  const double shared = parameters.dense / double(plan.shardRanks()) +
                        parameters.experts / double(plan.expertShardRanks());
  Memory memory = heldState(workload, plan.zero, all, shared);
  if (workload.elementBytes < workload.gradientBytes && plan.zero < 3)
    memory.weights = copiedWeights(rank, all);
  memory.activations = rankInFlight(plan, workload, has.last) *
                       double(has.layers) * keptBytes(rank);
  memory.buffers = bufferBytes(rank);
  const double head = headBytes(rank), layer = layerBytes(rank, all);
  memory.workspace = workload.libraryBytes + std::max(head, layer);
  if (rank.loops())
    return memory;
  // Gradients take the place of activations and copies of weights: the peak is
  // before the backward pass, with the head's gradient, or after it.
  const bool isNarrow = workload.elementBytes < workload.gradientBytes;
  const double before = (isNarrow ? memory.weights : 0) + memory.activations +
                        head + workload.gradientBytes * rank.table();
  const double after = memory.gradients + layer;
  if (before >= after) {
    memory.gradients = workload.gradientBytes * rank.table();
    memory.workspace = workload.libraryBytes + head;
    return memory;
  }
  memory.activations = 0;
  if (isNarrow)
    memory.weights = 0;
  memory.workspace = workload.libraryBytes + layer;
  return memory;
}

} // namespace tessera::planner
