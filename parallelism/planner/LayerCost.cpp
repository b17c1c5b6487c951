#include "parallelism/planner/LayerCost.h"

#include <algorithm>
#include <cmath>

namespace tessera::planner {

namespace {

/// The collective of tensor parallelism next to a product: rows are gathered
/// before it, or its partial sums are scattered after it. Backward it is the
/// other way around, but only the gather is cut: the scatter overlaps with the
/// gradient of weights (TransformerLayerTPOverlapCfg of Megatron-Bridge).
enum class Neighbor { Nothing, Gather, Scatter };

} // namespace

/// Adds up a layer. `repeat` says whether the kernels that are added now are
/// recomputed in the backward pass.
struct LayerPricer::Pass {
  const ParallelPlan &plan;
  const Workload &workload;
  const KernelCost &kernel;
  LayerCost cost{};
  double tokens = 0; ///< of a microbatch on a context rank, all tensor ranks'
  bool repeat = false;
  bool chunks = false; ///< products overlap with collectives

  double ownTokens() const { return tokens / double(plan.tensor); }

  /// y[m, n] = x[m, k] w[k, n], its two gradients, and where fp8 is used the
  /// conversions of x and dy (read bf16, write fp8 twice: as is, transposed).
  void linear(int64_t m, int64_t n, int64_t k, int64_t groups = 1,
              bool lowPrecision = true, Neighbor neighbor = Neighbor::Nothing) {
    bool fp8 = workload.fp8 && lowPrecision && kernel.gpu().fp8 > 0;
    Operand operand = fp8                         ? Operand::Fp8
                      : workload.elementBytes > 2 ? Operand::Fp32
                                                  : Operand::Bf16;
    double rows = double(m) * double(groups);
    double forward =
        chunked(neighbor != Neighbor::Nothing, m, n, k, groups, operand);
    if (fp8)
      forward += kernel.elementwise(4 * rows * double(k));
    addForward(forward);
    if (!repeat)
      cost.recompute += workload.repeatedProducts * forward;
    cost.input +=
        chunked(neighbor == Neighbor::Scatter, m, k, n, groups, operand);
    if (fp8)
      cost.input += kernel.elementwise(4 * rows * double(n));
    // Gradients of weights are summed into an fp32 buffer.
    cost.weight += kernel.gemm(k, n, m, groups, operand, 8);
  }

  /// A product next to a collective that overlaps is cut into a product for
  /// each rank's rows, which are waves of tiles of their own: Transformer
  /// Engine's ring exchange; what it costs is why Flux (arXiv 2406.06858) fuses
  /// them.
  double chunked(bool overlaps, int64_t m, int64_t n, int64_t k, int64_t groups,
                 Operand operand) const {
    int64_t parts = overlaps && chunks ? plan.tensor : 1;
    return double(parts) *
           kernel.gemm((m + parts - 1) / parts, n, k, groups, operand);
  }

  void addForward(double seconds) {
    cost.forward += seconds;
    if (repeat)
      cost.recompute += seconds;
  }

  /// Elementwise work: forward, backward. In bytes if elements have two.
  void elementwise(double forward, double backward, int64_t kernels = 1) {
    double passes = workload.elementwisePasses * workload.elementBytes / 2;
    int64_t launches =
        int64_t(std::ceil(double(kernels) * workload.elementwisePasses));
    addForward(kernel.elementwise(forward * passes, launches));
    cost.input += kernel.elementwise(backward * passes, launches);
  }
};

namespace {

int64_t rounded(double value) {
  return std::max<int64_t>(1, std::llround(value));
}

} // namespace

LayerPricer::LayerPricer(const ModelShape &model, const Cluster &cluster,
                         const Workload &workload)
    : model(model), workload(workload),
      kernel(slowestOf(cluster.gpu, cluster.gpus())), collective(cluster),
      sendsBuffers(!cluster.gpu.target.empty()) {}

double LayerPricer::expertSlowdown(const ParallelPlan &plan) const {
  double own = double(model.experts) / double(plan.expert);
  return plan.expert == 1
             ? 1
             : 1 + (workload.imbalance - 1) / 2 / std::sqrt(std::max(1.0, own));
}

double LayerPricer::exchangeSeconds(const ParallelPlan &plan,
                                    double tokens) const {
  const double copies = double(model.expertsPerToken);
  const double row = workload.elementBytes * double(model.hidden);
  // Others number expert ranks next to one another, across context ranks.
  if (!workload.exchangedRows)
    return collective.dispatch(tokens * expertSlowdown(plan), copies, row,
                               {plan.expert, plan.expertTensor});
  const RankGroup group{plan.expert, plan.expertStride()};
  // CPU ranks send the rows that there are.
  const double room =
      *workload.exchangedRows > 0
          ? std::min(*workload.exchangedRows, double(plan.expert))
          : double(plan.expert);
  const double rows = sendsBuffers ? room : expertSlowdown(plan);
  return collective.seconds(Collective::AllToAll, tokens * copies * rows * row,
                            group);
}

void LayerPricer::addLatentProjections(Pass &pass) const {
  int64_t tokens = rounded(pass.tokens), own = rounded(pass.ownTokens());
  int64_t queries = model.queryWidth() / pass.plan.tensor;
  if (model.queryRank > 0) {
    pass.linear(own, model.queryRank, model.hidden);
    pass.linear(tokens, queries, model.queryRank);
  } else {
    pass.linear(tokens, queries, model.hidden);
  }
  pass.linear(own, model.keyValueRank + model.rotaryDim, model.hidden);
  int64_t plain = model.headDim - model.rotaryDim;
  pass.linear(tokens,
              model.heads * (plain + model.valueHeadDim) / pass.plan.tensor,
              model.keyValueRank);
  // Norms of the compressed vectors, and concatenating the parts of heads.
  pass.elementwise(4 * pass.tokens * double(2 * queries),
                   6 * pass.tokens * double(2 * queries), 4);
}

// The matrix of scores in memory: matmuls write and read it, so do softmax and
// dropout. 2 bytes per score each way, a byte for the mask.
void LayerPricer::addUnfusedScores(Pass &pass) const {
  int64_t rows = workload.sequence / pass.plan.context;
  int64_t heads = pass.plan.micro * model.heads / pass.plan.tensor;
  double scores = double(heads) * double(rows) * double(workload.sequence);
  bool outer = pass.repeat;
  pass.repeat = outer || pass.plan.recompute != Recompute::None;
  double softmax = 4 * scores, dropout = workload.dropout ? 5 * scores : 0;
  pass.addForward(
      kernel.gemm(rows, workload.sequence, model.headDim, heads) +
      kernel.gemm(rows, model.valueHeadDim, workload.sequence, heads));
  pass.elementwise(softmax + dropout, 6 * scores + dropout, 2);
  pass.repeat = outer;
  pass.cost.input +=
      kernel.gemm(rows, workload.sequence, model.valueHeadDim, heads) +
      kernel.gemm(workload.sequence, model.valueHeadDim, rows, heads) +
      2 * kernel.gemm(rows, model.headDim, workload.sequence, heads);
}

void LayerPricer::addScores(Pass &pass) const {
  if (!workload.flashAttention)
    return addUnfusedScores(pass);
  double keys = double(workload.sequence) / 2;
  if (model.window > 0 && model.window < workload.sequence) {
    // Of a mean layer: stages differ in other things.
    const double full = double(model.fullLayers) / double(model.layers);
    keys = full * keys + (1 - full) * std::min(keys, double(model.window));
  }
  double rows = pass.tokens * double(model.heads / pass.plan.tensor);
  double forward =
      kernel.attentionForward(rows, keys, model.headDim, model.valueHeadDim,
                              workload.asynchronousAttention);
  double backward =
      kernel.attentionBackward(rows, keys, model.headDim, model.valueHeadDim,
                               workload.asynchronousAttention);
  pass.addForward(forward);
  pass.cost.input += backward;
  if (pass.plan.context == 1)
    return;
  // Keys and values go around the ring; backward again, with their gradients.
  double parts = double(pass.plan.context);
  double bytes = workload.elementBytes * pass.tokens *
                 double(model.kvHeads / pass.plan.tensor) *
                 double(model.headDim + model.valueHeadDim);
  double step = collective.send(bytes, pass.plan.tensor);
  pass.cost.context.forward =
      (parts - 1) * std::max(0.0, step - forward / parts);
  pass.cost.context.backward =
      (parts - 1) * std::max(0.0, 2 * step - backward / parts);
}

void LayerPricer::addNormsAndResiduals(Pass &pass, bool attentionHalf) const {
  // A norm reads and writes a row; backward it reads two, adds to a third. The
  // residual's sum reads two and writes one.
  double row = 2 * pass.ownTokens() * double(model.hidden);
  bool outer = pass.repeat;
  pass.repeat = outer || pass.plan.recompute != Recompute::None;
  pass.elementwise(2 * row, 4 * row);
  pass.repeat = outer || (attentionHalf && pass.repeat &&
                          pass.plan.recompute >= Recompute::Attention);
  double mask = workload.dropout ? row / 2 : 0;
  pass.elementwise(3 * row + mask, workload.dropout ? 2 * row + mask : 0);
  pass.repeat = outer;
}

void LayerPricer::addAttention(Pass &pass) const {
  bool outer = pass.repeat;
  pass.repeat = pass.plan.recompute >= Recompute::Attention;
  addNormsAndResiduals(pass, true);
  int64_t tokens = rounded(pass.tokens);
  int64_t queries = model.queryWidth() / pass.plan.tensor;
  int64_t keys = model.keyValueWidth() / pass.plan.tensor;
  if (model.keyValueRank > 0)
    addLatentProjections(pass);
  else
    pass.linear(tokens, queries + 2 * keys, model.hidden, 1, true,
                Neighbor::Gather);
  if (!model.learnedPositions) {
    bool all = pass.repeat;
    pass.repeat = all || pass.plan.recompute != Recompute::None;
    double bytes = 4 * pass.tokens * double(queries + keys);
    pass.elementwise(bytes, bytes);
    pass.repeat = all;
  }
  addScores(pass);
  pass.linear(tokens, model.hidden,
              model.heads * model.valueHeadDim / pass.plan.tensor, 1, true,
              Neighbor::Scatter);
  pass.repeat = outer;
}

void LayerPricer::addMlp(Pass &pass, int64_t width) const {
  int64_t tokens = rounded(pass.tokens), own = width / pass.plan.tensor;
  bool all = pass.repeat;
  pass.linear(tokens, (model.gated ? 2 : 1) * own, model.hidden, 1, true,
              Neighbor::Gather);
  pass.repeat = all || pass.plan.recompute != Recompute::None;
  double bytes = 2 * pass.tokens * double(own);
  pass.elementwise((model.gated ? 3 : 2) * bytes,
                   (model.gated ? 5 : 3) * bytes);
  pass.repeat = all;
  pass.linear(tokens, model.hidden, own, 1, true, Neighbor::Scatter);
}

void LayerPricer::addExperts(Pass &pass) const {
  const ParallelPlan &plan = pass.plan;
  double own = pass.ownTokens(), hidden = double(model.hidden);
  double routed = own * double(model.expertsPerToken);
  // Router in fp32, top-k, counting sort.
  pass.linear(rounded(own), model.experts, model.hidden, 1, false);
  pass.elementwise(own * double(model.experts) * 24,
                   own * double(model.experts) * 12, 5);
  // Rows are ordered by expert, and weighted and summed on the way back.
  pass.elementwise(2 * (4 * routed * hidden), 2 * (4 * routed * hidden), 2);
  double received = routed * double(plan.expertTensor) * expertSlowdown(plan);
  int64_t experts = model.experts / plan.expert;
  int64_t rows = rounded(received / double(experts));
  int64_t width = model.expertWidth / plan.expertTensor;
  pass.linear(rows, (model.gated ? 2 : 1) * width, model.hidden, experts);
  bool all = pass.repeat;
  pass.repeat = all || plan.recompute != Recompute::None;
  double bytes = 2 * received * double(width);
  pass.elementwise((model.gated ? 3 : 2) * bytes,
                   (model.gated ? 5 : 3) * bytes);
  pass.repeat = all;
  pass.linear(rows, model.hidden, width, experts);
  double exchange = 2 * exchangeSeconds(plan, own);
  double gathered =
      2 * collective.seconds(Collective::AllGather,
                             workload.elementBytes * received * hidden,
                             {plan.expertTensor, 1});
  pass.cost.expert.forward += exchange + gathered;
  pass.cost.expert.backward += exchange + gathered;
}

Transfer LayerCost::exposedTensor() const {
  return {tensor.forward - std::min(overlapped * tensor.forward, forward),
          tensor.backward -
              std::min(overlapped * tensor.backward, input + weight)};
}

LayerCost LayerPricer::layer(const ParallelPlan &plan, bool sparse) const {
  LayerCost whole = priced(plan, sparse, false);
  if (plan.tensor == 1 || !workload.overlap.tensor)
    return whole;
  LayerCost chunked = priced(plan, sparse, true);
  auto seconds = [](const LayerCost &cost) {
    return cost.forward + cost.backward() + cost.exposedTensor().forward +
           cost.exposedTensor().backward;
  };
  return seconds(chunked) <= seconds(whole) ? chunked : whole;
}

LayerCost LayerPricer::priced(const ParallelPlan &plan, bool sparse,
                              bool chunks) const {
  Pass pass{plan, workload, kernel};
  pass.chunks = chunks;
  if (chunks)
    pass.cost.overlapped = double(plan.tensor - 1) / double(plan.tensor);
  pass.tokens =
      double(plan.micro) * double(workload.sequence) / double(plan.context);
  addAttention(pass);
  bool full = plan.recompute == Recompute::Full;
  pass.repeat = full;
  addNormsAndResiduals(pass, false);
  if (sparse)
    addExperts(pass);
  int64_t dense = sparse ? model.sharedWidth : model.intermediate;
  if (dense > 0)
    addMlp(pass, dense);
  // Attention and a dense MLP each have an all-gather before and a
  // reduce-scatter after; backward each does the same, and gathers its input
  // again for the weights' gradients.
  double gather = collective.seconds(Collective::AllGather,
                                     workload.elementBytes * pass.tokens *
                                         double(model.hidden),
                                     {plan.tensor, 1});
  double blocks = dense > 0 ? 2 : 1;
  pass.cost.tensor.forward = 2 * blocks * gather;
  pass.cost.tensor.backward = 3 * blocks * gather;
  if (plan.recompute == Recompute::Attention)
    pass.cost.tensor.backward += 2 * gather;
  if (full) {
    pass.cost.tensor.backward += pass.cost.tensor.forward;
    pass.cost.expert.backward += pass.cost.expert.forward;
    pass.cost.context.backward += pass.cost.context.forward;
  }
  return pass.cost;
}

LayerCost LayerPricer::head(const ParallelPlan &plan) const {
  Pass pass{plan, workload, kernel};
  if (workload.overlap.tensor)
    pass.cost.overlapped = double(plan.tensor - 1) / double(plan.tensor);
  pass.tokens =
      double(plan.micro) * double(workload.sequence) / double(plan.context);
  int64_t words = (model.vocab + plan.tensor - 1) / plan.tensor;
  double row = 2 * pass.ownTokens() * double(model.hidden);
  pass.elementwise(2 * row, 4 * row);
  // Logits stay bf16 outside of layers that fp8 is meant for.
  pass.linear(rounded(pass.tokens), words, model.hidden, 1, false);
  // A chunk's logits are read for the normalizer and replaced by gradients in
  // place; op by op they are upcast to fp32 and read and written several times.
  double logits = pass.tokens * double(words);
  if (workload.chunkedLoss)
    pass.elementwise(4 * logits, 4 * logits, 2);
  else
    pass.elementwise(16 * logits, 10 * logits, 4);
  double gather = collective.seconds(
      Collective::AllGather,
      row * double(plan.tensor) * workload.elementBytes / 2, {plan.tensor, 1});
  pass.cost.tensor = {gather, 2 * gather};
  return pass.cost;
}

LayerCost LayerPricer::embedding(const ParallelPlan &plan) const {
  Pass pass{plan, workload, kernel};
  if (workload.overlap.tensor)
    pass.cost.overlapped = double(plan.tensor - 1) / double(plan.tensor);
  pass.tokens =
      double(plan.micro) * double(workload.sequence) / double(plan.context);
  double row = 2 * pass.tokens * double(model.hidden);
  pass.elementwise(2 * row, 5 * row);
  double scatter =
      collective.seconds(Collective::ReduceScatter,
                         row * workload.elementBytes / 2, {plan.tensor, 1});
  pass.cost.tensor = {scatter, scatter};
  return pass.cost;
}

} // namespace tessera::planner
