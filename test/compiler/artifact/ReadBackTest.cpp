// What the writer makes of a plan, the runtime's reader accepts and finds
// again.
#include "compiler/artifact/ArtifactWriter.h"
#include "dialects/dist/DistOps.h"
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

//===--- several ranks ----------------------------------------------------===//

namespace {

constexpr const char *kMesh = "dist.mesh @mesh [#dist.axis<\"data\" = 2>, "
                              "#dist.axis<\"tensor\" = 3>]\n";

/// One state tensor of 2 × 3·8 elements, whose second dimension's second factor
/// is cut, and programs that do things together. `columns`: of the share.
std::string rankText(int64_t columns) {
  std::string n = std::to_string(columns), twice = std::to_string(2 * columns);
  return std::string(
             "module attributes {dist.offsets = [#dist.factor<8:\"tensor\">]}"
             " {\n") +
         kMesh + "plan.state \"w\" : memref<2x3x" + n +
         "xf32> parameter at 0 of [2, 3, 8] cut <@mesh, [{}, {}, "
         "{\"tensor\"}]>\n"
         "plan.state \"q\" : memref<" +
         std::to_string(3 * columns) +
         "xf32> parameter at 192 of [24] cut <@mesh, [{3, 8:\"tensor\"}]>\n"
         "plan.program @main arena 192 io 0 {\n"
         "  %a = plan.buffer arena at 0 lives [0, 2] : memref<" +
         n +
         "xf32>\n"
         "  %b = plan.buffer arena at 128 lives [0, 2] : memref<8xf32>\n"
         "  %t = plan.collective all_gather %a to %b over [\"tensor\"] counts "
         "[3, 3, 2] : memref<" +
         n +
         "xf32> to memref<8xf32> -> !plan.ticket\n"
         "  plan.wait %t\n"
         "  plan.collective all_reduce %b to %b by max over [\"tensor\", "
         "\"data\"] : memref<8xf32> to memref<8xf32>\n"
         "}\n}\n";
}

OwningOpRef<ModuleOp> parseRanks(MLIRContext &context,
                                 const std::string &text) {
  context
      .loadDialect<tile::TileDialect, plan::PlanDialect, dist::DistDialect>();
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(text, ParserConfig(&context));
  EXPECT_TRUE(module) << text;
  return module;
}

} // namespace

TEST(ReadBack, SharesAndCollectives) {
  MLIRContext context;
  OwningOpRef<ModuleOp> most = parseRanks(context, rankText(3)),
                        last = parseRanks(context, rankText(2));
  const std::vector<SharePart> shares = {
      {{0, 1, 3, 4}, {{"cpu", *most, {}, {}}}},
      {{2, 5}, {{"cpu", *last, {}, {}}}}};
  llvm::Expected<std::string> written =
      writeArtifact(llvm::ArrayRef<SharePart>(shares), {});
  ASSERT_TRUE(bool(written)) << llvm::toString(written.takeError());
  const test::AlignedBytes bytes(*written);
  auto reader = ArtifactReader::fromBytes(bytes.span(), "written");
  ASSERT_TRUE(reader.ok()) << reader.message();
  const artifact::Artifact &root = reader->root();
  ASSERT_EQ(root.mesh()->size(), 2u);
  EXPECT_EQ(root.mesh()->Get(1)->name()->str(), "tensor");
  EXPECT_EQ(root.mesh()->Get(1)->size(), 3u);
  ASSERT_EQ(root.shares()->size(), 2u);
  const artifact::Share &share = *root.shares()->Get(1);
  EXPECT_EQ(share.ranks()->Get(1), 5u);
  EXPECT_EQ(share.offsets()->Get(0)->size(), 8u);
  EXPECT_EQ(share.offsets()->Get(0)->axes()->Get(0), 1u);
  const auto &w = *share.state()->Get(0)->cuts(),
             &q = *share.state()->Get(1)->cuts();
  ASSERT_EQ(w.size(), 3u);
  EXPECT_EQ(w.Get(0)->factors()->Get(0)->size(), 2u);
  EXPECT_EQ(w.Get(2)->factors()->Get(0)->axes()->Get(0), 1u);
  ASSERT_EQ(q.Get(0)->factors()->size(), 2u);
  EXPECT_EQ(q.Get(0)->factors()->Get(1)->size(), 8u);
  const auto &steps = *share.devices()->Get(0)->programs()->Get(0)->steps();
  ASSERT_EQ(steps.size(), 3u);
  const artifact::Collective &gather = *steps.Get(0)->step_as_Collective(),
                             &sum = *steps.Get(2)->step_as_Collective();
  EXPECT_EQ(gather.kind(), artifact::CollectiveKind::all_gather);
  EXPECT_EQ(gather.counts()->Get(2), 2u);
  EXPECT_NE(gather.ticket(), 0u);
  EXPECT_EQ(steps.Get(1)->step_as_Wait()->ticket(), gather.ticket());
  EXPECT_EQ(sum.kind(), artifact::CollectiveKind::all_reduce);
  EXPECT_EQ(sum.reduction(), artifact::Reduction::max);
  EXPECT_EQ(sum.ticket(), 0u);
  ASSERT_EQ(sum.axes()->size(), 2u);
  EXPECT_EQ(sum.axes()->Get(0), 1u);
}

TEST(ReadBack, SharesOfDifferentMeshes) {
  MLIRContext context;
  std::string other = rankText(3);
  other.replace(other.find("= 2>"), 4, "= 4>");
  OwningOpRef<ModuleOp> a = parseRanks(context, rankText(3)),
                        b = parseRanks(context, other);
  const std::vector<SharePart> shares = {{{0}, {{"cpu", *a, {}, {}}}},
                                         {{1}, {{"cpu", *b, {}, {}}}}};
  llvm::Expected<std::string> written =
      writeArtifact(llvm::ArrayRef<SharePart>(shares), {});
  ASSERT_FALSE(bool(written));
  EXPECT_EQ(llvm::toString(written.takeError()),
            "the modules of the ranks were compiled for different meshes");
}

// Ranks 2 and 5 are compiled apart, with `from` in their text become `to`.
static std::string errorWhere(const std::string &from, const std::string &to) {
  MLIRContext context;
  std::string other = rankText(2);
  other.replace(other.find(from), from.size(), to);
  OwningOpRef<ModuleOp> most = parseRanks(context, rankText(3)),
                        last = parseRanks(context, other);
  const std::vector<SharePart> shares = {
      {{0, 1, 3, 4}, {{"cpu", *most, {}, {}}}},
      {{2, 5}, {{"cpu", *last, {}, {}}}}};
  llvm::Expected<std::string> written =
      writeArtifact(llvm::ArrayRef<SharePart>(shares), {});
  return written ? "" : llvm::toString(written.takeError());
}

TEST(ReadBack, RanksThatDoNotDoTheSame) {
  const std::string advice = "; ranks must do the same in one order, compile "
                             "with --dump-ir and compare the dumps of schedule";
  EXPECT_EQ(errorWhere("by max", "by sum"),
            "main: collective 1 is all_reduce by max of f32 over [\"tensor\", "
            "\"data\"] for rank 0 and all_reduce by sum of f32 over "
            "[\"tensor\", \"data\"] for rank 2" +
                advice);
  EXPECT_EQ(errorWhere("[3, 3, 2]", "[3, 2, 3]"),
            "main: collective 0 is all_gather of f32 over [\"tensor\"], counts "
            "[3, 3, 2] for rank 0 and all_gather of f32 over [\"tensor\"], "
            "counts [3, 2, 3] for rank 2" +
                advice);
  EXPECT_EQ(errorWhere("  plan.wait %t\n",
                       "  plan.wait %t\n  plan.collective all_reduce %b to %b "
                       "by max over [\"data\"] : memref<8xf32> to "
                       "memref<8xf32>\n"),
            "main: collective 1 is all_reduce by max of f32 over [\"tensor\", "
            "\"data\"] for rank 0 and all_reduce by max of f32 over "
            "[\"data\"] for rank 2" +
                advice);
}
