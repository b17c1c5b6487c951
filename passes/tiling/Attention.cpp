// Attention forward (Dao et al. 2022, FlashAttention; online softmax, Milakov &
// Gimelshein 2018). A block owns a tile of queries of one head and walks over
// the tiles of keys that it sees.
//
// Scores are kept transposed, [key × query]: the softmax over keys then runs
// down columns, without a single horizontal reduction, and neither K nor V has
// to be packed: K gives scalars, V and Qᵀ give vectors. Only Qᵀ is made, once a
// block.
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/tiling/AttentionTiles.h"
#include <cmath>

using namespace mlir;
using namespace tessera;

// A score that no softmax notices. A power of two, so that scaling it is exact:
// where a query sees no key of a tile, the fused c × score − c × maximum is
// then 0 and not the rounding of numbers of this size, whose exp2 may be
// infinite.
static constexpr double kMasked = -0x1p100;

namespace {

/// Everything that one block of the forward kernel needs, in one place.
class ForwardEmitter {
public:
  ForwardEmitter(AttentionEmitter &e, tile::KernelOp kernel,
                 const ForwardOperands &operands, unsigned inputs)
      : e(e), kernel(kernel), operands(operands), inputs(inputs) {}

  void emit() {
    allocate();
    locate();
    Value zero = e.index(0);
    int64_t tile = e.shape.queryTile();
    // Columns past the last query compute on zeros and are never stored.
    if (e.shape.tokens % tile)
      e.fillZero(queryT, e.index(e.shape.headDim), tile);
    e.copyTransposed(query, queryT, queries, e.shape.tokens % e.target.lanes,
                     e.shape.headDim);
    e.storeVector(e.splat(kMasked, {tile}), maximum, zero);
    e.storeVector(e.splat(0.0, {tile}), sum, zero);
    e.fillZero(output, e.index(tile), e.shape.headDim);
    auto [begin, end] = e.visibleKeys(firstQuery, queries);
    e.forRange(begin, end, e.shape.keyTile(), [&, end = end](Value keyAt) {
      Value keys = e.min(e.index(e.shape.keyTile()), e.sub(end, keyAt));
      keyTile(keyAt, keys);
    });
    finish();
  }

private:
  void allocate() {
    int64_t tile = e.shape.queryTile(), dim = e.shape.headDim;
    queryT = e.matrix(e.alloc({dim, tile}));
    scores = e.matrix(e.alloc({e.shape.keyTile(), tile}));
    output = e.matrix(e.alloc({tile, dim}));
    maximum = e.alloc({tile});
    sum = e.alloc({tile});
    rescale = e.alloc({tile});
    if (!elementType(operands.key).isF32()) {
      keyStage = e.matrix(e.alloc({e.shape.keyTile(), dim}));
      valueStage = e.matrix(e.alloc({e.shape.keyTile(), dim}));
    }
  }

  Type elementType(const AttentionOperand &operand) {
    return cast<MemRefType>(kernel.getBuffers()[operand.argument].getType())
        .getElementType();
  }

  // Blocks are ordered by query tile, the last ones first: those see the most
  // keys, and a long block at the end would keep one thread waiting.
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
    firstQuery = e.mul(tileNumber, e.shape.queryTile());
    queries = e.min(e.index(e.shape.queryTile()),
                    e.sub(e.index(e.shape.tokens), firstQuery));
    query = headMatrix(e, kernel.getBuffers()[operands.query.argument],
                       operands.query.view, batch, firstQuery, head);
  }

  Matrix keysOf(const AttentionOperand &operand, Value keyAt) {
    return headMatrix(e, kernel.getBuffers()[operand.argument], operand.view,
                      batch, keyAt, kvHead);
  }

  void keyTile(Value keyAt, Value keys) {
    Matrix key = keysOf(operands.key, keyAt);
    Matrix value = keysOf(operands.value, keyAt);
    if (keyStage.memory) {
      e.copyRows(key, keyStage, keys, e.shape.headDim);
      e.copyRows(value, valueStage, keys, e.shape.headDim);
      key = keyStage;
      value = valueStage;
    }
    e.multiply(key, queryT, scores, keys, e.shape.tokens % e.microRows(),
               e.shape.queryTile(), e.index(e.shape.headDim), false);
    e.maskScores(scores, keyAt, keys, firstQuery, kMasked);
    softmax(keys);
    rescaleOutput();
    e.multiply(scores.transposed(), value, output, e.index(e.shape.queryTile()),
               0, e.shape.headDim, keys, true);
  }

  // scores ← exp2(c (scores − max)) with c = scale · log2 e; max, sum updated.
  void softmax(Value keys) {
    OpBuilder &b = e.b;
    int64_t tile = e.shape.queryTile();
    Value zero = e.index(0), one = e.index(1);
    Value before = e.loadVector(maximum, zero, tile);
    auto maxima = b.create<scf::ForOp>(
        e.loc, zero, keys, one, before,
        [&](OpBuilder &, Location, Value row, ValueRange carried) {
          OpBuilder::InsertionGuard guard(b);
          b.setInsertionPointToEnd(row.getParentBlock());
          Value score = e.loadRow(scores, row, 0, tile);
          Value larger = b.create<arith::MaximumFOp>(e.loc, carried[0], score);
          b.create<scf::YieldOp>(e.loc, larger);
        });
    Value after = maxima.getResult(0);
    Value factor = e.splat(e.shape.scale * M_LOG2E, {tile});
    Value shift = b.create<arith::MulFOp>(e.loc, after, factor);
    Value drop = b.create<arith::SubFOp>(
        e.loc, b.create<arith::MulFOp>(e.loc, before, factor), shift);
    Value alpha = b.create<math::Exp2Op>(e.loc, drop);
    Value scaled =
        b.create<arith::MulFOp>(e.loc, e.loadVector(sum, zero, tile), alpha);
    Value negative = b.create<arith::NegFOp>(e.loc, shift);
    auto sums = b.create<scf::ForOp>(
        e.loc, zero, keys, one, scaled,
        [&](OpBuilder &, Location, Value row, ValueRange carried) {
          OpBuilder::InsertionGuard guard(b);
          b.setInsertionPointToEnd(row.getParentBlock());
          Value score = e.loadRow(scores, row, 0, tile);
          Value power = b.create<math::FmaOp>(e.loc, score, factor, negative);
          Value weight = b.create<math::Exp2Op>(e.loc, power);
          e.storeRow(weight, scores, row, 0);
          Value total = b.create<arith::AddFOp>(e.loc, carried[0], weight);
          b.create<scf::YieldOp>(e.loc, total);
        });
    e.storeVector(after, maximum, zero);
    e.storeVector(sums.getResult(0), sum, zero);
    e.storeVector(alpha, rescale, zero);
  }

  // Each row of the output times a scalar of `factors`.
  void rescaleOutput() {
    e.forRange(e.index(0), e.index(e.shape.queryTile()), 1, [&](Value row) {
      Value alpha = e.b.create<memref::LoadOp>(e.loc, rescale, row);
      e.forColumns(
          e.shape.headDim, 4 * e.target.lanes, [&](int64_t col, int64_t width) {
            Value run = e.loadRow(output, row, col, width);
            Value scaled =
                e.b.create<arith::MulFOp>(e.loc, run, e.spread(alpha, {width}));
            e.storeRow(scaled, output, row, col);
          });
    });
  }

  // Divides by the sums and stores output and log-sum-exp.
  void finish() {
    OpBuilder &b = e.b;
    int64_t tile = e.shape.queryTile();
    Value zero = e.index(0);
    Value total = e.loadVector(sum, zero, tile);
    Value inverse = b.create<arith::DivFOp>(e.loc, e.splat(1.0, {tile}), total);
    e.storeVector(inverse, rescale, zero);
    rescaleOutput();
    Matrix result =
        headMatrix(e, kernel.getBuffers()[inputs + operands.outputIndex],
                   operands.output, batch, firstQuery, head);
    e.copyRows(output, result, queries, e.shape.headDim);

    if (operands.lseIndex < 0)
      return;
    // lse = scale · max + ln(sum), at [b, h, t].
    Value top =
        b.create<arith::MulFOp>(e.loc, e.loadVector(maximum, zero, tile),
                                e.splat(e.shape.scale, {tile}));
    Value lse = b.create<arith::AddFOp>(e.loc, top,
                                        b.create<math::LogOp>(e.loc, total));
    Value row = e.add(e.mul(batch, e.shape.heads), head);
    Value at = e.add(e.mul(row, e.shape.tokens), firstQuery);
    e.storeVector(lse, kernel.getBuffers()[inputs + operands.lseIndex], at,
                  queries);
  }

  AttentionEmitter &e;
  tile::KernelOp kernel;
  const ForwardOperands &operands;
  unsigned inputs;
  Matrix queryT, scores, output, query, keyStage{}, valueStage{};
  Value maximum, sum, rescale; // shared, [queryTile]
  Value batch, head, kvHead, firstQuery, queries;
};

} // namespace

static AttentionShape shapeOf(graph::AttentionOp op) {
  ArrayRef<int64_t> q = graph::tensorType(op.getQuery()).getShape();
  int64_t kvHeads = graph::tensorType(op.getKey()).getDimSize(2);
  return {q[0],           q[1],
          q[2],           kvHeads,
          q[3],           op.getScale().convertToDouble(),
          op.getCausal(), static_cast<int64_t>(op.getWindow().value_or(0))};
}

// Which results of the cluster are the output (possibly reshaped) and the lse.
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
        llvm::inconvertibleErrorCode(),
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

llvm::Expected<SmallVector<Value>>
tessera::tileAttention(graph::ClusterOp cluster, TilingContext &context) {
  auto ops = cluster.getBody().getOps<graph::AttentionOp>();
  if (ops.empty())
    return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                   "an attention cluster without attention");
  graph::AttentionOp op = *ops.begin();
  ForwardOperands operands;
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
    return error;
  AttentionShape shape = shapeOf(op);
  unsigned inputs = cluster.getInputs().size();
  if (context.isGpu())
    return tileGpuAttention(cluster, operands, shape, context);
  LaunchSpec spec =
      attentionLaunch(cluster, tile::Skeleton::attention,
                      shape.batch * shape.heads * shape.queryTiles());
  spec.build = [=](tile::KernelOp kernel, const TileTarget &target,
                   OpBuilder &builder) -> llvm::Error {
    AttentionEmitter emitter(builder, kernel.getLoc(), target, shape);
    ForwardEmitter(emitter, kernel, operands, inputs).emit();
    return llvm::Error::success();
  };
  return context.launch(cluster, spec, cluster.getInputs(),
                        cluster.getResultTypes());
}
