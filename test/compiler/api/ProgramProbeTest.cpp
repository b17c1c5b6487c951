// What is said of a plan's memory from a part of its program.
#include "compiler/Driver.h"

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

} // namespace
} // namespace tessera
