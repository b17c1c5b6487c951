#include "parallelism/planner/CostModel.h"

#include <algorithm>
#include <limits>

namespace tessera::planner {
namespace {

/// Multiprocessors that a collective occupies while it runs (NCCL's channels,
/// DeepEP's 20 of 132); overlapping kernels have the others.
constexpr double communicationMultiprocessors = 16;
/// On a device with fewer multiprocessors a collective takes all.
double communicationShare(const Gpu &gpu) {
  return std::min(1.0,
                  communicationMultiprocessors / double(gpu.multiprocessors));
}
/// The fraction of another microbatch's kernels with which an all-to-all can
/// overlap: the kernels next to it wait for it.
constexpr double pairedShare = 0.9;

} // namespace

Times &Times::add(const Times &other, double times) {
  compute += times * other.compute;
  recompute += times * other.recompute;
  tensor += times * other.tensor;
  expert += times * other.expert;
  context += times * other.context;
  tax += times * other.tax;
  return *this;
}

PassTimes &PassTimes::add(const PassTimes &other, double times) {
  forward.add(other.forward, times);
  backward.add(other.backward, times);
  weight += times * other.weight;
  return *this;
}

CostModel::CostModel(const ModelShape &model, const Cluster &cluster,
                     const Workload &workload)
    : model(model), cluster(cluster), workload(workload),
      layerPricer(model, cluster, workload) {}

PricedLayers CostModel::price(const ParallelPlan &plan) const {
  PricedLayers layers;
  if (model.layers > model.sparseLayers())
    layers.dense = layerPricer.layer(plan, false);
  if (model.experts > 0)
    layers.sparse = layerPricer.layer(plan, true);
  layers.head = layerPricer.head(plan);
  layers.embedding = layerPricer.embedding(plan);
  return layers;
}

/// The exposed time of a layer's collectives.
PassTimes CostModel::overlapped(const LayerCost &layer,
                                const ParallelPlan &plan) const {
  double share = communicationShare(cluster.gpu);
  PassTimes times;
  times.forward.compute = layer.forward;
  times.backward.compute = layer.input + layer.weight;
  times.backward.recompute = layer.recompute;
  times.weight = layer.weight;
  times.forward.context = layer.context.forward;
  times.backward.context = layer.context.backward;

  Transfer exposed = layer.exposedTensor();
  double forward = layer.tensor.forward - exposed.forward;
  double backward = layer.tensor.backward - exposed.backward;
  times.forward.tensor = exposed.forward;
  times.backward.tensor = exposed.backward;

  // One microbatch's exchange overlaps with another's kernels, except while the
  // pipeline fills and drains with a single one.
  double batches = double(microbatches(plan, workload) * plan.interleave);
  double paired =
      workload.overlap.expert
          ? pairedShare * std::max(0.0, 1 - double(plan.pipe) / batches)
          : 0;
  double exchange = layer.expert.forward + layer.expert.backward;
  double hidden = std::min(paired * exchange,
                           pairedShare * (layer.forward + layer.backward()));
  double kept = exchange > 0 ? 1 - hidden / exchange : 0;
  times.forward.expert = layer.expert.forward * kept;
  times.backward.expert = layer.expert.backward * kept;

  times.forward.tax = share * (forward + layer.expert.forward * (1 - kept));
  times.backward.tax = share * (backward + layer.expert.backward * (1 - kept));
  return times;
}

/// The last rank predicts further tokens with a layer and the head each.
PassTimes CostModel::futureBlocks(const ParallelPlan &plan,
                                  const PricedLayers &layers) const {
  PassTimes times;
  if (model.futureLayers == 0)
    return times;
  times.add(overlapped(model.experts ? layers.sparse : layers.dense, plan));
  times.add(overlapped(layers.head, plan));
  PassTimes all;
  return all.add(times, double(model.futureLayers));
}

/// Layers of each chunk of the last rank, which has the head after its last
/// chunk: layers that it has fewer than others are missing from there first, as
/// in what assign-stages cuts and in DeepSeek-V3's layouts of Megatron-Bridge.
static std::vector<int64_t> lastChunks(const ParallelPlan &plan,
                                       StageLayers stages) {
  std::vector<int64_t> layers;
  int64_t chunks = plan.interleave, left = stages.last;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    int64_t others =
        stages.most / chunks + (chunk < stages.most % chunks ? 1 : 0);
    layers.push_back(std::min(others, left));
    left -= layers.back();
  }
  layers.back() += left;
  return layers;
}

/// Seconds between two microbatches of a pipeline whose ranks have `stages`:
/// ranks do their chunks in the same order, so each chunk takes as long as the
/// slowest rank needs for it.
static double pace(const ParallelPlan &plan, StageLayers stages, double layer,
                   double head) {
  double seconds = 0;
  std::vector<int64_t> own = lastChunks(plan, stages);
  for (int64_t chunk = 0; chunk < plan.interleave; ++chunk) {
    double last = double(own[size_t(chunk)]) * layer +
                  (chunk + 1 == plan.interleave ? head : 0);
    double others = double(stages.most) / double(plan.interleave) * layer;
    seconds += std::max(last, others);
  }
  return seconds;
}

StageLayers CostModel::stages(const ParallelPlan &plan,
                              const PricedLayers &layers) const {
  int64_t ranks = plan.pipe;
  if (ranks == 1)
    return {model.layers, model.layers};
  int64_t chunks = plan.interleave * ranks, all = model.layers;
  if (plan.evenStages)
    return {all / ranks, all / ranks};
  double layer =
      overlapped(model.experts ? layers.sparse : layers.dense, plan).total();
  double head = overlapped(layers.head, plan).total() +
                futureBlocks(plan, layers).total();
  int64_t most = (all + chunks - 1) / chunks * plan.interleave;
  StageLayers best;
  double fastest = std::numeric_limits<double>::infinity();
  for (; most <= all; most += plan.interleave) {
    // Where a rank is one chunk, others may differ by a layer, and the last
    // takes as many as do not make it the slowest.
    int64_t rest = all - (ranks - 1) * most, last = rest;
    if (plan.interleave == 1)
      last = std::clamp(int64_t(double(most) - head / layer),
                        std::max<int64_t>(0, rest), most);
    if (last < 0)
      break;
    double slowest = pace(plan, {most, last}, layer, head);
    if (slowest >= fastest)
      break;
    best = {most, last};
    fastest = slowest;
  }
  return best;
}

std::vector<PassTimes> CostModel::stageTimes(const ParallelPlan &plan,
                                             const PricedLayers &layers) const {
  StageLayers split = stages(plan, layers);
  int64_t ranks = plan.pipe, chunks = plan.interleave;
  PassTimes dense = overlapped(layers.dense, plan);
  PassTimes sparse = overlapped(layers.sparse, plan);
  int64_t denseLeft = model.layers - model.sparseLayers();
  int64_t layersLeft = model.layers;
  std::vector<PassTimes> result(size_t(ranks * chunks));
  std::vector<int64_t> ownOfLast = lastChunks(plan, split);
  for (size_t stage = 0; stage < result.size(); ++stage) {
    int64_t place = int64_t(stage) % ranks, chunk = int64_t(stage) / ranks;
    int64_t own = split.most;
    if (chunks == 1 && place != ranks - 1)
      own = (model.layers - split.last + ranks - 2 - place) / (ranks - 1);
    int64_t count = own / chunks + (chunk < own % chunks ? 1 : 0);
    if (place == ranks - 1)
      count = ownOfLast[size_t(chunk)];
    count =
        stage + 1 == result.size() ? layersLeft : std::min(count, layersLeft);
    int64_t denseHere = std::min(count, denseLeft);
    layersLeft -= count;
    denseLeft -= denseHere;
    result[stage].add(dense, double(denseHere));
    result[stage].add(sparse, double(count - denseHere));
  }
  result.front().add(overlapped(layers.embedding, plan));
  result.back().add(overlapped(layers.head, plan));
  result.back().add(futureBlocks(plan, layers));
  return result;
}

void CostModel::addPipeline(StepCost &cost, const ParallelPlan &plan,
                            const PricedLayers &layers) const {
  PassTimes dense = overlapped(layers.dense, plan);
  PassTimes sparse = overlapped(layers.sparse, plan);
  PassTimes head =
      overlapped(layers.head, plan).add(futureBlocks(plan, layers));
  PassTimes embedding = overlapped(layers.embedding, plan);
  const PassTimes &usual = model.experts ? sparse : dense;
  int64_t denseLayers = model.layers - model.sparseLayers();

  // All ranks together, then the fullest ones: a middle rank, the last.
  PassTimes all;
  all.add(dense, double(denseLayers))
      .add(sparse, double(model.sparseLayers()))
      .add(head)
      .add(embedding);
  double ranks = double(plan.pipe), batches = double(cost.microbatches);
  PassTimes middle, last;
  if (plan.pipe == 1) {
    last = all;
  } else {
    middle.add(usual, double(cost.stages.most));
    // The first has the lookup, and dense layers if any are.
    PassTimes first;
    double firstDense = double(std::min(denseLayers, cost.stages.most));
    first.add(dense, firstDense)
        .add(usual, double(cost.stages.most) - firstDense)
        .add(embedding);
    if (model.experts == 0 || first.total() > middle.total())
      middle = first;
    last.add(usual, double(cost.stages.last)).add(head);
  }
  cost.slowest = last.total() >= middle.total() ? last : middle;

  Times mean;
  mean.add(all.forward, batches / ranks).add(all.backward, batches / ranks);
  cost.perRank = mean;
  double slowest = cost.slowest.total();
  double paced = slowest;
  if (plan.pipe > 1)
    paced =
        std::max(slowest, pace(plan, cost.stages, usual.total(), head.total()));
  cost.uneven = std::max(0.0, batches * paced - mean.total());

  // Filling and draining: every other rank's microbatch once, or a chunk of it.
  double others = std::max(0.0, all.total() - slowest);
  if (plan.schedule == Schedule::ZeroBubbleH1)
    cost.bubble = std::max(0.0, others - 2 * all.weight * (ranks - 1) / ranks);
  else
    cost.bubble = others / double(plan.interleave);

  if (plan.pipe == 1)
    return;
  double bytes = workload.elementBytes * double(plan.micro) *
                 double(workload.sequence) * double(model.hidden) /
                 double(plan.context * plan.tensor);
  double send = layerPricer.collectives().send(bytes, plan.stageRanks());
  cost.send = 2 * (ranks - 1) * send;
  if (!workload.overlap.pipe)
    cost.send += 2 * batches * double(plan.interleave) * send;
}

/// All layers forward for every microbatch, without the head: a pipeline fills
/// and drains once more, and no other part of a step overlaps with it.
void CostModel::addCounting(StepCost &cost, const ParallelPlan &plan,
                            const PricedLayers &layers) const {
  const Times dense = overlapped(layers.dense, plan).forward,
              sparse = overlapped(layers.sparse, plan).forward,
              embedding = overlapped(layers.embedding, plan).forward;
  const Times &usual = model.experts ? sparse : dense;
  Times all, slowest;
  all.add(dense, double(model.layers - model.sparseLayers()))
      .add(sparse, double(model.sparseLayers()))
      .add(embedding);
  if (plan.pipe == 1)
    slowest = all;
  else
    slowest.add(usual, double(cost.stages.most));
  const double batches = double(cost.microbatches);
  const double share = batches / double(plan.pipe);
  cost.perRank.add(all, share);
  cost.uneven += std::max(0.0, batches * slowest.total() - share * all.total());
  cost.bubble +=
      std::max(0.0, all.total() - slowest.total()) / double(plan.interleave);
}

/// ZeRO-3 gathers weights forward and backward and reduces gradients, a layer
/// ahead of its use, for every microbatch. Replicas add their sums under the
/// last backward pass.
void CostModel::addShardedWeights(StepCost &cost,
                                  const StateTransfers &transfers) const {
  const auto [gather, reduce, across] = transfers;
  double batches = double(cost.microbatches);
  double share = communicationShare(cluster.gpu);
  double edge = 1 / double(model.layers);
  double forwards = workload.countsBefore ? 2 : 1;
  cost.dataWhole = batches * ((forwards + 1) * gather + reduce) + across;
  if (!workload.overlap.data) {
    cost.data = cost.dataWhole;
    return;
  }
  double forward = cost.slowest.forward.total();
  double backward = cost.slowest.backward.total();
  double visible =
      forwards * std::max(edge * gather, gather - (1 - edge) * forward) +
      std::max(edge * (gather + reduce),
               gather + reduce - (1 - edge) * backward);
  double rest = std::max(0.0, (1 - edge) * backward - gather - reduce);
  cost.data = batches * visible + std::max(edge * across, across - rest);
  cost.perRank.tax += (cost.dataWhole - cost.data) * share;
}

CostModel::StateTransfers
CostModel::stateTransfers(const StepCost &cost,
                          const ParallelPlan &plan) const {
  const CollectiveCost &collectives = layerPricer.collectives();
  RankParameters parameters =
      rankParameters(model, plan, cost.stages.most, true, plan.pipe == 1);
  RankGroup dense{plan.shardRanks(), plan.tensor};
  RankGroup copies{plan.expertShardRanks(), plan.expert * plan.expertTensor};
  auto both = [&](Collective kind, double bytes) {
    return collectives.seconds(kind, bytes * parameters.dense, dense) +
           collectives.seconds(kind, bytes * parameters.experts, copies);
  };
  StateTransfers transfers;
  transfers.reduce = both(Collective::ReduceScatter, workload.gradientBytes);
  transfers.gather =
      both(Collective::AllGather,
           plan.zero == 0 ? workload.gradientBytes : workload.elementBytes);
  double shard = parameters.dense / double(plan.shardRanks()) +
                 parameters.experts / double(plan.expertShardRanks());
  transfers.across =
      collectives.seconds(Collective::AllReduce, workload.gradientBytes * shard,
                          {plan.replicate, plan.stageRanks() / plan.replicate});
  return transfers;
}

void CostModel::addData(StepCost &cost, const ParallelPlan &plan) const {
  const StateTransfers transfers = stateTransfers(cost, plan);
  if (plan.zero == 3)
    return addShardedWeights(cost, transfers);
  const auto [gather, reduce, across] = transfers;
  double times = plan.zero == 2 ? double(cost.microbatches) : 1;
  cost.dataWhole = gather + times * reduce + across;
  // Programs of this compiler move no collective past a transfer between
  // stages: gradients follow the last one, weights precede the first.
  const bool isOrdered = workload.compiled && plan.pipe > 1;
  if (!workload.overlap.data || isOrdered) {
    cost.data = cost.dataWhole;
    return;
  }
  // Gradients are ready when a layer's last microbatch is through. With several
  // chunks a rank, all chunks but one are done p microbatches before the end.
  double layers = double(std::max<int64_t>(1, cost.stages.most));
  double chunks = double(plan.interleave);
  double ahead =
      (chunks - 1) / chunks * double(std::min(plan.pipe, cost.microbatches)) +
      (1 / chunks) * (1 - std::min(1.0, chunks / layers));
  double edge = 1 / layers; // one layer's bucket has nothing to overlap with
  auto visible = [&](double whole, double under) {
    return std::max(edge * whole, whole - under);
  };
  // ZeRO-2 reduces every microbatch's gradients under the next one. Replicas
  // add theirs under what the last one's leave.
  double last = cost.slowest.backward.total() * ahead;
  double backward = cost.slowest.backward.total() * (ahead + (times - 1));
  double kept = visible(times * reduce, backward) +
                visible(across, std::max(0.0, last - reduce)) +
                visible(gather, cost.slowest.forward.total() * ahead);
  double share = communicationShare(cluster.gpu);
  cost.perRank.tax += share * (cost.dataWhole - kept);
  cost.data = kept;
}

/// Reads and writes of state, bound by memory: gradient twice (its norm first),
/// master and moments in and out, the weights out.
void CostModel::addOptimizer(StepCost &cost, const ParallelPlan &plan) const {
  RankParameters parameters =
      rankParameters(model, plan, cost.stages.most, true, plan.pipe == 1);
  double own = parameters.dense + parameters.experts;
  if (plan.zero > 0)
    own = parameters.dense / double(plan.shardRanks()) +
          parameters.experts / double(plan.expertShardRanks());
  double bytes = 2 * workload.optimizerBytes + 2 * workload.gradientBytes +
                 workload.elementBytes;
  cost.optimizer = layerPricer.kernels().elementwise(own * bytes, 4);
}

StepCost CostModel::step(const ParallelPlan &plan,
                         const PricedLayers &layers) const {
  StepCost cost;
  cost.microbatches = microbatches(plan, workload);
  cost.stages = stages(plan, layers);
  const LayerCost &usual = model.experts ? layers.sparse : layers.dense;
  cost.expertWhole = usual.expert.forward + usual.expert.backward;
  cost.layerWhole = usual.forward + usual.backward() + cost.expertWhole +
                    usual.tensor.forward + usual.tensor.backward;
  addPipeline(cost, plan, layers);
  if (workload.countsBefore)
    addCounting(cost, plan, layers);
  addData(cost, plan);
  addOptimizer(cost, plan);
  cost.total = cost.perRank.total() + cost.uneven + cost.bubble + cost.send +
               cost.data + cost.optimizer;
  double tokens = double(workload.globalBatch) * double(workload.sequence);
  cost.tokensPerSecond = tokens / cost.total;
  cost.utilization = model.flopsPerToken(workload.sequence) *
                     cost.tokensPerSecond /
                     (double(plan.gpus()) * cluster.gpu.bf16);
  return cost;
}

} // namespace tessera::planner
