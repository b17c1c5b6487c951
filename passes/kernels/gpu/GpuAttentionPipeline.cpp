// Warp-specialized attention forward for GPUs with TMA and wgmma (sm_90a),
// after Shah et al. 2024, FlashAttention-3. The producer copies the queries,
// then keys and values alternately; each of two or three consumer warpgroups
// has 64 queries. A warpgroup starts the next tile's scores, then the product
// of this tile's weights with the values, and computes the softmax of the
// former during the latter. In ping-pong order warpgroups alternate on the
// tensor cores, so that one multiplies while another computes exponentials.
// Missing tokens are zero and masked.
#include "passes/kernels/gpu/GpuAttentionForward.h"
#include "passes/kernels/gpu/GpuRoles.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::gpu;

namespace {

// Stages of keys and of values in shared memory (software pipelining).
constexpr int64_t kStages = 2;

/// A kernel for heads of more dimensions than the previous ones, up to `dim`.
/// Its tiles use the registers of a thread: scores take keys / 2, weights keys
/// / 4, the output dim / 2. Products of large heads take most of the time, so
/// that ping-pong order would only add waiting.
struct PipelinedSizes {
  int64_t dim, consumers, keys;
  bool pingPong;
};
constexpr PipelinedSizes kSizes[] = {{64, 3, 128, true},   {64, 2, 128, true},
                                     {128, 2, 128, true},  {128, 2, 176, true},
                                     {128, 2, 128, false}, {192, 2, 96, false},
                                     {192, 2, 112, false}, {256, 2, 64, false}};

class PipelinedForward : GpuForward {
public:
  PipelinedForward(GpuAttention &g, tile::KernelOp kernel,
                   const ForwardOperands &operands, unsigned inputs,
                   bool pingPong)
      : GpuForward(g, kernel, operands, inputs),
        roles(g, kernel, g.sizes.queries), pingPong(pingPong) {}
  void emit();

private:
  void produce(Value begin, Value end);
  void consume(Value begin, Value end);
  SmallVector<Value> keyTile(Value key, ValueRange state);

  void turn(tile::Turn turn) {
    if (pingPong)
      roles.turn(turn);
  }
  /// The scores of the next tile of keys.
  Value startScores() {
    return roles.start(queryTile,
                       keys.tiles.loadTransposed(e, roles.await(keys)),
                       g.zeros(g.sizes.queries, g.sizes.keys));
  }
  /// output + weights × the next tile of values.
  Value startOutput(Value weights, Value output) {
    return roles.start(weights, values.tiles.load(e, roles.await(values)),
                       output);
  }

  GpuRoles roles;
  bool pingPong;
  Fed query, keys, values;
  Value queryTile;
};

} // namespace

//===--- producer and consumers -------------------------------------------===//

void PipelinedForward::produce(Value begin, Value end) {
  int64_t size = g.sizes.keys;
  roles.bring(query, of(o.query, firstQuery, head, g.sizes.queries));
  e.forRange(begin, end, size, {},
             [&](Value key, ValueRange) -> SmallVector<Value> {
               roles.bring(keys, of(o.key, key, kvHead, size));
               roles.bring(values, of(o.value, key, kvHead, size));
               return {};
             });
}

// state: maximum and sum of each query so far, the output times the sum but for
// the last tile of keys, and the weights of that one.
SmallVector<Value> PipelinedForward::keyTile(Value key, ValueRange state) {
  turn(tile::Turn::take);
  Value scores = startScores();
  Value output = startOutput(state[3], state[2]);
  turn(tile::Turn::pass);
  scores = roles.wait(scores, 1);
  roles.release(keys);
  Softmax now = softmax(scores, key, state[0], state[1]);
  output = roles.wait(output);
  roles.release(values);
  return {now.maximum, now.sum, scaleRows(e, output, now.rescale),
          e.toElement(now.weights, g.element)};
}

void PipelinedForward::consume(Value begin, Value end) {
  queryTile = query.tiles.load(e, roles.await(query));
  Value scores = roles.wait(startScores());
  roles.release(keys);
  Softmax before = beforeKeys();
  Softmax first = softmax(scores, begin, before.maximum, before.sum);
  auto last = e.forRange(
      e.add(begin, g.sizes.keys), end, g.sizes.keys,
      {first.maximum, first.sum, g.zeros(g.sizes.queries, g.sizes.dim),
       e.toElement(first.weights, g.element)},
      [&](Value key, ValueRange state) { return keyTile(key, state); });
  finish(last[0], last[1], roles.wait(startOutput(last[3], last[2])));
}

void PipelinedForward::emit() {
  query = roles.feed(1, g.sizes.queries);
  keys = roles.feed(kStages, g.sizes.keys);
  values = roles.feed(kStages, g.sizes.keys);
  locate();
  auto [begin, end] = g.visibleKeys(firstQuery);
  roles.emit([&, begin = begin, end = end] { produce(begin, end); },
             [&, begin = begin, end = end] { consume(begin, end); });
}

//===--- choices ----------------------------------------------------------===//

SmallVector<tile::AttentionPlanAttr>
gpu::pipelinedAttentionKernels(const AttentionShape &shape,
                               const ForwardOperands &operands, Type element,
                               const TileTarget &target) {
  if (!target.warpgroups || !element.isBF16() ||
      shape.tokens <= kRowsOfConsumer || !hasBoxes(operands.query.view) ||
      !hasBoxes(operands.key.view) || !hasBoxes(operands.value.view))
    return {};
  SmallVector<tile::AttentionPlanAttr> kernels;
  const PipelinedSizes *own = llvm::find_if(
      kSizes, [&](const auto &sizes) { return shape.headDim <= sizes.dim; });
  // Every warpgroup must have queries.
  int64_t most = llvm::divideCeil(shape.tokens, kRowsOfConsumer);
  for (const PipelinedSizes &sizes : kSizes)
    if (own != std::end(kSizes) && sizes.dim == own->dim &&
        sizes.consumers <= most)
      kernels.push_back(tile::AttentionPlanAttr::get(
          element.getContext(), tile::Engine::warp_specialized,
          kRowsOfConsumer * sizes.consumers, sizes.keys, /*split=*/0,
          sizes.pingPong));
  return kernels;
}

void gpu::emitPipelinedAttention(GpuAttention &g, tile::KernelOp kernel,
                                 const ForwardOperands &operands,
                                 unsigned inputs, bool pingPong) {
  PipelinedForward(g, kernel, operands, inputs, pingPong).emit();
}
