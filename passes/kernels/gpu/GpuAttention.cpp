#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/kernels/attention/ScoreModifier.h"
#include "passes/kernels/gpu/GpuAttentionForward.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::gpu;

//===--- what both kernels do ---------------------------------------------===//

void GpuForward::locate() {
  if (o.start.isThere)
    g.start = loadStart(e.b, e.loc, kernel.getBuffers()[o.start.argument]);
  std::tie(head, firstQuery) = g.locate(kernel.getBlockNumber(), g.queries(),
                                        g.keys(), g.sizes.queries, true);
  if (o.first) {
    g.first = kernel.getBuffers()[o.first->argument];
    g.firstView = o.first->view;
  }
  if (o.last) {
    g.last = kernel.getBuffers()[o.last->argument];
    g.lastView = o.last->view;
  }
  kvHead = g.kvHeadOf(head);
}

Softmax GpuForward::beforeKeys() {
  if (!o.sinks)
    return {};
  Value all = emitView(e.b, e.loc, kernel.getBuffers()[o.sinks->argument],
                       o.sinks->view);
  Value own = e.b.create<memref::LoadOp>(e.loc, all, head);
  return softmaxOfSinks(e, e.spreadNumber(own, {g.sizes.queries}),
                        g.shape.scale);
}

Softmax GpuForward::softmax(Value scores, Value key, Value maximum, Value sum) {
  scores = ScoreModifier(e, g.shape).bound(scores);
  scores = g.mask(scores, firstQuery, key, /*keysInRows=*/false, kMaskedScore);
  return softmaxOf(e, scores, g.shape.scale, maximum, sum);
}

void GpuForward::finish(Value maximum, Value sum, Value output) {
  OpBuilder &b = e.b;
  int64_t queries = g.sizes.queries;
  Value inverse = b.create<arith::DivFOp>(e.loc, e.splat(1, {queries}), sum);
  if (g.start) { // a query that has seen only masked scores
    Value hasSeen =
        b.create<arith::CmpFOp>(e.loc, arith::CmpFPredicate::OGT, maximum,
                                e.splat(kLeastMaximum, {queries}));
    inverse = b.create<arith::SelectOp>(e.loc, hasSeen, inverse,
                                        e.splat(0, {queries}));
  }
  g.store(scaleRows(e, output, inverse),
          g.head(kernel.getBuffers()[inputs + o.outputIndex], o.output,
                 firstQuery, head, queries));
  if (o.lseIndex < 0)
    return;
  // lse = scale · max + ln(sum), at [b, h, t].
  Value top = b.create<arith::MulFOp>(e.loc, maximum,
                                      e.splat(g.shape.scale, {queries}));
  Value lse =
      b.create<arith::AddFOp>(e.loc, top, b.create<math::LogOp>(e.loc, sum));
  Value row = e.add(e.mul(g.batch, g.shape.heads), head);
  g.storeVector(lse, kernel.getBuffers()[inputs + o.lseIndex],
                e.mul(row, g.shape.tokens), firstQuery);
}

//===--- without warp specialization --------------------------------------===//

namespace {

/// The next tile of keys is copied while this one is multiplied.
class StagedForward : GpuForward {
public:
  using GpuForward::GpuForward;

  void emit() {
    kernel.setWarps(ArrayRef<int64_t>{g.sizes.queries / 16, 1});
    locate();
    query = g.stageTiles(1, g.sizes.queries);
    keys = g.stageTiles(2, g.sizes.keys);
    values = g.stageTiles(2, g.sizes.keys);
    query.copy(e, e.index(0), of(o.query, firstQuery, head, g.sizes.queries));
    auto [begin, end] = g.visibleKeys(firstQuery);
    stage(begin);
    g.commit();
    Softmax before = beforeKeys();
    if (!before.maximum) {
      before.maximum = e.splat(kMaskedScore, {g.sizes.queries});
      before.sum = e.splat(0, {g.sizes.queries});
    }
    auto sums = e.forRange(
        begin, end, g.sizes.keys,
        {before.maximum, before.sum, g.zeros(g.sizes.queries, g.sizes.dim)},
        [&, end = end](Value key, ValueRange state) {
          return keyTile(key, end, state);
        });
    finish(sums[0], sums[1], sums[2]);
  }

private:
  Staged query, keys, values;

  Value stageOf(Value key) { return e.rem(e.div(key, g.sizes.keys), 2); }

  void stage(Value key) {
    Value place = stageOf(key);
    keys.copy(e, place, of(o.key, key, kvHead, g.sizes.keys));
    values.copy(e, place, of(o.value, key, kvHead, g.sizes.keys));
  }

  // state: maximum and sum of each query so far, and the output times the sum.
  SmallVector<Value> keyTile(Value key, Value end, ValueRange state) {
    g.wait();
    Value next = e.add(key, g.sizes.keys);
    e.ifTrue(e.compare(arith::CmpIPredicate::slt, next, end),
             [&] { stage(next); });
    g.commit();
    Value place = stageOf(key);
    Value scores =
        g.multiply(query.load(e, e.index(0)), keys.loadTransposed(e, place),
                   g.zeros(g.sizes.queries, g.sizes.keys));
    Softmax now = softmax(scores, key, state[0], state[1]);
    Value output =
        g.multiply(e.toElement(now.weights, g.element), values.load(e, place),
                   scaleRows(e, state[2], now.rescale));
    return {now.maximum, now.sum, output};
  }
};

} // namespace

//===--- choices ----------------------------------------------------------===//

static bool isWorthVariants(const AttentionShape &shape) {
  return shape.batch * shape.heads * shape.headDim * shape.tokens *
             shape.keys >=
         kLeastProducts;
}

static Type elementOfProducts(graph::ClusterOp cluster,
                              const ForwardOperands &o) {
  return operandType(
      elementOf(cluster, o.query),
      operandType(elementOf(cluster, o.key), elementOf(cluster, o.value)));
}

llvm::Expected<AttentionChoice> tessera::chooseGpuAttention(
    graph::ClusterOp cluster, const ForwardOperands &operands,
    const AttentionShape &shape, const TilingContext &context) {
  Type element = elementOfProducts(cluster, operands);
  const TileTarget &target = context.target();
  SmallVector<tile::AttentionPlanAttr> kernels =
      pipelinedAttentionKernels(shape, operands, element, target);
  size_t pipelined = kernels.size();
  // Keys of a tile: scores occupy registers, too, in addition to the output.
  int64_t most = element.isBF16() ? (shape.headDim <= 128 ? 64 : 32)
                                  : (shape.headDim < 128 ? 32 : 16);
  for (const AttentionSizes &sizes :
       attentionSizes(shape, element, 1, most, /*keysStationary=*/false,
                      target.sharedBytes))
    kernels.push_back(tile::AttentionPlanAttr::get(
        cluster.getContext(), engineOfStaged(sizes.queries, element, target),
        sizes.queries, sizes.keys, /*split=*/0, /*ping_pong=*/false));
  if (kernels.empty())
    return attentionTooLarge(shape);
  llvm::Expected<AttentionChoice> choice = takeAttention(cluster, kernels);
  if (choice && !choice->byHand && pipelined > 1 &&
      (context.emitsAllVariants() || isWorthVariants(shape)))
    choice->variants.assign(kernels.begin() + 1, kernels.begin() + pipelined);
  return choice;
}

//===--- the launch -------------------------------------------------------===//

// "_128x176", "_128x128_free": rows, keys and order of a kernel; "free" is
// without ping-pong.
static std::string suffixOf(tile::AttentionPlanAttr kernel) {
  return "_" + tileText(kernel.getQueries(), kernel.getKeys()) +
         (kernel.getPingPong() ? "" : "_free");
}

llvm::Expected<SmallVector<Value>>
tessera::tileGpuAttention(graph::ClusterOp cluster, const ForwardPlan &plan,
                          TilingContext &context) {
  Type element = elementOfProducts(cluster, plan.operands);
  unsigned inputs = cluster.getInputs().size();
  auto buildOf = [&](tile::AttentionPlanAttr which) -> BuildKernel {
    return [&, which](tile::KernelOp kernel, const TileTarget &,
                      OpBuilder &builder) -> llvm::Error {
      AttentionSizes sizes{which.getQueries(), which.getKeys(),
                           paddedColumns(plan.shape.headDim)};
      GpuAttention common(builder, kernel.getLoc(), plan.shape, sizes, element);
      if (which.getEngine() == tile::Engine::warp_specialized)
        emitPipelinedAttention(common, kernel, plan.operands, inputs,
                               which.getPingPong());
      else
        StagedForward(common, kernel, plan.operands, inputs).emit();
      return llvm::Error::success();
    };
  };
  tile::AttentionPlanAttr first = plan.choice.kernel;
  LaunchSpec spec =
      attentionLaunch(cluster, tile::Skeleton::attention, plan.blocksOf(first));
  spec.key += planKey(first, plan.choice.byHand);
  spec.build = buildOf(first);
  spec.terms = plan.shape.keys;
  for (tile::AttentionPlanAttr other : plan.choice.variants)
    spec.variants.push_back(
        {suffixOf(other), plan.blocksOf(other), buildOf(other)});
  return context.launch(cluster, spec, cluster.getInputs(),
                        cluster.getResultTypes());
}
