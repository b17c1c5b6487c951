#include "mlir/Dialect/Math/IR/Math.h"
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
  kvHead = g.kvHeadOf(head);
}

Softmax GpuForward::softmax(Value scores, Value key, Value maximum, Value sum) {
  scores = capScores(e, scores, g.shape.scale, g.shape.cap);
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
    Value none = e.splat(kMaskedScore, {g.sizes.queries}),
          zero = e.splat(0, {g.sizes.queries});
    auto sums = e.forRange(begin, end, g.sizes.keys,
                           {none, zero, g.zeros(g.sizes.queries, g.sizes.dim)},
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

//===--- the launch -------------------------------------------------------===//

static bool isWorthVariants(const AttentionShape &shape) {
  return shape.batch * shape.heads * shape.headDim * shape.tokens *
             shape.keys >=
         kLeastProducts;
}

// "_128x176", "_128x128_free": rows, keys and order of a kernel; "free" is
// without ping-pong.
static std::string suffixOf(const PipelinedAttention &kernel) {
  return "_" + std::to_string(kernel.sizes.queries) + "x" +
         std::to_string(kernel.sizes.keys) + (kernel.pingPong ? "" : "_free");
}

namespace {

/// Makes the launch of one cluster.
class ForwardLaunch {
public:
  ForwardLaunch(graph::ClusterOp cluster, const ForwardOperands &operands,
                const AttentionShape &shape, Type element)
      : operands(operands), shape(shape), element(element),
        inputs(cluster.getInputs().size()),
        spec(attentionLaunch(cluster, tile::Skeleton::attention, 0)) {}

  void take(ArrayRef<PipelinedAttention> kernels, bool withVariants) {
    spec.blocks = blocksOf(kernels.front().sizes);
    spec.build = build(kernels.front());
    spec.terms = shape.keys;
    if (withVariants)
      for (const PipelinedAttention &kernel : kernels.drop_front())
        spec.variants.push_back(
            {suffixOf(kernel), blocksOf(kernel.sizes), build(kernel)});
  }
  void take(const AttentionSizes &sizes) {
    spec.blocks = blocksOf(sizes);
    spec.build = [this, sizes](tile::KernelOp kernel, const TileTarget &,
                               OpBuilder &builder) -> llvm::Error {
      GpuAttention common(builder, kernel.getLoc(), shape, sizes, element);
      StagedForward(common, kernel, operands, inputs).emit();
      return llvm::Error::success();
    };
  }

private:
  int64_t blocksOf(const AttentionSizes &sizes) const {
    return shape.batch * shape.heads *
           llvm::divideCeil(shape.tokens, sizes.queries);
  }
  BuildKernel build(const PipelinedAttention &which) const {
    return [this, which](tile::KernelOp kernel, const TileTarget &,
                         OpBuilder &builder) -> llvm::Error {
      GpuAttention common(builder, kernel.getLoc(), shape, which.sizes,
                          element);
      emitPipelinedAttention(common, kernel, operands, inputs, which.pingPong);
      return llvm::Error::success();
    };
  }

  const ForwardOperands &operands;
  const AttentionShape &shape;
  Type element;
  unsigned inputs;

public:
  LaunchSpec spec;
};

} // namespace

llvm::Expected<SmallVector<Value>>
tessera::tileGpuAttention(graph::ClusterOp cluster,
                          const ForwardOperands &operands,
                          const AttentionShape &shape, TilingContext &context) {
  auto elementOf = [&](const AttentionOperand &operand) {
    return graph::tensorType(cluster.getInputs()[operand.argument])
        .getElementType();
  };
  Type element = operandType(
      elementOf(operands.query),
      operandType(elementOf(operands.key), elementOf(operands.value)));
  const TileTarget &target = context.target();
  ForwardLaunch launch(cluster, operands, shape, element);
  SmallVector<PipelinedAttention> kernels =
      choosePipelinedAttention(shape, operands, element, target);
  if (!kernels.empty()) {
    launch.take(kernels, context.wantsAllVariants() || isWorthVariants(shape));
  } else {
    // Keys of a tile: scores occupy registers, too, in addition to the output.
    int64_t most = element.isBF16() ? (shape.headDim <= 128 ? 64 : 32)
                                    : (shape.headDim < 128 ? 32 : 16);
    std::optional<AttentionSizes> sizes = chooseAttentionSizes(
        shape, element, 1, most, /*keysStationary=*/false, target.sharedBytes);
    if (!sizes)
      return attentionTooLarge(shape);
    launch.take(*sizes);
  }
  return context.launch(cluster, launch.spec, cluster.getInputs(),
                        cluster.getResultTypes());
}
