// Which buffers a printed kernel wants to begin at multiples of 16 bytes.
#include "compiler/target/cuda/CudaPrinter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
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

// Rows of 512 by 128 threads: four elements, 8 bytes of bf16, at once.
static const char kRows[] = R"(
tile.kernel @rows(%block: index, %x: memref<2048xbf16> ATTRIBUTE, %y: memref<2000xbf16> ATTRIBUTE)
    attributes {skeleton = #tile<skeleton row>, summary = "",
                access = [#tile<access read_write>, #tile<access write>]} {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %in = memref.reinterpret_cast %x to offset: [0], sizes: [4, 512], strides: [512, 1]
    : memref<2048xbf16> to memref<4x512xbf16, strided<[512, 1]>>
  %out = memref.reinterpret_cast %y to offset: [0], sizes: [4, 500], strides: [500, 1]
    : memref<2000xbf16> to memref<4x500xbf16, strided<[500, 1]>>
  %a = tile.load %in[%block, %c0] along [1] : memref<4x512xbf16, strided<[512, 1]>>, vector<512xbf16>
  %b = tile.load %in[%block, %c2] along [1] : memref<4x512xbf16, strided<[512, 1]>>, vector<500xbf16>
  tile.store %b, %out[%block, %c0] along [1] : vector<500xbf16>, memref<4x500xbf16, strided<[500, 1]>>
  tile.store %a, %in[%block, %c0] along [1] : vector<512xbf16>, memref<4x512xbf16, strided<[512, 1]>>
  tile.return
}
)";

static cuda::KernelShape printRows(llvm::StringRef attribute) {
  std::string text = kRows;
  for (size_t at; (at = text.find("ATTRIBUTE")) != std::string::npos;)
    text.replace(at, strlen("ATTRIBUTE"), attribute);
  mlir::MLIRContext context;
  context.loadDialect<tile::TileDialect, mlir::arith::ArithDialect,
                      mlir::memref::MemRefDialect>();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  if (!module)
    return {};
  auto printed = cuda::printKernels(*module, *lookupTileTarget("cuda:sm_80"));
  if (printed)
    return printed->kernels.front();
  ADD_FAILURE() << llvm::toString(printed.takeError());
  return {};
}

// What cannot be proven keeps its test: the row two elements further on.
TEST(AlignedBuffers, ThoseThatThePlannerProved) {
  cuda::KernelShape marked = printRows("{tile.aligned}");
  llvm::StringRef text = marked.text;
  EXPECT_TRUE(text.contains("= loadAligned<Micropanel512>(b0 + block * 512)"))
      << marked.text;
  EXPECT_TRUE(text.contains("= load<Micropanel500>(")) << marked.text;
  EXPECT_TRUE(text.contains("storeAligned(b0Tile1, b1 + block * 500)"))
      << marked.text;
  EXPECT_EQ(marked.aligned, (std::set<unsigned>{0, 1}));
}

TEST(AlignedBuffers, OthersAreTested) {
  cuda::KernelShape plain = printRows("");
  llvm::StringRef text = plain.text;
  EXPECT_TRUE(text.contains("= load<Micropanel512>(")) << plain.text;
  EXPECT_FALSE(text.contains("Aligned")) << plain.text;
  EXPECT_TRUE(plain.aligned.empty());
}
