// The second launch of flash-decoding: attention whose keys were split among
// blocks.
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/gpu/GpuPaged.h"
#include "passes/kernels/gpu/GpuTiles.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace tessera;
using namespace tessera::gpu;

namespace {

/// One row of the output from those of all splits. A split without keys wrote a
/// sum of zero.
class PagedCombine {
public:
  PagedCombine(OpBuilder &b, tile::KernelOp kernel, const PagedShape &shape,
               const PagedTiles &tiles)
      : e{b, kernel.getLoc()}, b(b), kernel(kernel), shape(shape),
        tiles(tiles) {}

  void emit(const View &output) {
    auto buffers = kernel.getBuffers();
    SmallVector<Value> at = e.unravel(
        kernel.getBlockNumber(), {shape.rows(), shape.owners(), shape.batch});
    Value base = e.mul(e.add(e.mul(at[2], shape.owners()), at[1]),
                       tiles.splits * shape.rows());
    base = e.add(base, at[0]);
    Value zero = e.index(0), splits = e.index(tiles.splits);
    Value factor = number(shape.scale * M_LOG2E);
    Value maximum = e.forRange(
        zero, splits, 1, number(kLeastMaximum),
        [&](Value split, ValueRange state) -> SmallVector<Value> {
          Value here = load(buffers[0], placeOf(base, split));
          return {b.create<arith::MaximumFOp>(e.loc, state[0], here)};
        })[0];
    auto sums = e.forRange(
        zero, splits, 1, {number(0), e.splat(0, {shape.headDim})},
        [&](Value split, ValueRange state) -> SmallVector<Value> {
          Value place = placeOf(base, split);
          Value distance =
              b.create<arith::SubFOp>(e.loc, load(buffers[0], place), maximum);
          Value weight = b.create<math::Exp2Op>(
              e.loc, b.create<arith::MulFOp>(e.loc, distance, factor));
          Value sum = b.create<math::FmaOp>(e.loc, weight,
                                            load(buffers[1], place), state[0]);
          auto type = VectorType::get({shape.headDim}, b.getF32Type());
          Value row = b.create<tile::LoadOp>(
              e.loc, type, buffers[2], ValueRange(e.mul(place, shape.headDim)),
              ValueRange(), ArrayRef<int64_t>{0});
          Value spread = b.create<tile::BroadcastOp>(e.loc, type, weight,
                                                     ArrayRef<int64_t>());
          return {sum, b.create<math::FmaOp>(e.loc, spread, row, state[1])};
        });
    Value sum = b.create<arith::MaximumFOp>(
        e.loc, sums[0], number(std::numeric_limits<float>::min()));
    Value inverse = b.create<arith::DivFOp>(e.loc, number(1), sum);
    auto type = cast<VectorType>(sums[1].getType());
    Value spread =
        b.create<tile::BroadcastOp>(e.loc, type, inverse, ArrayRef<int64_t>());
    Value row = b.create<arith::MulFOp>(e.loc, sums[1], spread);
    Value memory = emitView(b, e.loc, buffers[3], output);
    Type element = cast<MemRefType>(memory.getType()).getElementType();
    Value head = e.add(e.mul(at[1], shape.group()), at[0]);
    b.create<tile::StoreOp>(e.loc, e.toElement(row, element), memory,
                            ValueRange{at[2], zero, head, zero}, ValueRange(),
                            ArrayRef<int64_t>{3});
  }

private:
  Value number(double value) {
    return b.create<arith::ConstantOp>(
        e.loc, b.getF32FloatAttr(static_cast<float>(value)));
  }
  Value load(Value buffer, Value at) {
    return b.create<memref::LoadOp>(e.loc, buffer, at);
  }
  Value placeOf(Value base, Value split) {
    return e.add(base, e.mul(split, shape.rows()));
  }

  TileBuilder e;
  OpBuilder &b;
  tile::KernelOp kernel;
  const PagedShape &shape;
  const PagedTiles &tiles;
};

} // namespace

llvm::Expected<SmallVector<Value>>
gpu::launchPagedCombine(graph::ClusterOp cluster, const View &output,
                        const PagedShape &shape, const PagedTiles &tiles,
                        ValueRange partials, TilingContext &context) {
  LaunchSpec spec;
  spec.name = (cluster.getName() + "_combine").str();
  spec.skeleton = tile::Skeleton::paged_attention;
  spec.summary = summarize(cluster) + ", of partial results";
  for (Value partial : partials) {
    spec.buffers.push_back(bufferType(partial.getType()));
    spec.access.push_back(tile::Access::read);
  }
  spec.buffers.push_back(bufferType(cluster.getResult(0).getType()));
  spec.access.push_back(tile::Access::write);
  spec.blocks = shape.batch * shape.heads;
  spec.key = bodyKey(cluster) + "combine" + std::to_string(tiles.splits);
  spec.build = [=](tile::KernelOp kernel, const TileTarget &,
                   OpBuilder &b) -> llvm::Error {
    PagedCombine(b, kernel, shape, tiles).emit(output);
    return llvm::Error::success();
  };
  return context.launch(cluster, spec, partials, cluster.getResultTypes());
}
