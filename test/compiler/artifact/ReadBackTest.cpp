// What the writer makes of a plan, the runtime's reader accepts and finds
// again.
#include "compiler/artifact/ArtifactWriter.h"
#include "dialects/plan/PlanOps.h"
#include "dialects/tile/TileOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "test/runtime/artifact/TestArtifact.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace tessera;

namespace {

std::string kernelText(const std::string &name, int64_t blocks,
                       const std::string &more = "") {
  return "tile.kernel @" + name +
         "(%block: index, %x: memref<4xf32>) attributes {access = [#tile<access"
         " read_write>], dynamic_sizes = 0 : i64, skeleton = #tile<skeleton"
         " attention>, summary = \"\", tile.blocks = " +
         std::to_string(blocks) + " : i64" + more + "} {\n  tile.return\n}\n";
}

/// The artifact of one launch of a kernel of `blocks` blocks, which has a
/// variant of `otherBlocks`.
llvm::Expected<std::string> writeVariant(int64_t blocks, int64_t otherBlocks) {
  MLIRContext context;
  context.loadDialect<tile::TileDialect, plan::PlanDialect>();
  std::string text =
      "module @kernels attributes {tile.target = \"cuda:sm_90a\"} {\n" +
      kernelText("k", blocks, ", tile.variants = [@k_64]") +
      kernelText("k_64", otherBlocks) +
      "}\n"
      "plan.program @main arena 64 io 0 {\n"
      "  %x = plan.buffer arena at 0 lives [0, 0] : memref<4xf32>\n"
      "  plan.launch @k(%x) blocks [" +
      std::to_string(blocks) + "] sizes [] : memref<4xf32>\n}\n";
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(text, ParserConfig(&context));
  if (!module)
    return llvm::createStringError("cannot parse\n" + text);
  DevicePart part{"cuda:sm_90a", *module, {}, {}};
  for (const char *name : {"k", "k_64"})
    part.gpu[name].threads = 128;
  part.code.push_back({"cuda:sm_90a", {}, "not a cubin", {}, {"k", "k_64"}});
  return writeArtifact(part, {"0.0-test",
                              "0123456789abcdef",
                              "{}",
                              "seed: 1\n",
                              "tessera compile",
                              {}});
}

} // namespace

TEST(ReadBack, VariantsOfAnyNumberOfBlocks) {
  constexpr int64_t kBlocks = 1 << 20, kMost = (int64_t(1) << 31) - 1;
  for (int64_t blocks : {int64_t(1), 2 * kBlocks, kMost}) {
    llvm::Expected<std::string> written = writeVariant(kBlocks, blocks);
    ASSERT_TRUE(bool(written)) << llvm::toString(written.takeError());
    const test::AlignedBytes bytes(*written);
    auto reader = ArtifactReader::fromBytes(bytes.span(), "written");
    ASSERT_TRUE(reader.ok()) << reader.message();
    const auto &kernels = *reader->share().devices()->Get(0)->kernels();
    ASSERT_EQ(kernels.size(), 2u);
    const auto &variants = *kernels.Get(0)->variants();
    ASSERT_EQ(variants.size(), 1u);
    EXPECT_EQ(variants.Get(0)->kernel(), 1u);
    EXPECT_EQ(variants.Get(0)->blocks(), uint64_t(blocks));
  }
}
