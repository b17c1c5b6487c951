// The printer prints the barriers that a kernel has, and refuses a kernel that
// lacks one.
#include "compiler/target/cuda/CudaPrinter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Parser/Parser.h"
#include <gtest/gtest.h>

using namespace tessera;

static llvm::Expected<cuda::PrintedKernels> print(const std::string &between) {
  static mlir::MLIRContext context;
  context.loadDialect<tile::TileDialect, mlir::arith::ArithDialect>();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(R"(
tile.kernel @kept(%block: index)
    attributes {skeleton = #tile<skeleton row>, summary = "", access = []} {
  %c0 = arith.constant 0 : index
  %x = arith.constant dense<1.0> : vector<64xf32>
  %m = tile.alloc : memref<64xf32, #tile.shared>
  tile.store %x, %m[%c0] along [0] : vector<64xf32>, memref<64xf32, #tile.shared>
  )" + between + R"(
  %y = tile.load %m[%c0] along [0] : memref<64xf32, #tile.shared>, vector<64xf32>
  tile.store %y, %m[%c0] along [0] : vector<64xf32>, memref<64xf32, #tile.shared>
  tile.return
}
)",
                                                        &context);
  return cuda::printKernels(*module, *lookupTileTarget("cuda:sm_80"));
}

TEST(Barriers, ThoseOfTheKernelArePrinted) {
  auto printed = print("tile.barrier");
  ASSERT_TRUE(bool(printed)) << llvm::toString(printed.takeError());
  llvm::StringRef text = printed->kernels.front().text;
  EXPECT_EQ(text.count("sync();"), 1u) << text.str();
}

TEST(Barriers, AMissingOneIsRefused) {
  auto printed = print("");
  ASSERT_FALSE(bool(printed));
  EXPECT_EQ(llvm::toString(printed.takeError()),
            "kernel @kept lacks a barrier");
}
