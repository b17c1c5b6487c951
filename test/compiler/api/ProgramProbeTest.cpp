// What is said of a plan's memory from a part of its program.
#include "compiler/api/ProgramProbe.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace tessera {
namespace {

std::vector<RankMemory> memoriesOf(CompileRequest request) {
  std::vector<RankMemory> memories;
  request.onlyPlan = true;
  request.cache = "off";
  request.accept = [&](llvm::ArrayRef<RankMemory> all) {
    memories = all.vec();
    return llvm::Error::success();
  };
  auto summary = compile(request);
  EXPECT_TRUE(bool(summary)) << llvm::toString(summary.takeError());
  return memories;
}

TEST(OnlyStep, NeedsTheMemoryOfTheWholeProgram) {
  for (const char *mesh : {"tensor=2", "data=2,tensor=2,zero=1",
                           "pipe=2,expert=2,tensor=2,expert_tensor=1,zero=1"}) {
    SCOPED_TRACE(mesh);
    CompileRequest request;
    request.spec = TESSERA_SPECS "/tiny-mixtral";
    request.set = {"batch.micro=8", "batch.accumulate=4", "batch.sequence=64",
                   "precision.compute=bf16"};
    request.mesh = mesh;
    request.targets = {"cuda:sm_80"};
    const std::vector<RankMemory> whole = memoriesOf(request);
    request.onlyStep = true;
    const std::vector<RankMemory> step = memoriesOf(request);
    ASSERT_EQ(step.size(), whole.size());
    for (size_t i = 0; i < step.size(); ++i) {
      EXPECT_EQ(whole[i].largest, "train_step");
      EXPECT_EQ(step[i].state, whole[i].state);
      EXPECT_EQ(step[i].arena, whole[i].arena);
    }
  }
}

/// Twelve chunks of two layers. With two microbatches the peak of a rank is
/// with the last gradients if it has a few layers, and with the first if it
/// has many.
planner::MeshPlan deepPlan(int64_t chunks) {
  planner::MeshPlan plan;
  plan.pipe = plan.expert = plan.tensor = 2;
  plan.expertTensor = plan.zero = 1;
  plan.schedule = planner::Schedule::Interleaved;
  plan.chunks = chunks;
  plan.micro = 8;
  plan.accumulate = 2;
  plan.sequence = 512;
  return plan;
}

planner::Cluster oneNode() {
  auto cluster = planner::loadCluster(TESSERA_CLUSTERS "/dgx-h100-1x8.yaml");
  EXPECT_TRUE(cluster.ok()) << cluster.message();
  return *cluster;
}

CompileRequest requestOf(const planner::Cluster &cluster) {
  CompileRequest request;
  request.spec = TESSERA_SPECS "/qwen3-30b-a3b";
  request.targets = {cluster.gpu.target};
  request.cluster = ratesOf(cluster);
  return request;
}

TEST(ProgramProbe, KnowsTheMemoryOfManyChunksFromThreeAndFour) {
  const planner::MeshPlan plan = deepPlan(12);
  const planner::Cluster cluster = oneNode();
  const auto probe = ProgramProbe::create(requestOf(cluster), plan, cluster);
  ASSERT_TRUE(probe.ok()) << probe.message();
  EXPECT_EQ(probe->extents(),
            (std::vector<ProgramExtent>{{12, 3, 2}, {16, 4, 2}}));
  const auto program = probe->run();
  ASSERT_TRUE(program.ok()) << program.message();
  EXPECT_FALSE(program->whole);

  CompileRequest request = requestOf(cluster);
  request.set = planner::recipeKeys(plan);
  request.mesh = planner::meshText(plan);
  request.onlyStep = true;
  int64_t most = 0;
  for (const RankMemory &memory : memoriesOf(request))
    most = std::max(most, memory.total());
  EXPECT_NEAR(static_cast<double>(program->fullest.total()),
              static_cast<double>(most), 0.005 * static_cast<double>(most));
}

// Programs of three and four chunks would have as many layers.
TEST(ProgramProbe, CompilesFewChunksThemselves) {
  const planner::Cluster cluster = oneNode();
  const auto probe =
      ProgramProbe::create(requestOf(cluster), deepPlan(6), cluster);
  ASSERT_TRUE(probe.ok()) << probe.message();
  EXPECT_EQ(probe->extents(), (std::vector<ProgramExtent>{{48, 6, 2}}));
}

} // namespace
} // namespace tessera
