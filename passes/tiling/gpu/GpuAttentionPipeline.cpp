// Attention forward on a GPU whose copy engine knows tensors and whose tensor
// cores work while threads go on (sm_90a), after Shah et al. 2024,
// FlashAttention-3. One thread, the producer, has the queries brought, then
// keys and values in turn; each of two or three warpgroups, the consumers, has
// 64 queries. A warpgroup starts the next tile's scores, then the product of
// this tile's weights with the values, and computes the softmax of the former
// while the latter goes on. Warpgroups take turns at starting products, so that
// one multiplies while another computes exponentials. Tokens that are not there
// come as zeros and are masked.
#include "passes/tiling/gpu/GpuAttentionForward.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::gpu;

namespace {

// Rows of a warpgroup's tile.
constexpr int64_t kRowsOfConsumer = 64;
// Tiles of keys, and of values, in shared memory.
constexpr int64_t kStages = 2;
// Elements, 16 bytes: what strides of tensor maps are multiples of.
constexpr int64_t kAlignment = 8;
// Heads up to this have warpgroups take turns. The products of larger ones take
// most of the time, and waiting for a turn would be lost.
constexpr int64_t kMostWithTurns = 128;

/// Heads of at most `dim` dimensions, and the tiles that use the registers of
/// a thread: scores take keys / 2, weights keys / 4, the output dim / 2.
struct PipelinedSizes {
  int64_t dim, consumers, keys;
};
constexpr PipelinedSizes kSizes[] = {
    {64, 3, 128}, {128, 2, 128}, {192, 2, 96}, {256, 2, 64}};

/// Registers of a thread of the producer and of consumers: all of a
/// multiprocessor's are 65536.
ArrayRef<int64_t> registersFor(int64_t consumers) {
  static constexpr int64_t kOfTwo[] = {24, 240}, kOfThree[] = {32, 160};
  return consumers == 2 ? ArrayRef(kOfTwo) : ArrayRef(kOfThree);
}

class PipelinedForward : GpuForward {
public:
  using GpuForward::GpuForward;
  void emit();

private:
  Value makeRing(int64_t stages);
  void bring(Value ring, const Staged &to, const Source &from);
  void produce(Value begin, Value end);
  void consume(Value begin, Value end);
  SmallVector<Value> keyTile(Value key, ValueRange state);

  Value await(Value ring) {
    return e.b.create<tile::AwaitOp>(e.loc, e.b.getIndexType(), ring);
  }
  void release(Value ring) {
    e.b.create<tile::ReleaseOp>(e.loc, ring, /*last=*/true);
  }
  void turn(tile::Turn turn) {
    if (g.shape.headDim <= kMostWithTurns)
      e.b.create<tile::TurnOp>(e.loc, turn);
  }
  Value start(Value lhs, Value rhs, Value sum) {
    return e.b.create<tile::MmaAsyncOp>(e.loc, sum.getType(), lhs, rhs, sum);
  }
  Value wait(Value sum, int64_t pending) {
    return e.b.create<tile::MmaWaitOp>(e.loc, sum.getType(), sum, pending);
  }
  /// The scores of the next tile of keys.
  Value startScores() {
    return start(queryTile, keys.loadTransposed(e, await(keyRing)),
                 g.zeros(g.sizes.queries, g.sizes.keys));
  }
  /// output + weights × the next tile of values.
  Value startOutput(Value weights, Value output) {
    return start(weights, values.load(e, await(valueRing)), output);
  }

  int64_t consumers;
  Value queryRing, keyRing, valueRing, queryTile;
};

} // namespace

//===--- roles ------------------------------------------------------------===//

Value PipelinedForward::makeRing(int64_t stages) {
  return e.b.create<tile::MakeRingOp>(
      e.loc, tile::RingType::get(e.b.getContext(), stages, consumers));
}

void PipelinedForward::bring(Value ring, const Staged &to, const Source &from) {
  int64_t bytes = to.rows * to.columns * g.element.getIntOrFloatBitWidth() / 8;
  Value stage =
      e.b.create<tile::AcquireOp>(e.loc, e.b.getIndexType(), ring, bytes);
  e.b.create<tile::BulkCopyOp>(e.loc, from.memory, from.indices, to.memory,
                               stage, ring,
                               ArrayRef<int64_t>{from.rowDim, from.columnDim});
}

void PipelinedForward::produce(Value begin, Value end) {
  bring(queryRing, query, of(o.query, firstQuery, head, g.sizes.queries));
  e.forRange(begin, end, g.sizes.keys, {},
             [&](Value key, ValueRange) -> SmallVector<Value> {
               bring(keyRing, keys, of(o.key, key, kvHead, g.sizes.keys));
               bring(valueRing, values, of(o.value, key, kvHead, g.sizes.keys));
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
  scores = wait(scores, 1);
  release(keyRing);
  Softmax now = softmax(scores, key, state[0], state[1]);
  output = wait(output, 0);
  release(valueRing);
  return {now.maximum, now.sum, scale(output, now.rescale),
          e.toElement(now.weights, g.element)};
}

void PipelinedForward::consume(Value begin, Value end) {
  queryTile = query.load(e, await(queryRing));
  Value scores = wait(startScores(), 0);
  release(keyRing);
  Softmax first = softmax(scores, begin, Value(), Value());
  auto last = e.forRange(
      e.add(begin, g.sizes.keys), end, g.sizes.keys,
      {first.maximum, first.sum, g.zeros(g.sizes.queries, g.sizes.dim),
       e.toElement(first.weights, g.element)},
      [&](Value key, ValueRange state) { return keyTile(key, state); });
  Value output = wait(startOutput(last[3], last[2]), 0);
  finish(last[0], last[1], output);
}

void PipelinedForward::emit() {
  OpBuilder &b = e.b;
  consumers = g.sizes.queries / kRowsOfConsumer;
  kernel.setWarps(ArrayRef<int64_t>{4 * consumers, 1});
  query = g.stageTiles(1, g.sizes.queries);
  keys = g.stageTiles(kStages, g.sizes.keys);
  values = g.stageTiles(kStages, g.sizes.keys);
  queryRing = makeRing(1);
  keyRing = makeRing(kStages);
  valueRing = makeRing(kStages);
  locate();
  auto [begin, end] = g.visibleKeys(firstQuery);
  auto roles = b.create<tile::RolesOp>(
      e.loc, b.getDenseI64ArrayAttr(registersFor(consumers)));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(&roles.getProducer().emplaceBlock());
  produce(begin, end);
  b.setInsertionPointToStart(&roles.getConsumers().emplaceBlock());
  consume(begin, end);
}

//===--- choices ----------------------------------------------------------===//

// Whether a tensor map can describe the operand: head dimensions contiguous,
// other strides whole 16 bytes.
static bool hasBoxes(const View &view) {
  bool fits = view.offset % kAlignment == 0 && view.strides.back() == 1;
  for (auto [stride, size] : llvm::zip_equal(ArrayRef(view.strides).drop_back(),
                                             ArrayRef(view.shape).drop_back()))
    fits &= size == 1 || (stride > 0 && stride % kAlignment == 0);
  return fits;
}

std::optional<AttentionSizes>
gpu::choosePipelinedAttention(const AttentionShape &shape,
                              const ForwardOperands &operands, Type element,
                              const TileTarget &target) {
  if (!target.warpgroups || !element.isBF16() ||
      shape.tokens <= kRowsOfConsumer || !hasBoxes(operands.query.view) ||
      !hasBoxes(operands.key.view) || !hasBoxes(operands.value.view))
    return std::nullopt;
  for (const PipelinedSizes &sizes : kSizes)
    if (shape.headDim <= sizes.dim) {
      // No more warpgroups than have queries.
      int64_t consumers =
          shape.tokens <= 2 * kRowsOfConsumer ? 2 : sizes.consumers;
      return AttentionSizes{kRowsOfConsumer * consumers, sizes.keys,
                            paddedColumns(shape.headDim)};
    }
  return std::nullopt;
}

void gpu::emitPipelinedAttention(GpuAttention &g, tile::KernelOp kernel,
                                 const ForwardOperands &operands,
                                 unsigned inputs) {
  PipelinedForward(g, kernel, operands, inputs).emit();
}
