// Attention backward. A block owns one key/value head of one sequence or, of
// packed documents, of those that begin in a part of it: it walks over the
// query tiles of every head of the group, and for each over the key tiles that
// they see. No other block adds to its dK, dV or dQ: no atomics, and the order
// of every sum is fixed.
//
// Five products for a pair of tiles, all on transposed scores [key × query]:
//   Sᵀ = K Qᵀ           P = exp(scale S − lse)
//   dPᵀ = V dOᵀ         dSᵀ = scale Pᵀ ∘ (dPᵀ − delta)    delta = Σ_d dO ∘ O
//   dV += Pᵀ dO         dK += dSᵀ Q         dQ += dS K
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/kernels/attention/AttentionMask.h"
#include "passes/kernels/attention/AttentionPlan.h"
#include "passes/kernels/attention/ScoreModifier.h"
#include <cmath>

using namespace mlir;
using namespace tessera;

namespace {

class BackwardEmitter {
public:
  BackwardEmitter(AttentionEmitter &e, tile::KernelOp kernel,
                  const BackwardPlan &plan, unsigned inputs)
      : e(e), kernel(kernel), plan(plan), o(plan.operands), inputs(inputs),
        mask(e) {}

  void emit() {
    allocate();
    OpBuilder &b = e.b;
    if (o.start.isThere)
      mask.startAt(loadStart(b, e.loc, kernel.getBuffers()[o.start.argument]));
    locate();
    if (o.first)
      mask.locateFirst(buffer(*o.first), o.first->view, batch);
    if (o.last)
      mask.locateLast(buffer(*o.last), o.last->view, batch);
    if (plan.ownsDocuments())
      return mask.forEachDocument(
          part,
          e.min(e.index(plan.partTokens()),
                e.sub(e.index(e.shape.tokens), part)),
          [&](Value first, Value queries, Value keyAt, Value keys) {
            sequence(first, queries, keyAt, keys);
          });
    Value zero = e.index(0);
    sequence(zero, e.index(e.shape.tokens), zero, e.index(e.shape.keys));
  }

private:
  void allocate() {
    int64_t q = e.shape.queryTile, k = e.shape.keyTile, d = e.shape.headDim,
            t = e.shape.keys;
    // A run's last register tile of keys may extend past the last key.
    if (o.first)
      t += e.microRows();
    query = e.matrix(e.alloc({q, d}));
    queryT = e.matrix(e.alloc({d, q}));
    cotangent = e.matrix(e.alloc({q, d}));
    cotangentT = e.matrix(e.alloc({d, q}));
    dQuery = e.matrix(e.alloc({q, d}));
    weights = e.matrix(e.alloc({k, q}));
    dScores = e.matrix(e.alloc({k, q}));
    delta = e.alloc({q});
    shift = e.alloc({q});
    dKey = e.matrix(e.alloc({t, d}));
    dValue = e.matrix(e.alloc({t, d}));
    key = e.matrix(e.alloc({t, d}));
    value = e.matrix(e.alloc({t, d}));
    if (!o.first)
      return;
    // What follows a run's queries is of an earlier run.
    e.fillZero(query, e.index(q), d);
    e.fillZero(cotangent, e.index(q), d);
  }

  Value buffer(const AttentionOperand &operand) {
    return kernel.getBuffers()[operand.argument];
  }
  Matrix of(const AttentionOperand &operand, Value token, Value h) {
    return headMatrix(e, buffer(operand), operand.view, batch, token, h);
  }
  Matrix place(const GradientPlace &to, Value token, Value h) {
    return headMatrix(e, kernel.getBuffers()[inputs + to.result], to.view,
                      batch, token, h);
  }

  // Blocks of one head follow each other. All work on a long document is where
  // it begins, in a block for each head: threads take blocks in runs, and would
  // take all of these at once if those of a part followed each other.
  void locate() {
    OpBuilder &b = e.b;
    Value block = kernel.getBlockNumber(), kvHeads = e.index(e.shape.kvHeads),
          parts = e.index(plan.parts());
    part =
        e.mul(b.create<arith::RemUIOp>(e.loc, block, parts), plan.partTokens());
    Value rest = b.create<arith::DivUIOp>(e.loc, block, parts);
    kvHead = b.create<arith::RemUIOp>(e.loc, rest, kvHeads);
    batch = b.create<arith::DivUIOp>(e.loc, rest, kvHeads);
  }

  // Queries that see no keys but these, which no other query sees.
  void sequence(Value first, Value queries, Value keyAt, Value keys) {
    firstKey = keyAt;
    beginKeys(keyAt, keys);
    int64_t group = e.shape.heads / e.shape.kvHeads;
    e.forRange(e.index(0), e.index(group), 1, [&](Value member) {
      head = e.add(e.mul(kvHead, group), member);
      if (o.first)
        return mask.forEachRun(first, queries,
                               [&](Value run, Value size, Value origin) {
                                 queryTile(run, size, origin);
                               });
      e.forRange(first, e.add(first, queries), e.shape.queryTile,
                 [&](Value tile) {
                   Value size = e.min(e.index(e.shape.queryTile),
                                      e.sub(e.add(first, queries), tile));
                   queryTile(tile, size, {});
                 });
    });
    finishKeys(keyAt, keys);
  }

  // K and V of the head, dense and in f32: every query tile reads them again.
  void beginKeys(Value at, Value keys) {
    int64_t dim = e.shape.headDim;
    e.copyRows(of(o.key, at, kvHead), rowsOf(key, at), keys, dim);
    e.copyRows(of(o.value, at, kvHead), rowsOf(value, at), keys, dim);
    e.fillZero(rowsOf(dKey, at), keys, dim);
    e.fillZero(rowsOf(dValue, at), keys, dim);
  }

  void finishKeys(Value at, Value keys) {
    int64_t dim = e.shape.headDim;
    e.copyRows(rowsOf(dKey, at), place(o.dKey, at, kvHead), keys, dim);
    e.copyRows(rowsOf(dValue, at), place(o.dValue, at, kvHead), keys, dim);
  }

  // `origin` is the first key of a run of queries; null: they are a tile.
  void queryTile(Value first, Value queries, Value origin) {
    int64_t tile = e.shape.queryTile, dim = e.shape.headDim;
    int64_t tokens = origin ? tile : e.shape.tokens;
    if (tokens % tile) { // columns past the last query stay zero
      e.fillZero(queryT, e.index(dim), tile);
      e.fillZero(cotangentT, e.index(dim), tile);
    }
    e.copyRows(of(o.query, first, head), query, queries, dim);
    e.copyRows(of(o.cotangent, first, head), cotangent, queries, dim);
    Value columns = origin ? e.computedQueries(queries) : queries;
    e.copyTransposed(query, queryT, columns, tokens, dim);
    e.copyTransposed(cotangent, cotangentT, columns, tokens, dim);
    computeDelta(first, queries);
    loadLse(first, queries);
    e.fillZero(dQuery, e.computedQueries(queries), dim);
    auto [begin, end] = mask.visibleKeys(first, queries, origin);
    e.forRange(begin, end, e.shape.keyTile, [&, end = end](Value keyAt) {
      Value keys = e.min(e.index(e.shape.keyTile), e.sub(end, keyAt));
      pairOfTiles(first, queries, keyAt, keys);
    });
    e.copyRows(dQuery, place(o.dQuery, first, head), queries, dim);
  }

  // delta[q] = Σ_d dO[q, d] O[q, d]
  void computeDelta(Value first, Value queries) {
    OpBuilder &b = e.b;
    Matrix output = of(o.output, first, head);
    e.forRange(e.index(0), queries, 1, [&](Value row) {
      Value total;
      e.forColumns(
          e.shape.headDim, 4 * e.target.lanes, [&](Value col, int64_t width) {
            Value product = b.create<arith::MulFOp>(
                e.loc, e.loadRow(output, row, col, width),
                e.loadRow(cotangent, row, col, width));
            Value part = b.create<tile::ReduceOp>(
                e.loc, VectorType::get({}, b.getF32Type()), product,
                tile::ReduceKind::sum, 0);
            part = b.create<vector::ExtractElementOp>(e.loc, part);
            total = total ? b.create<arith::AddFOp>(e.loc, total, part) : part;
          });
      b.create<memref::StoreOp>(e.loc, total, delta, row);
    });
  }

  // shift ← −lse · log2 e of the tile's queries; 0 past the last one.
  void loadLse(Value first, Value queries) {
    const View &view = o.lse.view; // [B, heads, T]
    Value at =
        e.add(e.mul(batch, view.strides[0]), e.mul(head, view.strides[1]));
    at = e.add(e.add(at, first), view.offset);
    e.forQueries(queries, [&](Value col, int64_t width) {
      Value lse = e.loadVector(buffer(o.lse), e.add(at, col), width,
                               e.remainingQueries(queries, col, width));
      // Of a query that sees no key at all it is -inf.
      if (e.shape.hasStart)
        lse =
            e.b.create<arith::MaximumFOp>(e.loc, lse, e.splat(-1e20, {width}));
      lse = e.b.create<arith::MulFOp>(e.loc, lse, e.splat(-M_LOG2E, {width}));
      e.storeVector(lse, shift, col);
    });
  }

  void pairOfTiles(Value first, Value queries, Value keyAt, Value keys) {
    int64_t dim = e.shape.headDim, tile = e.shape.queryTile;
    int64_t total = o.first ? 0 : e.shape.keys;
    Columns columns = e.queryColumns(queries);
    Value rows = o.first ? e.wholeRows(keys) : keys;
    Matrix keyRows = rowsOf(key, keyAt), valueRows = rowsOf(value, keyAt);
    Value depth = e.index(dim);
    e.multiply(keyRows, queryT, weights, rows, total, columns, depth, false);
    e.capScores(weights, keys, queries);
    // exp2 of a masked score is 0 exactly.
    mask.hide(weights, keyAt, keys, first, queries, -1e30);
    e.multiply(valueRows, cotangentT, dScores, rows, total, columns, depth,
               false);
    e.forQueries(queries, [&](Value col, int64_t width) {
      pointwise(keys, col, width);
    });
    if (o.first) // the rows after a run's last key are of other queries
      for (const Matrix &each : {weights, dScores})
        e.fillZero(below(each, keys), e.sub(rows, keys), tile);
    e.multiply(weights, cotangent, rowsOf(dValue, keyAt), rows, total, dim,
               queries, true);
    e.multiply(dScores, query, rowsOf(dKey, keyAt), rows, total, dim, queries,
               true);
    e.multiply(dScores.transposed(), keyRows, dQuery,
               e.computedQueries(queries), 0, dim, keys, true);
  }

  // weights: S → P; dScores: dP → dS; of `width` queries from column `col` on.
  void pointwise(Value keys, Value col, int64_t width) {
    OpBuilder &b = e.b;
    Value factor = e.splat(e.shape.scale * M_LOG2E, {width});
    Value scale = e.splat(e.shape.scale, {width});
    Value minusLse = e.loadVector(shift, col, width);
    Value rowSums = e.loadVector(delta, col, width);
    e.forRange(e.index(0), keys, 1, [&](Value row) {
      Value scores = e.loadRow(weights, row, col, width);
      Value power = b.create<math::FmaOp>(e.loc, scores, factor, minusLse);
      Value weight = b.create<math::Exp2Op>(e.loc, power);
      Value slope = ScoreModifier(e, e.shape).slope(scores, /*areMasked=*/true);
      Value change = b.create<arith::SubFOp>(
          e.loc, e.loadRow(dScores, row, col, width), rowSums);
      change = b.create<arith::MulFOp>(e.loc, change, scale);
      change = b.create<arith::MulFOp>(e.loc, change, weight);
      if (slope)
        change = b.create<arith::MulFOp>(e.loc, change, slope);
      e.storeRow(weight, weights, row, col);
      e.storeRow(change, dScores, row, col);
    });
  }

  // The rows of keys from `at` on, in key, value, dKey or dValue. It is not
  // before firstKey: `first` does not decrease.
  Matrix rowsOf(const Matrix &m, Value at) {
    return below(m, e.sub(at, firstKey));
  }

  // The rows of a matrix from `row` on.
  Matrix below(Matrix m, Value row) {
    m.origin[m.rowDim] = e.add(m.origin[m.rowDim], row);
    return m;
  }

  AttentionEmitter &e;
  tile::KernelOp kernel;
  const BackwardPlan &plan;
  const BackwardOperands &o;
  unsigned inputs;
  AttentionMask mask;
  Matrix query, queryT, cotangent, cotangentT, dQuery, weights, dScores;
  // Of the keys of a call of `sequence`: short documents share the first rows,
  // which then stay in the L1 cache.
  Matrix key, value, dKey, dValue;
  Value firstKey; // of row 0 of these four
  Value delta, shift, batch, head, kvHead, part;
};

} // namespace

static llvm::Error makeError(graph::ClusterOp cluster,
                             const llvm::Twine &what) {
  return llvm::createStringError("cluster '" + cluster.getName() +
                                 "': " + what);
}

static SmallVector<int64_t> denseStrides(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size() - 1; i-- > 0;)
    strides[i] = strides[i + 1] * shape[i + 1];
  return strides;
}

// The part of a yielded value that `gradient` fills: all of it, reshaped, or a
// run of the last dimension of a concatenation.
static std::optional<View> partOf(Value yielded, Value gradient) {
  ArrayRef<int64_t> shape = graph::tensorType(gradient).getShape();
  View view{{}, 0, SmallVector<int64_t>(shape), {}};
  auto micropanel = [](Value value) {
    while (auto reshape = value.getDefiningOp<graph::ReshapeOp>())
      value = reshape.getInput();
    return value;
  };
  Value source = micropanel(yielded);
  if (source == gradient) {
    view.strides = denseStrides(shape);
    return view;
  }
  auto concat = source.getDefiningOp<graph::ConcatOp>();
  if (!concat)
    return {};
  ArrayRef<int64_t> whole = graph::tensorType(concat.getResult()).getShape();
  // [B, T, 3·H·D]: rows of one token, which hold the gradients next to each
  // other.
  if (whole.size() != 3 || concat.getDim() != 2)
    return {};
  for (Value input : concat.getInputs()) {
    if (micropanel(input) == gradient) {
      view.strides = {whole[1] * whole[2], whole[2], shape[3], 1};
      return view;
    }
    view.offset += graph::tensorType(input).getDimSize(2);
  }
  return {};
}

static llvm::Expected<GradientPlace> findPlace(graph::ClusterOp cluster,
                                               Value gradient) {
  for (auto [i, yielded] : llvm::enumerate(cluster.getYield().getValues()))
    if (std::optional<View> view = partOf(yielded, gradient))
      return GradientPlace{static_cast<unsigned>(i), *view};
  return makeError(cluster, "a gradient of attention is not among its results");
}

static llvm::Error findOperands(graph::ClusterOp cluster,
                                graph::AttentionGradOp op,
                                BackwardOperands &o) {
  for (auto [value, operand] :
       {std::pair<Value, AttentionOperand *>{op.getQuery(), &o.query},
        std::pair<Value, AttentionOperand *>{op.getKey(), &o.key},
        std::pair<Value, AttentionOperand *>{op.getValue(), &o.value},
        std::pair<Value, AttentionOperand *>{op.getOutput(), &o.output},
        std::pair<Value, AttentionOperand *>{op.getLse(), &o.lse},
        std::pair<Value, AttentionOperand *>{op.getCotangent(),
                                             &o.cotangent}}) {
    llvm::Expected<AttentionOperand> found = attentionOperand(op, value);
    if (!found)
      return found.takeError();
    *operand = *found;
  }
  for (auto [value, to] :
       {std::pair<Value, GradientPlace *>{op.getDQuery(), &o.dQuery},
        std::pair<Value, GradientPlace *>{op.getDKey(), &o.dKey},
        std::pair<Value, GradientPlace *>{op.getDValue(), &o.dValue}}) {
    llvm::Expected<GradientPlace> found = findPlace(cluster, value);
    if (!found)
      return found.takeError();
    *to = *found;
  }
  return llvm::Error::success();
}

llvm::Expected<BackwardPlan>
tessera::planAttentionGrad(graph::ClusterOp cluster,
                           const TilingContext &context) {
  auto ops = cluster.getBody().getOps<graph::AttentionGradOp>();
  if (ops.empty())
    return makeError(cluster, "holds no attention_grad");
  graph::AttentionGradOp op = *ops.begin();
  BackwardPlan plan;
  if (llvm::Error error = findOperands(cluster, op, plan.operands))
    return std::move(error);
  plan.operands.start = attentionStart(op.getStart());
  for (auto [value, operand] : {std::pair(op.getFirst(), &plan.operands.first),
                                std::pair(op.getLast(), &plan.operands.last)}) {
    auto found = optionalOperand(op, value);
    if (!found)
      return found.takeError();
    *operand = *found;
  }
  plan.shape = attentionShapeOf(op);
  if (context.isGpu()) {
    auto kernels = chooseGpuAttentionGrad(cluster, plan.operands, plan.shape,
                                          context.target());
    if (!kernels)
      return kernels.takeError();
    plan.kernels = *kernels;
    return plan;
  }
  auto choice = takeAttention(
      cluster, cpuAttentionKernels(plan.shape, cluster.getContext()));
  if (!choice)
    return choice.takeError();
  plan.kernel = choice->kernel;
  plan.shape.take(plan.kernel);
  return plan;
}

llvm::Expected<SmallVector<Value>>
tessera::tileAttentionGrad(graph::ClusterOp cluster, TilingContext &context) {
  llvm::Expected<BackwardPlan> plan = planAttentionGrad(cluster, context);
  if (!plan)
    return plan.takeError();
  if (context.isGpu())
    return tileGpuAttentionGrad(cluster, *plan, context);
  LaunchSpec spec =
      attentionLaunch(cluster, tile::Skeleton::attention_grad, plan->blocks());
  spec.key += planKey(plan->kernel);
  unsigned inputs = cluster.getInputs().size();
  spec.build = [&](tile::KernelOp kernel, const TileTarget &target,
                   OpBuilder &builder) -> llvm::Error {
    AttentionEmitter emitter(builder, kernel.getLoc(), target, plan->shape);
    BackwardEmitter(emitter, kernel, *plan, inputs).emit();
    return llvm::Error::success();
  };
  return context.launch(cluster, spec, cluster.getInputs(),
                        cluster.getResultTypes());
}
