// Which buffers a printed kernel wants to begin at multiples of 16 bytes.
#include "compiler/target/cuda/CudaPrinter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Parser/Parser.h"
#include <gtest/gtest.h>

using namespace tessera;

// Boxes of the second buffer and of the third come by the copy engine.
static const char kBoxes[] = R"(
tile.kernel @boxes(%block: index, %y: memref<64x64xf32>, %x: memref<64x64xbf16>, %w: memref<64x64xbf16>)
    attributes {skeleton = #tile<skeleton contraction>, summary = "", warps = array<i64: 4, 1>,
                access = [#tile<access write>, #tile<access read>, #tile<access read>]} {
  %c0 = arith.constant 0 : index
  %a = tile.alloc : memref<1x64x64xbf16, #tile.shared<swizzled>>
  %b = tile.alloc : memref<1x64x64xbf16, #tile.shared<swizzled>>
  %ring = tile.ring : <1 stages, 1 consumers>
  tile.warp_specialize producer {
    %stage = tile.acquire %ring bytes 16384 : <1 stages, 1 consumers>
    tile.bulk_copy %x[%c0, %c0] along [0, 1] to %a[%stage] on %ring
      : memref<64x64xbf16> to memref<1x64x64xbf16, #tile.shared<swizzled>>, <1 stages, 1 consumers>
    tile.bulk_copy %w[%c0, %c0] along [0, 1] to %b[%stage] on %ring
      : memref<64x64xbf16> to memref<1x64x64xbf16, #tile.shared<swizzled>>, <1 stages, 1 consumers>
  } consumers {
    %stage = tile.await %ring : <1 stages, 1 consumers>
    tile.release last %ring : <1 stages, 1 consumers>
  }
  tile.return
}
)";

TEST(AlignedBuffers, ThoseOfTensorMaps) {
  mlir::MLIRContext context;
  context.loadDialect<tile::TileDialect, mlir::arith::ArithDialect>();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(kBoxes, &context);
  ASSERT_TRUE(bool(module));
  auto printed = cuda::printKernels(*module, *lookupTileTarget("cuda:sm_90a"));
  ASSERT_TRUE(bool(printed)) << llvm::toString(printed.takeError());
  const cuda::KernelShape &shape = printed->kernels.front();
  ASSERT_EQ(shape.maps.size(), 2u);
  EXPECT_EQ(shape.maps[0].buffer, 1u);
  EXPECT_EQ(shape.maps[1].buffer, 2u);
  EXPECT_EQ(shape.aligned, (std::set<unsigned>{1, 2}));
}
