// Attention backward on a GPU, without atomics, so that its bits do not depend
// on who comes first. Three kernels:
//   delta = Σ_d dO ∘ O                              a tile of queries
//   dV += Pᵀ dO, dK += dSᵀ Q                        a tile of keys, over
//   queries dQ += dS K                                      a tile of queries,
//   over keys
// with P = exp(scale S − lse), S = Q Kᵀ, dP = dO Vᵀ, dS = scale P ∘ (dP −
// delta). The second works on transposed scores, [key × query], so that Pᵀ and
// dSᵀ are left operands as they come out of their products.
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/tiling/ClusterLaunch.h"
#include "passes/tiling/gpu/GpuAttention.h"
#include <cmath>

using namespace mlir;
using namespace tessera;
using namespace tessera::gpu;

// exp2 of a masked score is 0 exactly.
static constexpr double kMasked = -1e30;
// The kernel of delta multiplies no tiles: its warps divide rows of the head.
static constexpr int64_t kDeltaRows = 16, kDeltaWarps[] = {1, 4};

namespace {

/// A kernel's buffers by what they are to the gradient.
struct GradBuffers {
  Value query, key, value, output, lse, cotangent, delta;
  Value dQuery, dKey, dValue;
};

/// One launch of the three: which buffers it takes, in order.
struct GradLaunch {
  LaunchSpec spec;
  SmallVector<Value> inputs;
  SmallVector<Type> outputs;

  unsigned add(Value input, tile::Access access) {
    spec.buffers.push_back(bufferType(input.getType()));
    spec.access.push_back(access);
    inputs.push_back(input);
    if (access == tile::Access::read_write)
      outputs.push_back(input.getType());
    return spec.buffers.size() - 1;
  }
  unsigned addResult(Type type) {
    spec.buffers.push_back(bufferType(type));
    spec.access.push_back(tile::Access::write);
    outputs.push_back(type);
    return spec.buffers.size() - 1;
  }
};

class GradEmitter {
public:
  GradEmitter(GpuAttention &g, tile::KernelOp kernel, const BackwardOperands &o,
              const GradBuffers &buffers)
      : g(g), e(g.e), kernel(kernel), o(o), buffers(buffers) {}

  void emitDelta();
  void emitKeys();
  void emitQueries();

private:
  /// The number of the head that the block belongs to, and its tile's first
  /// row; sets the batch. The last tiles come first where those are longest.
  std::pair<Value, Value> locate(int64_t heads, int64_t tile, bool lastFirst);
  Source of(Value buffer, const View &view, Value token, Value h,
            int64_t rows) {
    return g.head(buffer, view, token, h, rows);
  }
  /// [batch, head, 0] of the buffers of one number a query.
  Value lseAt(Value head);
  Value deltaAt(Value head);
  /// P, dS from S and dP; lse and delta are slices along `dim`.
  std::pair<Value, Value> pointwise(Value scores, Value change, Value head,
                                    Value query, int64_t dim);
  SmallVector<Value> queryTile(Value step, Value steps, Value perHead,
                               Value begin, Value key, Value kvHead,
                               ValueRange sums);
  void stageQueries(Value step, Value perHead, Value begin, Value kvHead);
  SmallVector<Value> keyTile(Value key, Value end, Value query, Value head,
                             Value kvHead, Value sum);

  GpuAttention &g;
  const TileBuilder &e;
  tile::KernelOp kernel;
  const BackwardOperands &o;
  const GradBuffers &buffers;
  Staged query, cotangent, key, value;
};

} // namespace

//===--- parts ------------------------------------------------------------===//

std::pair<Value, Value> GradEmitter::locate(int64_t heads, int64_t tile,
                                            bool lastFirst) {
  kernel.setWarps(ArrayRef<int64_t>{tile / 16, 1});
  int64_t tiles = llvm::divideCeil(g.shape.tokens, tile);
  SmallVector<Value> at =
      e.unravel(kernel.getBlockNumber(), {heads, g.shape.batch, tiles});
  g.batch = at[1];
  Value number = lastFirst ? e.sub(e.index(tiles - 1), at[2]) : at[2];
  return {at[0], e.mul(number, tile)};
}

Value GradEmitter::lseAt(Value head) {
  const View &view = o.lse.view; // [B, heads, T]
  return e.add(
      e.add(e.mul(g.batch, view.strides[0]), e.mul(head, view.strides[1])),
      view.offset);
}

Value GradEmitter::deltaAt(Value head) {
  return e.mul(e.add(e.mul(g.batch, g.shape.heads), head), g.shape.tokens);
}

std::pair<Value, Value> GradEmitter::pointwise(Value scores, Value change,
                                               Value head, Value query,
                                               int64_t dim) {
  OpBuilder &b = e.b;
  ArrayRef<int64_t> tile = cast<VectorType>(scores.getType()).getShape();
  int64_t size = tile[dim];
  Value lse = g.loadVector(buffers.lse, lseAt(head), size, query);
  Value shift = b.create<arith::MulFOp>(e.loc, lse, e.splat(-M_LOG2E, {size}));
  Value power = b.create<math::FmaOp>(e.loc, scores,
                                      e.splat(g.shape.scale * M_LOG2E, tile),
                                      e.spread(shift, tile, dim));
  Value weights = b.create<math::Exp2Op>(e.loc, power);
  Value delta = g.loadVector(buffers.delta, deltaAt(head), size, query);
  Value centred =
      b.create<arith::SubFOp>(e.loc, change, e.spread(delta, tile, dim));
  Value scaled =
      b.create<arith::MulFOp>(e.loc, centred, e.splat(g.shape.scale, tile));
  return {weights, b.create<arith::MulFOp>(e.loc, scaled, weights)};
}

//===--- delta ------------------------------------------------------------===//

void GradEmitter::emitDelta() {
  OpBuilder &b = e.b;
  int64_t rows = g.sizes.queries;
  auto [head, first] = locate(g.shape.heads, rows, false);
  kernel.setWarps(kDeltaWarps);
  auto load = [&](Value buffer, const View &view) {
    Source from = of(buffer, view, first, head, rows);
    Type memory = cast<MemRefType>(buffer.getType()).getElementType();
    SmallVector<Value> bounds{from.rows ? from.rows : e.index(rows),
                              e.index(g.shape.headDim)};
    return e.toFloat(b.create<tile::LoadOp>(
        e.loc, VectorType::get({rows, g.sizes.dim}, memory), from.memory,
        from.indices, bounds, ArrayRef<int64_t>{from.rowDim, from.columnDim}));
  };
  Value product =
      b.create<arith::MulFOp>(e.loc, load(buffers.output, o.output.view),
                              load(buffers.cotangent, o.cotangent.view));
  g.storeVector(e.reduce(product, tile::ReduceKind::sum, 1), buffers.delta,
                deltaAt(head), first);
}

//===--- dK, dV -----------------------------------------------------------===//

// Step s of the walk is query tile s mod perHead of the group's head s div
// perHead.
void GradEmitter::stageQueries(Value step, Value perHead, Value begin,
                               Value kvHead) {
  OpBuilder &b = e.b;
  Value member = b.createOrFold<arith::DivUIOp>(e.loc, step, perHead);
  Value head = e.add(e.mul(kvHead, g.shape.heads / g.shape.kvHeads), member);
  Value number = b.createOrFold<arith::RemUIOp>(e.loc, step, perHead);
  Value first = e.add(begin, e.mul(number, g.sizes.queries));
  Value place = e.rem(step, 2);
  query.copy(e, place,
             of(buffers.query, o.query.view, first, head, g.sizes.queries));
  cotangent.copy(
      e, place,
      of(buffers.cotangent, o.cotangent.view, first, head, g.sizes.queries));
}

SmallVector<Value> GradEmitter::queryTile(Value step, Value steps,
                                          Value perHead, Value begin,
                                          Value firstKey, Value kvHead,
                                          ValueRange sums) {
  OpBuilder &b = e.b;
  int64_t keys = g.sizes.keys, queries = g.sizes.queries;
  g.wait();
  Value next = e.add(step, 1);
  e.ifTrue(e.compare(arith::CmpIPredicate::slt, next, steps),
           [&] { stageQueries(next, perHead, begin, kvHead); });
  g.commit();
  Value member = b.createOrFold<arith::DivUIOp>(e.loc, step, perHead);
  Value head = e.add(e.mul(kvHead, g.shape.heads / g.shape.kvHeads), member);
  Value number = b.createOrFold<arith::RemUIOp>(e.loc, step, perHead);
  Value first = e.add(begin, e.mul(number, queries));
  Value place = e.rem(step, 2), zero = e.index(0);
  Value scores = g.multiply(key.load(e, zero), query.loadTransposed(e, place),
                            g.zeros(keys, queries));
  scores = g.mask(scores, first, firstKey, /*keysInRows=*/true, kMasked);
  Value change =
      g.multiply(value.load(e, zero), cotangent.loadTransposed(e, place),
                 g.zeros(keys, queries));
  auto [weights, dScores] = pointwise(scores, change, head, first, 1);
  SmallVector<Value> result;
  if (buffers.dValue)
    result.push_back(g.multiply(e.toElement(weights, g.element),
                                cotangent.load(e, place), sums[result.size()]));
  if (buffers.dKey)
    result.push_back(g.multiply(e.toElement(dScores, g.element),
                                query.load(e, place), sums[result.size()]));
  return result;
}

void GradEmitter::emitKeys() {
  int64_t keys = g.sizes.keys;
  auto [kvHead, first] = locate(g.shape.kvHeads, keys, false);
  key = g.stageTiles(1, keys);
  value = g.stageTiles(1, keys);
  query = g.stageTiles(2, g.sizes.queries);
  cotangent = g.stageTiles(2, g.sizes.queries);
  Value zero = e.index(0);
  key.copy(e, zero, of(buffers.key, o.key.view, first, kvHead, keys));
  value.copy(e, zero, of(buffers.value, o.value.view, first, kvHead, keys));
  auto [begin, end] = g.visibleQueries(first);
  Value perHead =
      e.div(e.add(e.sub(end, begin), g.sizes.queries - 1), g.sizes.queries);
  Value steps = e.mul(perHead, g.shape.heads / g.shape.kvHeads);
  stageQueries(zero, perHead, begin, kvHead);
  g.commit();
  SmallVector<Value> none((buffers.dKey ? 1 : 0) + (buffers.dValue ? 1 : 0),
                          g.zeros(keys, g.sizes.dim));
  auto sums = e.forRange(zero, steps, 1, none,
                         [&, kvHead = kvHead, first = first,
                          begin = begin](Value step, ValueRange carried) {
                           return queryTile(step, steps, perHead, begin, first,
                                            kvHead, carried);
                         });
  unsigned i = 0;
  if (buffers.dValue)
    g.store(sums[i++], of(buffers.dValue, o.dValue.view, first, kvHead, keys));
  if (buffers.dKey)
    g.store(sums[i++], of(buffers.dKey, o.dKey.view, first, kvHead, keys));
}

//===--- dQ ---------------------------------------------------------------===//

SmallVector<Value> GradEmitter::keyTile(Value firstKey, Value end,
                                        Value firstQuery, Value head,
                                        Value kvHead, Value sum) {
  int64_t keys = g.sizes.keys, queries = g.sizes.queries;
  auto placeOf = [&](Value at) { return e.rem(e.div(at, keys), 2); };
  g.wait();
  Value next = e.add(firstKey, keys);
  e.ifTrue(e.compare(arith::CmpIPredicate::slt, next, end), [&] {
    key.copy(e, placeOf(next), of(buffers.key, o.key.view, next, kvHead, keys));
    value.copy(e, placeOf(next),
               of(buffers.value, o.value.view, next, kvHead, keys));
  });
  g.commit();
  Value place = placeOf(firstKey), zero = e.index(0);
  Value scores = g.multiply(query.load(e, zero), key.loadTransposed(e, place),
                            g.zeros(queries, keys));
  scores = g.mask(scores, firstQuery, firstKey, /*keysInRows=*/false, kMasked);
  Value change =
      g.multiply(cotangent.load(e, zero), value.loadTransposed(e, place),
                 g.zeros(queries, keys));
  auto [weights, dScores] = pointwise(scores, change, head, firstQuery, 0);
  return {g.multiply(e.toElement(dScores, g.element), key.load(e, place), sum)};
}

void GradEmitter::emitQueries() {
  int64_t queries = g.sizes.queries, keys = g.sizes.keys;
  auto [head, first] = locate(g.shape.heads, queries, true);
  Value kvHead = g.kvHeadOf(head);
  query = g.stageTiles(1, queries);
  cotangent = g.stageTiles(1, queries);
  key = g.stageTiles(2, keys);
  value = g.stageTiles(2, keys);
  Value zero = e.index(0);
  query.copy(e, zero, of(buffers.query, o.query.view, first, head, queries));
  cotangent.copy(e, zero,
                 of(buffers.cotangent, o.cotangent.view, first, head, queries));
  auto [begin, end] = g.visibleKeys(first);
  Value place = e.rem(e.div(begin, keys), 2);
  key.copy(e, place, of(buffers.key, o.key.view, begin, kvHead, keys));
  value.copy(e, place, of(buffers.value, o.value.view, begin, kvHead, keys));
  g.commit();
  auto sums = e.forRange(
      begin, end, keys, g.zeros(queries, g.sizes.dim),
      [&, head = head, first = first, end = end](Value at, ValueRange sum) {
        return keyTile(at, end, first, head, kvHead, sum[0]);
      });
  g.store(sums[0], of(buffers.dQuery, o.dQuery.view, first, head, queries));
}

//===--- launches ---------------------------------------------------------===//

namespace {

enum class Part { delta, keysAndValues, values, keys, queries };

/// Makes the launches of one cluster.
class GradTiler {
public:
  GradTiler(graph::ClusterOp cluster, const BackwardOperands &o,
            const AttentionShape &shape, TilingContext &context)
      : cluster(cluster), o(o), shape(shape), context(context),
        results(cluster.getNumResults()) {}

  llvm::Expected<SmallVector<Value>> run();

private:
  llvm::Error launch(Part part, AttentionSizes sizes);
  Type elementOf(const AttentionOperand &operand) {
    return graph::tensorType(cluster.getInputs()[operand.argument])
        .getElementType();
  }

  graph::ClusterOp cluster;
  const BackwardOperands &o;
  const AttentionShape &shape;
  TilingContext &context;
  Type element;
  Value delta;                ///< [B, H, T], once it is computed
  SmallVector<Value> results; ///< of the cluster, as far as written
};

} // namespace

static llvm::StringRef suffixOf(Part part) {
  switch (part) {
  case Part::delta:
    return "_delta";
  case Part::keysAndValues:
    return "_keys_values";
  case Part::values:
    return "_values";
  case Part::keys:
    return "_keys";
  case Part::queries:
    return "_queries";
  }
  llvm_unreachable("all parts are handled");
}

// Contractions of a part, of which the whole gradient needs five; parts that
// run by themselves compute the scores again.
static int64_t contractionsOf(Part part) {
  switch (part) {
  case Part::delta:
    return 0;
  case Part::keysAndValues: // q kᵀ, dO vᵀ, pᵀ dO, dSᵀ q
    return 4;
  case Part::values: // q kᵀ, pᵀ dO
    return 2;
  case Part::keys:    // q kᵀ, dO vᵀ, dSᵀ q
  case Part::queries: // q kᵀ, dO vᵀ, dS k
    return 3;
  }
  llvm_unreachable("all parts are handled");
}

llvm::Error GradTiler::launch(Part part, AttentionSizes sizes) {
  GradLaunch l;
  l.spec.name = (cluster.getName() + suffixOf(part)).str();
  l.spec.skeleton = tile::Skeleton::attention_grad;
  l.spec.summary = summarize(cluster);
  l.spec.flops = cluster.getFlops() / 5 * contractionsOf(part);
  l.spec.key = bodyKey(cluster) + suffixOf(part).str();
  // Positions of buffers, as GradBuffers has them; −1: not taken.
  using Field = Value GradBuffers::*;
  SmallVector<std::pair<Field, unsigned>> places;
  llvm::DenseMap<unsigned, unsigned> ofArgument;
  auto take = [&](Field field, const AttentionOperand &operand) {
    auto [it, isNew] = ofArgument.try_emplace(operand.argument);
    if (isNew)
      it->second =
          l.add(cluster.getInputs()[operand.argument], tile::Access::read);
    places.push_back({field, it->second});
  };
  take(&GradBuffers::cotangent, o.cotangent);
  if (part == Part::delta) {
    take(&GradBuffers::output, o.output);
  } else {
    take(&GradBuffers::query, o.query);
    take(&GradBuffers::key, o.key);
    take(&GradBuffers::value, o.value);
    take(&GradBuffers::lse, o.lse);
    places.push_back({&GradBuffers::delta, l.add(delta, tile::Access::read)});
  }
  SmallVector<unsigned> written; // results of the cluster, in buffer order
  if (part == Part::delta) {
    auto type = RankedTensorType::get({shape.batch, shape.heads, shape.tokens},
                                      Float32Type::get(cluster.getContext()));
    places.push_back({&GradBuffers::delta, l.addResult(type)});
  }
  // Where several gradients share a result, the launches that come later keep
  // what is there. Results that already exist are operands, and come first.
  SmallVector<std::pair<Field, unsigned>> gradients;
  if (part == Part::keysAndValues || part == Part::values)
    gradients.push_back({&GradBuffers::dValue, o.dValue.result});
  if (part == Part::keysAndValues || part == Part::keys)
    gradients.push_back({&GradBuffers::dKey, o.dKey.result});
  if (part == Part::queries)
    gradients.push_back({&GradBuffers::dQuery, o.dQuery.result});
  llvm::DenseMap<unsigned, unsigned> ofResult;
  for (bool exists : {true, false})
    for (auto [field, result] : gradients) {
      if (bool(results[result]) != exists)
        continue;
      auto [it, isNew] = ofResult.try_emplace(result);
      if (isNew) {
        it->second = exists ? l.add(results[result], tile::Access::read_write)
                            : l.addResult(cluster.getResult(result).getType());
        written.push_back(result);
      }
      places.push_back({field, it->second});
    }
  int64_t heads = shape.heads, tile = sizes.queries;
  if (part != Part::delta && part != Part::queries)
    heads = shape.kvHeads, tile = sizes.keys;
  l.spec.blocks = shape.batch * heads * llvm::divideCeil(shape.tokens, tile);
  l.spec.build = [&, part](tile::KernelOp kernel, const TileTarget &,
                           OpBuilder &builder) -> llvm::Error {
    GradBuffers buffers;
    for (auto [field, buffer] : places)
      buffers.*field = kernel.getBuffers()[buffer];
    GpuAttention common(builder, kernel.getLoc(), shape, sizes, element);
    GradEmitter emitter(common, kernel, o, buffers);
    part == Part::delta     ? emitter.emitDelta()
    : part == Part::queries ? emitter.emitQueries()
                            : emitter.emitKeys();
    return llvm::Error::success();
  };
  auto launched = context.launch(cluster, l.spec, l.inputs, l.outputs);
  if (!launched)
    return launched.takeError();
  if (part == Part::delta)
    delta = launched->front();
  for (auto [result, value] : llvm::zip(written, *launched))
    results[result] = value;
  return llvm::Error::success();
}

llvm::Expected<SmallVector<Value>> GradTiler::run() {
  element = operandType(
      elementOf(o.query),
      operandType(elementOf(o.key),
                  operandType(elementOf(o.value), elementOf(o.cotangent))));
  int64_t shared = context.target().sharedBytes;
  // Registers of a thread: a tile of sums takes half as many as it has columns.
  // Both gradients together where that leaves enough for scores.
  int64_t budget = element.isBF16() ? 176 : 72,
          sums = paddedColumns(shape.headDim);
  bool together = sums + 32 <= budget;
  auto mostFor = [&](int64_t taken) -> int64_t {
    return taken + 64 <= budget ? 64 : taken + 32 <= budget ? 32 : 16;
  };
  auto ofKeys = chooseAttentionSizes(shape, element, 2,
                                     mostFor(together ? sums : sums / 2), true,
                                     shared),
       ofQueries = chooseAttentionSizes(shape, element, 2, mostFor(sums / 2),
                                        false, shared);
  if (!ofKeys || !ofQueries)
    return attentionTooLarge(shape);
  SmallVector<std::pair<Part, AttentionSizes>> parts{
      {Part::delta,
       {kDeltaRows, 0,
        static_cast<int64_t>(llvm::alignTo(shape.headDim, 64))}}};
  if (together) {
    parts.push_back({Part::keysAndValues, *ofKeys});
  } else {
    parts.push_back({Part::values, *ofKeys});
    parts.push_back({Part::keys, *ofKeys});
  }
  parts.push_back({Part::queries, *ofQueries});
  for (auto [part, sizes] : parts)
    if (llvm::Error error = launch(part, sizes))
      return std::move(error);
  return results;
}

llvm::Expected<SmallVector<Value>> tessera::tileGpuAttentionGrad(
    graph::ClusterOp cluster, const BackwardOperands &operands,
    const AttentionShape &shape, TilingContext &context) {
  return GradTiler(cluster, operands, shape, context).run();
}
