// Paged attention, and its blocks on a CPU whose queries are in lanes.
#include "passes/kernels/attention/PagedAttention.h"
#include "dialects/graph/GraphQuantOps.h"
#include "passes/kernels/attention/AttentionPlan.h"
#include "passes/kernels/attention/PagedBlock.h"
#include "passes/kernels/attention/RunningSoftmax.h"
#include "passes/kernels/attention/ScoreModifier.h"

using namespace mlir;
using namespace tessera;

namespace {

/// Queries in lanes, and pages copied: memory after a sequence's end is
/// undefined.
class QueryLanes : public PagedBlock {
public:
  QueryLanes(AttentionEmitter &e, tile::KernelOp kernel,
             const PagedOperands &operands, const PagedShape &shape,
             RunningSoftmax::Products products)
      : PagedBlock(e, kernel, operands, shape), softmax(e, products) {}

private:
  void start(const Matrix &query, Value sinks) override {
    softmax.start(query, queries, sinks);
    softmax.clearStage();
  }
  void add(const KeyPage &page) override {
    auto scales = [](const std::optional<Matrix> &of) {
      return of ? &*of : nullptr;
    };
    auto [key, value] =
        softmax.stage(page.keys, page.values, page.count,
                      scales(page.keyScales), scales(page.valueScales));
    softmax.add(key, value, e.index(e.shape.keyTile), 0,
                [&](const Matrix &scores) {
                  e.ifTrue(isCrossed(page), [&] { maskRows(scores, page); });
                });
  }
  void finish(const Matrix &result) override { softmax.finish(result); }

  Value spreadInt(Value x) {
    return e.spread(b.create<arith::IndexCastOp>(e.loc, b.getI32Type(), x),
                    {e.shape.queryTile});
  }

  void maskRows(const Matrix &scores, const KeyPage &page) {
    const ScoreModifier modifier(e, shape);
    int64_t tile = e.shape.queryTile;
    Value positions = spreadInt(position);
    if (!shape.isDecode())
      positions = b.create<tile::IotaOp>(
          e.loc, VectorType::get({tile}, b.getI32Type()), position, 0);
    e.forRange(e.index(0), e.index(e.shape.keyTile), 1, [&](Value row) {
      Value here = spreadInt(e.add(page.first, row));
      Value visible = modifier.isVisible(here, positions, positions);
      visible =
          modifier.both(visible, e.spread(e.isLess(row, page.count), {tile}));
      Value kept = b.create<arith::SelectOp>(
          e.loc, visible, e.loadRow(scores, row, e.index(0), tile),
          e.splat(kMaskedScore, {tile}));
      e.storeRow(kept, scores, row, e.index(0));
    });
  }

  RunningSoftmax softmax;
};

} // namespace

View PagedOperands::output() const {
  ArrayRef<int64_t> sizes = query.view.shape;
  View dense{{}, 0, SmallVector<int64_t>(sizes), {}};
  dense.strides = {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3],
                   sizes[3], 1};
  return dense;
}

int64_t PagedOperands::cacheBytes(graph::ClusterOp cluster,
                                  const PagedShape &shape) const {
  int64_t context = shape.context();
  if (shape.window > 0)
    context = std::min(context, shape.window + shape.tokens);
  auto bitsOf = [&](const AttentionOperand &operand) -> int64_t {
    return graph::tensorType(cluster.getInputs()[operand.argument])
        .getElementTypeBitWidth();
  };
  int64_t bits = bitsOf(keys) * shape.headDim;
  if (keyScales)
    bits += bitsOf(*keyScales);
  return 2 * shape.batch * context * shape.kvHeads * bits / 8;
}

AttentionShape PagedShape::rowsOfBlocks() const {
  AttentionShape shape{batch,
                       rows(),
                       owners(),
                       kvHeads,
                       headDim,
                       context(),
                       scale,
                       /*causal=*/true,
                       window,
                       /*hasStart=*/true,
                       /*hasFirst=*/false};
  shape.cap = cap;
  return shape;
}

static PagedShape shapeOf(graph::PagedAttentionOp op) {
  ArrayRef<int64_t> q = graph::tensorType(op.getQuery()).getShape(),
                    keys = graph::tensorType(op.getKeys()).getShape(),
                    table = graph::tensorType(op.getTable()).getShape();
  return {q[0],
          q[1],
          q[2],
          keys[2],
          q[3],
          keys[1],
          table[1],
          op.getScale().convertToDouble(),
          static_cast<int64_t>(op.getWindow().value_or(0)),
          scoreCapOf(op),
          op.getKeepF32()};
}

static llvm::Expected<PagedOperands> operandsOf(graph::PagedAttentionOp op) {
  PagedOperands result;
  AttentionOperand *fields[] = {&result.query, &result.keys,   &result.values,
                                &result.table, &result.starts, &result.lengths};
  auto sinks = optionalOperand(op, op.getSinks());
  if (!sinks)
    return sinks.takeError();
  result.sinks = *sinks;
  for (auto [value, place] : llvm::zip(op->getOperands(), fields)) {
    auto rows = value.getDefiningOp<graph::DequantizeRowsOp>();
    llvm::Expected<AttentionOperand> found =
        attentionOperand(op, rows ? Value(rows.getValues()) : value);
    if (!found)
      return found.takeError();
    *place = *found;
    if (!rows)
      continue;
    found = attentionOperand(op, rows.getScales());
    if (!found)
      return found.takeError();
    (place == &result.keys ? result.keyScales : result.valueScales) = *found;
  }
  return result;
}

llvm::Expected<PagedPlan>
tessera::planPagedAttention(graph::ClusterOp cluster,
                            const TilingContext &context) {
  auto ops = cluster.getBody().getOps<graph::PagedAttentionOp>();
  if (ops.empty() || cluster.getNumResults() != 1)
    return llvm::createStringError(
        "a paged_attention cluster holds one paged attention and yields its "
        "result");
  graph::PagedAttentionOp op = *ops.begin();
  llvm::Expected<PagedOperands> operands = operandsOf(op);
  if (!operands)
    return operands.takeError();
  PagedPlan plan{*operands, shapeOf(op), {}};
  auto kernel =
      context.isGpu()
          ? chooseGpuPaged(cluster, plan.operands, plan.shape, context.target())
          : chooseCpuPaged(cluster, plan.operands, plan.shape, context);
  if (!kernel)
    return kernel.takeError();
  plan.kernel = *kernel;
  return plan;
}

llvm::Expected<SmallVector<Value>>
tessera::tilePagedAttention(graph::ClusterOp cluster, TilingContext &context) {
  llvm::Expected<PagedPlan> plan = planPagedAttention(cluster, context);
  if (!plan)
    return plan.takeError();
  if (context.isGpu())
    return tileGpuPagedAttention(cluster, *plan, context);
  LaunchSpec spec =
      attentionLaunch(cluster, tile::Skeleton::paged_attention, plan->blocks());
  spec.gatheredBytes = plan->operands.cacheBytes(cluster, plan->shape);
  spec.key += planKey(plan->kernel);
  bool areIntegers = elementOf(cluster, plan->operands.keys).isInteger(8);
  spec.build = [&, areIntegers](tile::KernelOp kernel, const TileTarget &target,
                                OpBuilder &builder) -> llvm::Error {
    using Products = RunningSoftmax::Products;
    AttentionShape own = plan->shape.rowsOfBlocks();
    own.take(plan->kernel);
    bool matrices =
        plan->kernel.getEngine() == tile::Engine::matrix && target.matrixTiles;
    if (matrices)
      own.queryTile =
          llvm::alignTo(own.queryTile, AttentionMatrices::kLeastQueries);
    // Without matrix registers the kernel is the vector engine's first.
    const bool isFirst = plan->kernel.getEngine() == tile::Engine::matrix;
    if (!matrices && isFirst && canPutKeysInLanes(plan->shape))
      own.queryTile = plan->shape.rows();
    AttentionEmitter emitter(builder, kernel.getLoc(), target, own);
    if (own.queryTile < kQueriesInLanes) {
      pagedKeyLanes(emitter, kernel, plan->operands, plan->shape)->emit();
      return llvm::Error::success();
    }
    QueryLanes(emitter, kernel, plan->operands, plan->shape,
               !matrices     ? Products::staged
               : areIntegers ? Products::scaledMatrices
                             : Products::matrices)
        .emit();
    return llvm::Error::success();
  };
  return context.launch(cluster, spec, cluster.getInputs(),
                        cluster.getResultTypes());
}
