#include "passes/kernels/gpu/GpuRoles.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::gpu;

bool gpu::hasBoxes(const View &view) {
  bool fits = view.offset % kBoxAlignment == 0 && view.strides.back() == 1;
  for (auto [stride, size] : llvm::zip_equal(ArrayRef(view.strides).drop_back(),
                                             ArrayRef(view.shape).drop_back()))
    fits &= size == 1 || (stride > 0 && stride % kBoxAlignment == 0);
  return fits;
}

GpuRoles::GpuRoles(GpuAttention &g, tile::KernelOp kernel, int64_t rows)
    : g(g), e(g.e), consumers(rows / kRowsOfConsumer) {
  kernel.setWarps(ArrayRef<int64_t>{4 * consumers, 1});
}

Fed GpuRoles::feed(int64_t stages, int64_t rows) const {
  Staged tiles = g.stageTiles(stages, rows);
  Value ring = e.b.create<tile::MakeRingOp>(
      e.loc, tile::RingType::get(e.b.getContext(), stages, consumers));
  return {tiles, ring};
}

// Registers of a thread of the producer and of consumers; an SM has 65536.
static ArrayRef<int64_t> registersFor(int64_t consumers) {
  static constexpr int64_t kOfTwo[] = {24, 240}, kOfThree[] = {32, 160};
  return consumers == 2 ? ArrayRef(kOfTwo) : ArrayRef(kOfThree);
}

void GpuRoles::emit(llvm::function_ref<void()> produce,
                    llvm::function_ref<void()> consume) const {
  OpBuilder &b = e.b;
  auto roles = b.create<tile::WarpSpecializeOp>(
      e.loc, b.getDenseI64ArrayAttr(registersFor(consumers)));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(&roles.getProducer().emplaceBlock());
  produce();
  b.setInsertionPointToStart(&roles.getConsumers().emplaceBlock());
  consume();
}

void GpuRoles::bring(const Fed &to, const Source &from) const {
  const Staged &tiles = to.tiles;
  int64_t bytes =
      tiles.rows * tiles.columns * g.element.getIntOrFloatBitWidth() / 8;
  Value stage =
      e.b.create<tile::AcquireOp>(e.loc, e.b.getIndexType(), to.ring, bytes);
  e.b.create<tile::BulkCopyOp>(e.loc, from.memory, from.indices, tiles.memory,
                               stage, to.ring,
                               ArrayRef<int64_t>{from.rowDim, from.columnDim});
}

Value GpuRoles::await(const Fed &fed) const {
  return e.b.create<tile::AwaitOp>(e.loc, e.b.getIndexType(), fed.ring);
}

void GpuRoles::release(const Fed &fed) const {
  e.b.create<tile::ReleaseOp>(e.loc, fed.ring, /*last=*/true);
}

Value GpuRoles::start(Value lhs, Value rhs, Value sum) const {
  return e.b.create<tile::MmaAsyncOp>(e.loc, sum.getType(), lhs, rhs, sum);
}

Value GpuRoles::wait(Value sum, int64_t pending) const {
  return e.b.create<tile::MmaWaitOp>(e.loc, sum.getType(), sum,
                                     pending ? e.b.getI64IntegerAttr(pending)
                                             : IntegerAttr());
}

void GpuRoles::turn(tile::Turn turn) const {
  e.b.create<tile::PingPongOp>(e.loc, turn);
}
