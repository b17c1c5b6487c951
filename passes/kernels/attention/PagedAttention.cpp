// Paged attention on a CPU. A block owns a tile of queries that share keys and
// walks over the pages that they see. A page is a tile of keys, copied first:
// memory after a sequence's end is undefined.
#include "passes/kernels/attention/PagedAttention.h"
#include "dialects/graph/GraphQuantOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/attention/AttentionPlan.h"
#include "passes/kernels/attention/RunningSoftmax.h"
#include "passes/kernels/attention/ScoreModifier.h"

using namespace mlir;
using namespace tessera;

namespace {

class PagedEmitter {
public:
  PagedEmitter(AttentionEmitter &e, tile::KernelOp kernel,
               const PagedOperands &operands, const PagedShape &shape,
               RunningSoftmax::Products products)
      : e(e), b(e.b), kernel(kernel), o(operands), shape(shape),
        softmax(e, products) {}

  void emit() {
    locate();
    softmax.start(rowsOf(view(o.query)), queries, sinks());
    softmax.clearStage();
    auto [begin, end] = visibleKeys();
    e.forRange(begin, end, shape.page, [&, end = end](Value keyAt) {
      page(keyAt, e.min(e.index(shape.page), e.sub(end, keyAt)));
    });
    Value output = kernel.getBuffers().back();
    softmax.finish(rowsOf(emitView(b, e.loc, output, o.output())));
  }

private:
  Value view(const AttentionOperand &operand) {
    return emitView(b, e.loc, kernel.getBuffers()[operand.argument],
                    operand.view);
  }
  Value div(Value x, int64_t y) {
    return b.create<arith::DivUIOp>(e.loc, x, e.index(y));
  }
  Value rem(Value x, int64_t y) {
    return b.create<arith::RemUIOp>(e.loc, x, e.index(y));
  }

  Value number(const AttentionOperand &operand, ValueRange at) {
    Value loaded = b.create<memref::LoadOp>(e.loc, view(operand), at);
    return b.create<arith::IndexCastOp>(e.loc, b.getIndexType(), loaded);
  }

  // Blocks are ordered by tiles of queries, the last ones, which see the most
  // keys, first.
  void locate() {
    int64_t tile = e.shape.queryTile, owners = shape.owners();
    Value block = kernel.getBlockNumber();
    Value tiles = e.index(e.shape.queryTiles() - 1);
    Value rest = rem(block, shape.batch * owners);
    batch = div(rest, owners);
    owner = rem(rest, owners);
    first = e.mul(e.sub(tiles, div(block, shape.batch * owners)), tile);
    queries = e.min(e.index(tile), e.sub(e.index(shape.rows()), first));
    kvHead = shape.isDecode() ? owner : div(owner, shape.group());
    position = number(o.starts, batch);
    if (!shape.isDecode())
      position = e.add(position, first);
    length = number(o.lengths, batch);
  }

  // The sinks of the block's rows; null without sinks.
  Value sinks() {
    if (!o.sinks)
      return {};
    int64_t tile = e.shape.queryTile;
    Value all = view(*o.sinks);
    if (shape.isDecode())
      return e.loadVector(all, e.add(e.mul(owner, shape.group()), first), tile,
                          queries);
    return e.spread(b.create<memref::LoadOp>(e.loc, all, owner), {tile});
  }

  // From the first page with a key that a query of the block sees.
  std::pair<Value, Value> visibleKeys() {
    Value begin = e.index(0);
    Value end =
        shape.isDecode() ? e.add(position, 1) : e.add(position, queries);
    if (shape.window > 0) {
      Value key = e.sub(position, e.index(shape.window - 1));
      key = b.create<arith::MaxSIOp>(e.loc, key, begin);
      begin = e.sub(key, rem(key, shape.page));
    }
    return {begin, e.min(end, length)};
  }

  // The block's rows of a [batch, tokens, heads, head_dim] memory.
  Matrix rowsOf(Value memory) {
    Value zero = e.index(0);
    if (!shape.isDecode())
      return {memory, {batch, first, owner, zero}, 1, 3};
    Value head = e.add(e.mul(owner, shape.group()), first);
    return {memory, {batch, zero, head, zero}, 2, 3};
  }

  // `valid` keys of a page, the first of which is the sequence's key `keyAt`.
  void page(Value keyAt, Value valid) {
    Value at = number(o.table, {batch, div(keyAt, shape.page)});
    // As [page, head, token, head_dim]: a head's rows are a matrix.
    auto rowsAt = [&](AttentionOperand operand) -> Matrix {
      std::swap(operand.view.shape[1], operand.view.shape[2]);
      std::swap(operand.view.strides[1], operand.view.strides[2]);
      return {view(operand), {at, kvHead, e.index(0), e.index(0)}, 2, 3};
    };
    std::optional<Matrix> scales[2];
    for (auto [operand, to] : {std::pair(&o.keyScales, &scales[0]),
                               std::pair(&o.valueScales, &scales[1])})
      if (*operand)
        *to = rowsAt(**operand);
    auto [key, value] = softmax.stage(rowsAt(o.keys), rowsAt(o.values), valid,
                                      scales[0] ? &*scales[0] : nullptr,
                                      scales[1] ? &*scales[1] : nullptr);
    softmax.add(key, value, e.index(e.shape.keyTile), 0,
                [&](const Matrix &scores) { mask(scores, keyAt, valid); });
  }

  Value spreadInt(Value x) {
    return e.spread(b.create<arith::IndexCastOp>(e.loc, b.getI32Type(), x),
                    {e.shape.queryTile});
  }

  // Only tiles that end early, or that the diagonal or the window's edge
  // crosses, need a mask.
  void mask(const Matrix &scores, Value keyAt, Value valid) {
    Value keys = e.index(e.shape.keyTile);
    Value last =
        shape.isDecode() ? position : e.add(position, e.shape.queryTile - 1);
    ScoreModifier modifier(e, shape);
    Value endsEarly = e.compare(arith::CmpIPredicate::ne, valid, keys);
    Value keyEnd = e.add(keyAt, keys), firstHidden = e.add(position, 1);
    Value crossed = modifier.either(
        endsEarly, modifier.isCrossed(keyAt, keyEnd, firstHidden, last));
    e.ifTrue(crossed, [&] { maskRows(modifier, scores, keyAt, valid); });
  }

  void maskRows(const ScoreModifier &modifier, const Matrix &scores,
                Value keyAt, Value valid) {
    int64_t tile = e.shape.queryTile;
    Value positions = spreadInt(position);
    if (!shape.isDecode())
      positions = b.create<tile::IotaOp>(
          e.loc, VectorType::get({tile}, b.getI32Type()), position, 0);
    e.forRange(e.index(0), e.index(e.shape.keyTile), 1, [&](Value row) {
      Value here = spreadInt(e.add(keyAt, row));
      Value visible = modifier.isVisible(here, positions, positions);
      visible = modifier.both(visible, e.spread(e.isLess(row, valid), {tile}));
      Value kept = b.create<arith::SelectOp>(
          e.loc, visible, e.loadRow(scores, row, e.index(0), tile),
          e.splat(kMaskedScore, {tile}));
      e.storeRow(kept, scores, row, e.index(0));
    });
  }

  AttentionEmitter &e;
  OpBuilder &b;
  tile::KernelOp kernel;
  const PagedOperands &o;
  const PagedShape &shape;
  RunningSoftmax softmax;
  Value batch, owner, kvHead;
  Value first, queries; ///< rows of the block
  Value position;       ///< of the first row
  Value length;
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
    AttentionEmitter emitter(builder, kernel.getLoc(), target, own);
    PagedEmitter(emitter, kernel, plan->operands, plan->shape,
                 !matrices     ? Products::staged
                 : areIntegers ? Products::scaledMatrices
                               : Products::matrices)
        .emit();
    return llvm::Error::success();
  };
  return context.launch(cluster, spec, cluster.getInputs(),
                        cluster.getResultTypes());
}
