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

// A thread has two columns of a row at once.
static const char kPairs[] = R"(
tile.kernel @pairs(%block: index, %even: memref<4096xf32> {tile.aligned}, %odd: memref<4032xf32> {tile.aligned})
    attributes {skeleton = #tile<skeleton contraction>, summary = "", warps = array<i64: 4, 1>,
                access = [#tile<access read_write>, #tile<access read_write>]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c20 = arith.constant 20 : index
  %c32 = arith.constant 32 : index
  %x = memref.reinterpret_cast %even to offset: [0], sizes: [64, 64], strides: [64, 1]
    : memref<4096xf32> to memref<64x64xf32, strided<[64, 1]>>
  %y = memref.reinterpret_cast %odd to offset: [0], sizes: [64, 63], strides: [63, 1]
    : memref<4032xf32> to memref<64x63xf32, strided<[63, 1]>>
  %a = tile.load %x[%c0, %c32] along [0, 1] : memref<64x64xf32, strided<[64, 1]>>, vector<64x32xf32>
  %b = tile.load %x[%c0, %c1] along [0, 1] : memref<64x64xf32, strided<[64, 1]>>, vector<64x32xf32>
  %c = tile.load %x[%c0, %c0] along [0, 1] bound %c20, %c20 : memref<64x64xf32, strided<[64, 1]>>, vector<64x32xf32>
  %d = tile.load %y[%c0, %c0] along [0, 1] : memref<64x63xf32, strided<[63, 1]>>, vector<64x32xf32>
  tile.store %a, %x[%c0, %c0] along [0, 1] : vector<64x32xf32>, memref<64x64xf32, strided<[64, 1]>>
  tile.store %b, %y[%c0, %c0] along [0, 1] : vector<64x32xf32>, memref<64x63xf32, strided<[63, 1]>>
  tile.store %c, %x[%c0, %c0] along [1, 0] : vector<64x32xf32>, memref<64x64xf32, strided<[64, 1]>>
  tile.store %d, %x[%c0, %c0] along [0, 1] : vector<64x32xf32>, memref<64x64xf32, strided<[64, 1]>>
  tile.return
}
)";

// Not from an odd column, with bounds, with rows of an odd length, or along
// columns.
TEST(AlignedBuffers, PairsOfWholeTilesOfWarps) {
  mlir::MLIRContext context;
  context.loadDialect<tile::TileDialect, mlir::arith::ArithDialect,
                      mlir::memref::MemRefDialect>();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(kPairs, &context);
  ASSERT_TRUE(bool(module));
  auto printed = cuda::printKernels(*module, *lookupTileTarget("cuda:sm_90a"));
  ASSERT_TRUE(bool(printed)) << llvm::toString(printed.takeError());
  llvm::StringRef text = printed->kernels.front().text;
  EXPECT_EQ(text.count("loadAligned<"), 1u) << text.str();
  EXPECT_EQ(text.count("= load<"), 3u) << text.str();
  EXPECT_EQ(text.count("storeAligned("), 2u) << text.str();
  EXPECT_EQ(text.count(" store("), 2u) << text.str();
  EXPECT_TRUE(text.contains("loadAligned<Tile64x32>(b0 + 32, 64)"))
      << text.str();
}
