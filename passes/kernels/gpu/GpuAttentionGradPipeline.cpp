// Warp-specialized attention backward for GPUs with TMA and wgmma (sm_90a). The
// producer copies the block's own tiles once, then those that it walks over;
// each of two consumer warpgroups has 64 rows of the former. Products start as
// soon as their operands arrive, and the computation between two of them
// overlaps with the later one. Missing rows are zero.
#include "passes/kernels/gpu/GpuAttentionGrad.h"
#include "passes/kernels/gpu/GpuRoles.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::gpu;

// Stages of the tiles that a block walks over.
static constexpr int64_t kStages = 2;

//===--- dK, dV -----------------------------------------------------------===//

namespace {

class PipelinedKeys : GpuGrad {
public:
  PipelinedKeys(GpuAttention &g, tile::KernelOp kernel,
                const BackwardOperands &o, const GradBuffers &buffers)
      : GpuGrad(g, kernel, o, buffers), roles(g, kernel, g.sizes.keys) {}
  void emit();

private:
  /// body(head, first query, carried) for all tiles of queries of all heads
  /// that read the block's keys.
  using Body = llvm::function_ref<SmallVector<Value>(Value, Value, ValueRange)>;
  ValueRange forQueries(ValueRange init, Body body);
  void produce();
  void consume();
  SmallVector<Value> queryTile(Value head, Value first, ValueRange sums);

  GpuRoles roles;
  Fed key, value, query, cotangent;
  Value kvHead, firstKey, begin, end, keyTile, valueTile;
};

} // namespace

ValueRange PipelinedKeys::forQueries(ValueRange init, Body body) {
  int64_t group = g.shape.heads / g.shape.kvHeads;
  auto ofHead = [&](Value head, ValueRange carried) {
    return e.forRange(
        begin, end, g.sizes.queries, carried,
        [&](Value first, ValueRange sums) { return body(head, first, sums); });
  };
  if (group == 1)
    return ofHead(kvHead, init);
  return e.forRange(e.index(0), e.index(group), 1, init,
                    [&](Value member, ValueRange carried) {
                      Value head = e.add(e.mul(kvHead, group), member);
                      return SmallVector<Value>(ofHead(head, carried));
                    });
}

void PipelinedKeys::produce() {
  int64_t keys = g.sizes.keys, queries = g.sizes.queries;
  roles.bring(key, of(buffers.key, o.key.view, firstKey, kvHead, keys));
  if (buffers.dKey)
    roles.bring(value, of(buffers.value, o.value.view, firstKey, kvHead, keys));
  forQueries({}, [&](Value head, Value first, ValueRange) {
    roles.bring(query, of(buffers.query, o.query.view, first, head, queries));
    roles.bring(cotangent,
                of(buffers.cotangent, o.cotangent.view, first, head, queries));
    return SmallVector<Value>();
  });
}

// Deltas are loaded late, to leave registers for the sums.
SmallVector<Value> PipelinedKeys::queryTile(Value head, Value first,
                                            ValueRange sums) {
  int64_t keys = g.sizes.keys, queries = g.sizes.queries;
  bool both = buffers.dKey && buffers.dValue;
  Value lse = loadLse(head, first, queries);
  Value place = roles.await(query);
  Value scores = roles.start(keyTile, query.tiles.loadTransposed(e, place),
                             g.zeros(keys, queries));
  Value cotangentPlace = roles.await(cotangent), change;
  if (buffers.dKey)
    change = roles.start(valueTile,
                         cotangent.tiles.loadTransposed(e, cotangentPlace),
                         g.zeros(keys, queries));
  scores = cap(roles.wait(scores, buffers.dKey ? 1 : 0));
  Value weights = weigh(scores, lse, first, firstKey, 1);
  SmallVector<Value> result;
  Value dValue, dKey;
  if (buffers.dValue)
    dValue = roles.start(e.toElement(weights, g.element),
                         cotangent.tiles.load(e, cotangentPlace), sums[0]);
  if (buffers.dKey) {
    Value delta = loadDelta(head, first, queries);
    change = roles.wait(change, both ? 1 : 0);
    Value dScores = scoreGradient(scores, weights, change, delta, 1);
    dKey = roles.start(e.toElement(dScores, g.element),
                       query.tiles.load(e, place), sums[both ? 1 : 0]);
  }
  if (buffers.dValue)
    result.push_back(roles.wait(dValue, both ? 1 : 0));
  roles.release(cotangent);
  if (buffers.dKey)
    result.push_back(roles.wait(dKey));
  roles.release(query);
  return result;
}

void PipelinedKeys::consume() {
  Value zero = roles.await(key);
  keyTile = key.tiles.load(e, zero);
  if (buffers.dKey)
    valueTile = value.tiles.load(e, roles.await(value));
  ValueRange sums =
      forQueries(noKeySums(), [&](Value head, Value first, ValueRange carried) {
        return queryTile(head, first, carried);
      });
  storeKeys(sums, firstKey, kvHead);
}

void PipelinedKeys::emit() {
  std::tie(kvHead, firstKey) = locate(/*ofKeys=*/true, g.sizes.keys, false);
  key = roles.feed(1, g.sizes.keys);
  if (buffers.dKey)
    value = roles.feed(1, g.sizes.keys);
  query = roles.feed(kStages, g.sizes.queries);
  cotangent = roles.feed(kStages, g.sizes.queries);
  std::tie(begin, end) = g.visibleQueries(firstKey);
  roles.emit([&] { produce(); }, [&] { consume(); });
}

void gpu::emitPipelinedKeys(GpuAttention &g, tile::KernelOp kernel,
                            const BackwardOperands &o,
                            const GradBuffers &buffers) {
  PipelinedKeys(g, kernel, o, buffers).emit();
}

//===--- dQ ---------------------------------------------------------------===//

namespace {

class PipelinedQueries : GpuGrad {
public:
  PipelinedQueries(GpuAttention &g, tile::KernelOp kernel,
                   const BackwardOperands &o, const GradBuffers &buffers)
      : GpuGrad(g, kernel, o, buffers), roles(g, kernel, g.sizes.queries) {}
  void emit();

private:
  void produce();
  void consume();
  SmallVector<Value> keyTile(Value firstKey, Value sum);

  GpuRoles roles;
  Fed query, cotangent, key, value;
  Value head, firstQuery, begin, end, queryTile, cotangentTile, lse, delta;
};

} // namespace

void PipelinedQueries::produce() {
  int64_t queries = g.sizes.queries, keys = g.sizes.keys;
  Value kvHead = g.kvHeadOf(head);
  roles.bring(query,
              of(buffers.query, o.query.view, firstQuery, head, queries));
  roles.bring(cotangent, of(buffers.cotangent, o.cotangent.view, firstQuery,
                            head, queries));
  e.forRange(
      begin, end, keys, {}, [&](Value at, ValueRange) -> SmallVector<Value> {
        roles.bring(key, of(buffers.key, o.key.view, at, kvHead, keys));
        roles.bring(value, of(buffers.value, o.value.view, at, kvHead, keys));
        return {};
      });
}

SmallVector<Value> PipelinedQueries::keyTile(Value firstKey, Value sum) {
  int64_t queries = g.sizes.queries, keys = g.sizes.keys;
  Value place = roles.await(key);
  Value scores = roles.start(queryTile, key.tiles.loadTransposed(e, place),
                             g.zeros(queries, keys));
  Value change = roles.start(cotangentTile,
                             value.tiles.loadTransposed(e, roles.await(value)),
                             g.zeros(queries, keys));
  scores = cap(roles.wait(scores, 1));
  Value weights = weigh(scores, lse, firstQuery, firstKey, 0);
  change = roles.wait(change);
  roles.release(value);
  Value dScores = scoreGradient(scores, weights, change, delta, 0);
  sum = roles.wait(roles.start(e.toElement(dScores, g.element),
                               key.tiles.load(e, place), sum));
  roles.release(key);
  return {sum};
}

void PipelinedQueries::consume() {
  int64_t queries = g.sizes.queries;
  lse = loadLse(head, firstQuery, queries);
  delta = loadDelta(head, firstQuery, queries);
  queryTile = query.tiles.load(e, roles.await(query));
  cotangentTile = cotangent.tiles.load(e, roles.await(cotangent));
  auto sums =
      e.forRange(begin, end, g.sizes.keys, g.zeros(queries, g.sizes.dim),
                 [&](Value at, ValueRange sum) { return keyTile(at, sum[0]); });
  storeScaled(sums[0],
              of(buffers.dQuery, o.dQuery.view, firstQuery, head, queries));
}

void PipelinedQueries::emit() {
  int64_t queries = g.sizes.queries;
  std::tie(head, firstQuery) = locate(/*ofKeys=*/false, queries, true);
  query = roles.feed(1, queries);
  cotangent = roles.feed(1, queries);
  key = roles.feed(kStages, g.sizes.keys);
  value = roles.feed(kStages, g.sizes.keys);
  std::tie(begin, end) = g.visibleKeys(firstQuery);
  roles.emit([&] { produce(); }, [&] { consume(); });
}

void gpu::emitPipelinedQueries(GpuAttention &g, tile::KernelOp kernel,
                               const BackwardOperands &o,
                               const GradBuffers &buffers) {
  PipelinedQueries(g, kernel, o, buffers).emit();
}

//===--- choices ----------------------------------------------------------===//

namespace {

/// Heads of at most `dim` dimensions, and the tiles that a block of 128 keys
/// and one of 128 queries walk over. Both sums of keys (or one), scores and
/// their gradient are registers of a thread.
struct PipelinedSizes {
  int64_t dim, queries, keys;
  bool together;
};
constexpr PipelinedSizes kSizes[] = {{64, 64, 128, true},
                                     {128, 64, 64, true},
                                     {192, 64, 64, false},
                                     {256, 32, 32, false}};
constexpr int64_t kRows = 2 * kRowsOfConsumer, kTightQueries = 48;

} // namespace

SmallVector<tile::AttentionGradPlanAttr>
gpu::pipelinedGradKernels(const AttentionShape &shape,
                          const BackwardOperands &o, Type element,
                          const TileTarget &target) {
  const PipelinedSizes *sizes = llvm::find_if(
      kSizes, [&](const auto &each) { return shape.headDim <= each.dim; });
  if (!target.warpgroups || !element.isBF16() || sizes == std::end(kSizes) ||
      std::min(shape.tokens, shape.keys) <= kRowsOfConsumer ||
      !hasBoxes(o.query.view) || !hasBoxes(o.key.view) ||
      !hasBoxes(o.value.view) || !hasBoxes(o.cotangent.view))
    return {};
  // If both sums take most registers, too few remain for masks of several
  // conditions.
  bool isTight = paddedColumns(shape.headDim) > 96 &&
                 (shape.window > 0 || shape.hasStart || shape.hasLast ||
                  shape.tokens % kRows || shape.keys % kRows);
  SmallVector<tile::AttentionGradPlanAttr> kernels;
  for (bool separate : {!sizes->together, true})
    kernels.push_back(tile::AttentionGradPlanAttr::get(
        element.getContext(), tile::Engine::warp_specialized,
        isTight && sizes->together ? kTightQueries : sizes->queries, kRows,
        kRows, sizes->keys, separate));
  return kernels;
}
