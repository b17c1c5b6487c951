// What the arena buffers of a small training step hold.
#include "compiler/artifact/BufferUses.h"
#include "dialects/dist/DistOps.h"
#include "dialects/graph/GraphOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace tessera;
using artifact::BufferUse;

namespace {

std::string kernelText(const std::string &name,
                       const std::vector<std::string> &access) {
  std::string buffers, list;
  for (size_t i = 0; i < access.size(); ++i) {
    buffers += ", %b" + std::to_string(i) + ": memref<4xf32>";
    list += (i ? ", #tile<access " : "#tile<access ") + access[i] + ">";
  }
  return "tile.kernel @" + name + "(%block: index" + buffers +
         ") attributes {access = [" + list +
         "], dynamic_sizes = 0 : i64, skeleton = #tile<skeleton attention>, "
         "summary = \"\", tile.blocks = 1 : i64} {\n  tile.return\n}\n";
}

const char kProgram[] = R"(
dist.mesh @mesh [#dist.axis<"data" = 2>]
plan.program @train_step arena 4096 io 64 {
  %w = plan.buffer state at 0 "w" as parameter : memref<4xf32>
  %x = plan.buffer io at 0 "x" as input : memref<4xf32>
  %copy = plan.buffer arena at 0 lives [0, 3] : memref<4xf32>
  %whole = plan.buffer arena at 64 lives [1, 3] : memref<8xf32>
  %kept = plan.buffer arena at 128 lives [2, 4] : memref<4xf32>
  %passing = plan.buffer arena at 192 lives [2, 3] : memref<4xf32>
  %part = plan.buffer arena at 256 lives [4, 5] : memref<8xf32>
  %sum = plan.buffer arena at 320 lives [5, 7] : memref<4xf32>
  %sent = plan.buffer arena at 384 lives [6, 6] : memref<4xf32>
  %got = plan.buffer arena at 448 lives [6, 6] : memref<8xf32>
  plan.launch @convert(%w, %copy) blocks [1] sizes [] : memref<4xf32>, memref<4xf32>
  plan.collective all_gather %copy to %whole over ["data"] counts [4, 4] : memref<4xf32> to memref<8xf32>
  %half = plan.view %whole at 0 : memref<8xf32> to memref<4xf32>
  plan.launch @apply(%half, %x, %kept) blocks [1] sizes [] {graph.layer = #graph.layer<0>} : memref<4xf32>, memref<4xf32>, memref<4xf32>
  plan.launch @apply(%half, %kept, %passing) blocks [1] sizes [] {graph.layer = #graph.layer<0>} : memref<4xf32>, memref<4xf32>, memref<4xf32>
  %piece = plan.view %part at 0 : memref<8xf32> to memref<4xf32>
  plan.launch @convert(%kept, %piece) blocks [1] sizes [] {graph.layer = #graph.layer<0, backward>} : memref<4xf32>, memref<4xf32>
  plan.collective reduce_scatter %part to %sum by sum over ["data"] counts [4, 4] : memref<8xf32> to memref<4xf32>
  plan.collective all_gather %sent to %got over ["data"] counts [4, 4] : memref<4xf32> to memref<8xf32>
  plan.launch @update(%sum, %w) blocks [1] sizes [] : memref<4xf32>, memref<4xf32>
}
)";

} // namespace

TEST(BufferUses, OfATrainingStep) {
  MLIRContext context;
  context.loadDialect<tile::TileDialect, plan::PlanDialect, graph::GraphDialect,
                      dist::DistDialect>();
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(
      kernelText("convert", {"read", "write"}) +
          kernelText("apply", {"read", "read", "write"}) +
          kernelText("update", {"read", "read_write"}) + kProgram,
      ParserConfig(&context));
  ASSERT_TRUE(module);
  auto program = *module->getOps<plan::ProgramOp>().begin();
  const BufferUses uses = bufferUses(program, [&](StringRef name) {
    return module->lookupSymbol<tile::KernelOp>(name);
  });
  std::vector<BufferUse> found;
  for (auto buffer : program.getOps<plan::BufferOp>())
    if (buffer.getSpace() == plan::Space::arena)
      found.push_back(uses.count(buffer) ? uses.lookup(buffer)
                                         : BufferUse::workspace);
  EXPECT_EQ(found, (std::vector<BufferUse>{
                       BufferUse::weights, BufferUse::gathered,
                       BufferUse::activations, BufferUse::workspace,
                       BufferUse::gradients, BufferUse::gradients,
                       BufferUse::communication, BufferUse::communication}));
}
