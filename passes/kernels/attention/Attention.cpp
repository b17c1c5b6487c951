// Attention forward (Dao et al. 2022, FlashAttention; online softmax, Milakov &
// Gimelshein 2018). A block owns a tile of queries of one head and walks over
// the tiles of keys that it sees.
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/attention/AttentionMask.h"
#include "passes/kernels/attention/AttentionPlan.h"
#include "passes/kernels/attention/RunningSoftmax.h"

using namespace mlir;
using namespace tessera;

namespace {

/// The state of one block of the forward kernel.
class ForwardEmitter {
public:
  ForwardEmitter(AttentionEmitter &e, tile::KernelOp kernel,
                 const ForwardOperands &operands, unsigned inputs)
      : e(e), kernel(kernel), operands(operands), inputs(inputs),
        softmax(e, readsInPlace() ? RunningSoftmax::Products::direct
                                  : RunningSoftmax::Products::staged),
        mask(e) {}

  void emit() {
    if (operands.start.isThere)
      mask.startAt(
          loadStart(e.b, e.loc, kernel.getBuffers()[operands.start.argument]));
    locate();
    if (!operands.first)
      return queryTile({});
    mask.locateFirst(kernel.getBuffers()[operands.first->argument],
                     operands.first->view, batch);
    if (operands.last)
      mask.locateLast(kernel.getBuffers()[operands.last->argument],
                      operands.last->view, batch);
    softmax.clearStage();
    mask.forEachRun(firstQuery, queries,
                    [&](Value run, Value size, Value origin) {
                      firstQuery = run, queries = size;
                      queryTile(origin);
                    });
  }

private:
  Type elementType(const AttentionOperand &operand) {
    return cast<MemRefType>(kernel.getBuffers()[operand.argument].getType())
        .getElementType();
  }

  // Keys of any number are read by whole register tiles of them.
  bool readsInPlace() {
    return elementType(operands.key).isF32() &&
           (!operands.first || e.shape.keys >= e.microRows());
  }

  // Blocks are ordered by query tile, the last ones first: those see the most
  // keys, and a long block at the end would leave the other threads idle.
  void locate() {
    OpBuilder &b = e.b;
    Value perTile = e.index(e.shape.batch * e.shape.heads);
    Value block = kernel.getBlockNumber();
    Value tileNumber = e.sub(e.index(e.shape.queryTiles() - 1),
                             b.create<arith::DivUIOp>(e.loc, block, perTile));
    Value rest = b.create<arith::RemUIOp>(e.loc, block, perTile);
    Value heads = e.index(e.shape.heads);
    batch = b.create<arith::DivUIOp>(e.loc, rest, heads);
    head = b.create<arith::RemUIOp>(e.loc, rest, heads);
    kvHead = b.create<arith::DivUIOp>(e.loc, head,
                                      e.index(e.shape.heads / e.shape.kvHeads));
    firstQuery = e.mul(tileNumber, e.shape.queryTile);
    queries = e.min(e.index(e.shape.queryTile),
                    e.sub(e.index(e.shape.tokens), firstQuery));
  }

  Matrix keysOf(const AttentionOperand &operand, Value keyAt) {
    return headMatrix(e, kernel.getBuffers()[operand.argument], operand.view,
                      batch, keyAt, kvHead);
  }

  /// The head's sink for every query; null without sinks.
  Value sinks() {
    if (!operands.sinks)
      return {};
    Value all =
        emitView(e.b, e.loc, kernel.getBuffers()[operands.sinks->argument],
                 operands.sinks->view);
    Value own = e.b.create<memref::LoadOp>(e.loc, all, head);
    return e.spread(own, {e.shape.queryTile});
  }

  void queryTile(Value origin) {
    softmax.start(headMatrix(e, kernel.getBuffers()[operands.query.argument],
                             operands.query.view, batch, firstQuery, head),
                  queries, sinks());
    auto [begin, end] = mask.visibleKeys(firstQuery, queries, origin);
    e.forRange(begin, end, e.shape.keyTile, [&, end = end](Value keyAt) {
      Value keys = e.min(e.index(e.shape.keyTile), e.sub(end, keyAt));
      keyTile(keyAt, keys);
    });
    finish();
  }

  void keyTile(Value keyAt, Value keys) {
    auto [key, value] = softmax.stage(keysOf(operands.key, keyAt),
                                      keysOf(operands.value, keyAt), keys);
    int64_t total = operands.first ? 0 : e.shape.keys;
    Value lastRow;
    if (operands.first && readsInPlace())
      lastRow = e.sub(e.index(e.shape.keys - e.microRows()), keyAt);
    auto hide = [&](const Matrix &scores) {
      mask.hide(scores, keyAt, keys, firstQuery, queries, kMaskedScore);
    };
    softmax.add(key, value, keys, total, hide, lastRow);
  }

  // Stores output and log-sum-exp, the latter at [b, h, t].
  void finish() {
    softmax.finish(
        headMatrix(e, kernel.getBuffers()[inputs + operands.outputIndex],
                   operands.output, batch, firstQuery, head));
    if (operands.lseIndex < 0)
      return;
    Value row = e.add(e.mul(batch, e.shape.heads), head);
    Value at = e.add(e.mul(row, e.shape.tokens), firstQuery);
    softmax.storeLogSumExp(kernel.getBuffers()[inputs + operands.lseIndex], at);
  }

  AttentionEmitter &e;
  tile::KernelOp kernel;
  const ForwardOperands &operands;
  unsigned inputs;
  RunningSoftmax softmax;
  AttentionMask mask;
  Value batch, head, kvHead, firstQuery, queries;
};

} // namespace

// Finds which results of the cluster are the output (possibly reshaped) and the
// lse.
static llvm::Error findResults(graph::ClusterOp cluster, graph::AttentionOp op,
                               ForwardOperands &operands) {
  int output = -1, lse = -1;
  for (auto [i, value] : llvm::enumerate(cluster.getYield().getValues())) {
    Value source = value;
    while (auto reshape = source.getDefiningOp<graph::ReshapeOp>())
      source = reshape.getInput();
    if (source == op.getResult())
      output = i;
    else if (source == op.getLse())
      lse = i;
  }
  if (output < 0 || cluster.getNumResults() != (lse < 0 ? 1 : 2))
    return llvm::createStringError(
        "cluster '" + cluster.getName() +
        "' must yield the output of its attention and may yield the lse");
  operands.outputIndex = output;
  operands.lseIndex = lse;
  ArrayRef<int64_t> shape = graph::tensorType(op.getResult()).getShape();
  operands.output = {
      {},
      0,
      SmallVector<int64_t>(shape),
      {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1}};
  return llvm::Error::success();
}

llvm::Expected<ForwardPlan>
tessera::planAttention(graph::ClusterOp cluster, const TilingContext &context) {
  auto ops = cluster.getBody().getOps<graph::AttentionOp>();
  if (ops.empty())
    return llvm::createStringError("an attention cluster holds no attention");
  graph::AttentionOp op = *ops.begin();
  ForwardPlan plan;
  ForwardOperands &operands = plan.operands;
  for (auto [value, operand] :
       {std::pair<Value, AttentionOperand *>{op.getQuery(), &operands.query},
        std::pair<Value, AttentionOperand *>{op.getKey(), &operands.key},
        std::pair<Value, AttentionOperand *>{op.getValue(), &operands.value}}) {
    llvm::Expected<AttentionOperand> found = attentionOperand(op, value);
    if (!found)
      return found.takeError();
    *operand = *found;
  }
  if (llvm::Error error = findResults(cluster, op, operands))
    return std::move(error);
  operands.start = attentionStart(op.getStart());
  for (auto [value, operand] : {std::pair(op.getFirst(), &operands.first),
                                std::pair(op.getLast(), &operands.last),
                                std::pair(op.getSinks(), &operands.sinks)}) {
    auto found = optionalOperand(op, value);
    if (!found)
      return found.takeError();
    *operand = *found;
  }
  plan.shape = attentionShapeOf(op);
  auto choice =
      context.isGpu()
          ? chooseGpuAttention(cluster, operands, plan.shape, context)
          : takeAttention(
                cluster, cpuAttentionKernels(plan.shape, cluster.getContext()));
  if (!choice)
    return choice.takeError();
  plan.choice = *choice;
  plan.shape.take(plan.choice.kernel);
  return plan;
}

llvm::Expected<SmallVector<Value>>
tessera::tileAttention(graph::ClusterOp cluster, TilingContext &context) {
  llvm::Expected<ForwardPlan> plan = planAttention(cluster, context);
  if (!plan)
    return plan.takeError();
  if (context.isGpu())
    return tileGpuAttention(cluster, *plan, context);
  tile::AttentionPlanAttr kernelPlan = plan->choice.kernel;
  LaunchSpec spec = attentionLaunch(cluster, tile::Skeleton::attention,
                                    plan->blocksOf(kernelPlan));
  spec.key += planKey(kernelPlan);
  unsigned inputs = cluster.getInputs().size();
  spec.build = [&](tile::KernelOp kernel, const TileTarget &target,
                   OpBuilder &builder) -> llvm::Error {
    AttentionEmitter emitter(builder, kernel.getLoc(), target, plan->shape);
    ForwardEmitter(emitter, kernel, plan->operands, inputs).emit();
    return llvm::Error::success();
  };
  return context.launch(cluster, spec, cluster.getInputs(),
                        cluster.getResultTypes());
}
