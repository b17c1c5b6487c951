#include "compiler/artifact/KernelTraffic.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace tessera;

namespace {

/// Traffic of a kernel with buffers %a and %b of those types.
int64_t trafficOf(const std::string &a, const std::string &b,
                  const std::string &accessOfB, const std::string &body) {
  MLIRContext context;
  context.loadDialect<tile::TileDialect, arith::ArithDialect,
                      memref::MemRefDialect, scf::SCFDialect,
                      vector::VectorDialect>();
  std::string text =
      "tile.kernel @k(%block: index, %a: " + a + ", %b: " + b +
      ") attributes {access = [#tile<access read>, #tile<access " + accessOfB +
      ">], dynamic_sizes = 0 : i64, skeleton = #tile<skeleton row>, summary = "
      "\"\"} {\n  %c0 = arith.constant 0 : index\n" +
      body + "  tile.return\n}\n";
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(text, ParserConfig(&context));
  EXPECT_TRUE(module) << text;
  if (!module)
    return -1;
  int64_t bytes = -1;
  module->walk([&](tile::KernelOp kernel) { bytes = countTraffic(kernel); });
  return bytes;
}

constexpr const char *kCopy =
    "%x = tile.load %a[%c0] along [0] : memref<64xf32>, vector<64xf32>\n"
    "tile.store %x, %b[%c0] along [0] : vector<64xf32>, memref<64xf32>\n";

} // namespace

TEST(KernelTraffic, EveryBufferOnce) {
  EXPECT_EQ(trafficOf("memref<64xf32>", "memref<64xf32>", "write", kCopy), 512);
}

TEST(KernelTraffic, ReadAndWrittenCountsTwice) {
  EXPECT_EQ(trafficOf("memref<64xf32>", "memref<64xf32>", "read_write", kCopy),
            768);
}

TEST(KernelTraffic, ViewsThatReachAPart) {
  // Four rows of 16 out of 1024 elements.
  EXPECT_EQ(
      trafficOf("memref<1024xbf16>", "memref<64xf32>", "write",
                "%v = memref.reinterpret_cast %a to offset: [0], sizes: [4, "
                "16], strides: [256, 1] : memref<1024xbf16> to "
                "memref<4x16xbf16, strided<[256, 1]>>\n"
                "%x = tile.load %v[%c0, %c0] along [1] : "
                "memref<4x16xbf16, strided<[256, 1]>>, vector<16xbf16>\n"
                "%y = arith.extf %x : vector<16xbf16> to vector<16xf32>\n"
                "tile.store %y, %b[%c0] along [0] : vector<16xf32>, "
                "memref<64xf32>\n"),
      4 * 16 * 2 + 64 * 4);
}

TEST(KernelTraffic, TablesThatAreGatheredFromDoNotCount) {
  EXPECT_EQ(trafficOf("memref<8xi32>", "memref<64xf32>", "read_write",
                      "%i = memref.load %a[%c0] : memref<8xi32>\n"
                      "%j = arith.index_cast %i : i32 to index\n"
                      "%x = tile.load %b[%j] along [0] : memref<64xf32>, "
                      "vector<4xf32>\n"
                      "tile.store %x, %b[%j] along [0] : vector<4xf32>, "
                      "memref<64xf32>\n"),
            8 * 4);
}
