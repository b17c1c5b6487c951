// Plans as files, and what of them the compiler builds.
#include "parallelism/planner/PlanFile.h"
#include "parallelism/planner/Search.h"
#include "test/parallelism/planner/Fixture.h"

#include <gtest/gtest.h>

namespace tessera::planner::test {
namespace {

ParallelPlan planOf(const char *text, int64_t gpus = 256) {
  auto plan = parsePlan(text, gpus);
  EXPECT_TRUE(plan.ok()) << plan.message();
  return plan.take();
}

PlanFile anyFile() {
  PlanFile file;
  file.model = "it's: a #name\n";
  file.parameters = 106'000'000'000;
  file.cluster = {
      "it's",
      {.flops = 265200000000000, .bytes = 2039000000000},
      2000 * 1e-9,
      {{{300000000000, 3000 * 1e-9}, 8}, {{25000000000, 8000 * 1e-9}, 0}}};
  file.target = "cuda:sm_80";
  file.plan = meshPlanOf(
      {}, planOf("pipe=2,interleave=7,context=2,expert=16,recompute=full"));
  file.predicted = {4.2e-5, int64_t(1) << 45, 123};
  return file;
}

TEST(PlanFile, ReadsWhatItPrints) {
  PlanFile file = anyFile();
  auto again = parsePlanFile(printPlanFile(file), "plan.yaml");
  ASSERT_TRUE(again.ok()) << again.message();
  file.model = again->model; // in one line
  EXPECT_EQ(*again, file);
  file.predicted = {};
  EXPECT_EQ(*parsePlanFile(printPlanFile(file), "plan.yaml"), file);
}

TEST(PlanFile, IsAMeshAndKeysOfARecipe) {
  const MeshPlan plan = anyFile().plan;
  EXPECT_EQ(meshText(plan), "pipe=2,data=4,expert=16,context=2,schedule="
                            "interleaved,chunks=7,zero=1");
  EXPECT_EQ(plan.devices(), 256);
  EXPECT_EQ(recipeKeys(plan),
            (std::vector<std::string>{"batch.micro=64", "batch.accumulate=16",
                                      "batch.sequence=4096", "recompute=full",
                                      "precision.compute=bf16"}));
  EXPECT_EQ(meshText(MeshPlan()), "");
}

// Experts span tensor ranks first, then data ranks.
TEST(PlanFile, FoldsExpertsOverTensorRanks) {
  PlanFile file = anyFile();
  file.plan = meshPlanOf({}, planOf("tensor=4,expert=16"));
  EXPECT_EQ(meshText(file.plan),
            "data=16,expert=4,tensor=4,expert_tensor=1,zero=1");
  file.model = "a name";
  EXPECT_EQ(*parsePlanFile(printPlanFile(file), "plan.yaml"), file);
  const MeshPlan sharded =
      meshPlanOf({}, planOf("tensor=4,expert=16,expert-tensor=4"));
  EXPECT_EQ(meshText(sharded), "data=4,expert=16,tensor=4,zero=1");
}

TEST(PlanFile, Replicas) {
  PlanFile file = anyFile();
  file.plan = meshPlanOf({}, planOf("replicate=8,expert=4,tensor=2,"
                                    "expert-tensor=2,zero=3"));
  EXPECT_EQ(meshText(file.plan), "replicate=8,data=4,expert=4,tensor=2,zero=3");
  EXPECT_EQ(file.plan.devices(), 256);
  EXPECT_EQ(file.plan.micro, 128);
  const auto again = parsePlanFile(printPlanFile(file), "plan.yaml");
  ASSERT_TRUE(again.ok()) << again.message();
  EXPECT_EQ(again->plan, file.plan);
}

TEST(PlanFile, WhatIsNone) {
  struct Edit {
    const char *from, *to, *message;
  };
  const Edit edits[] = {
      {"zero: 1", "zero: 4", ":6: key 'zero': '4' is none of 0, 1, 2 or 3"},
      {"zero: 1\n", "", "key 'zero': is missing"},
      {"zero: 1", "zero: 1\nzero: 1", "key 'zero': is given twice"},
      {"zero: 1", "zeros: 1", "key 'zeros': is not a key here"},
      {"zero: 1", "zero: [1]", "key 'zero': must be one value"},
      {"recompute: full", "recompute: attention",
       "'attention' is none of none, selective or full"},
      {"precision: bf16", "precision: fp8", "is none of fp32, bf16 or fp64"},
      {"schedule: interleaved", "schedule: zb-v",
       "is none of 1f1b, interleaved or zb-h1"},
      {"schedule: interleaved", "schedule: 1f1b",
       "key 'schedule': 1f1b: 7 chunks per rank; expected 1"},
      {"zero: 1", "expert_tensor: 3\nzero: 1",
       "key 'expert_tensor': 3 is neither 1 nor tensor, 1"},
      {"micro: 64", "micro: -1", "key 'micro': "},
      {"micro: 64", "micro: 1e300", "key 'micro': "},
      {"accumulate: 16", "accumulate: 60000",
       "tokens a step, more than 2147483648"},
      {"data: 4", "data: 1048576", "key 'mesh': more than 1048576 devices"},
      {"pipe: 2", "pipe: 1", "a mesh without pipe has schedule 1f1b"},
      {"mesh: {", "mesh: {sequence: 2, ", "key 'mesh.sequence': is not a key"},
      {"target: 'cuda:sm_80'", "target: ''", "key 'target': "},
      {"target: 'cuda:sm_80'", "target: gpu",
       "key 'target': unknown target 'gpu'"},
      {"model:", "- model:", "is not valid YAML"}};
  for (const Edit &edit : edits) {
    std::string text = printPlanFile(anyFile());
    const size_t at = text.find(edit.from);
    ASSERT_NE(at, text.npos) << edit.from;
    text.replace(at, std::string(edit.from).size(), edit.to);
    auto plan = parsePlanFile(text, "plan.yaml");
    ASSERT_FALSE(plan.ok()) << edit.to;
    EXPECT_NE(plan.message().find(edit.message), std::string::npos)
        << plan.message();
    EXPECT_EQ(plan.message().find("plan.yaml"), 0U) << plan.message();
  }
  EXPECT_FALSE(parsePlanFile(std::string(1 << 15, ' '), "plan.yaml").ok());
  EXPECT_FALSE(parsePlanFile("", "plan.yaml").ok());
}

// A plan of other software is evaluated, but no mesh expresses it.
TEST(PlanFile, WhatTheCompilerRefuses) {
  const ModelShape experts = specOf("moe-106b-a14b");
  const std::pair<const char *, const char *> cases[] = {
      {"pipe=2,interleave=7,context=2,expert=16,recompute=none", ""},
      {"tensor=2,expert=8,expert-tensor=2,recompute=full", ""},
      {"pipe=2,zero=2", ""},
      {"expert=8,recompute=attention", "recompute = attention"},
      {"pipe=8,stages=even", "stages = even"},
      {"tensor=2,expert=8", ""},
      {"tensor=8,expert=4", "expert-tensor = 1"},
      {"tensor=4,expert-tensor=2,expert=8", "expert-tensor = 2"},
      {"data=4,context=32,tensor=2,expert=16", "expert = 16"},
      {"data=4,context=64,expert=8", "expert = 8"},
      {"data=16,context=16,expert=8,replicate=4,recompute=full", "expert = 8"},
      {"expert=8,replicate=4,recompute=full", ""},
      {"pipe=8,interleave=6,schedule=interleaved",
       "a pipeline of 48 stages requires at least as many blocks, the model "
       "has 40"},
      {"micro=1024,data=256", "batch.micro = 262144 is not between 1 and"}};
  for (auto [text, message] : cases) {
    Workload workload;
    workload.globalBatch = 1 << 18;
    const std::string reason = whyNotCompiled(experts, workload, planOf(text));
    EXPECT_EQ(reason.substr(0, std::string(message).size()), message)
        << text << ": " << reason;
  }
  Workload workload;
  workload.fp8 = true;
  EXPECT_NE(whyNotCompiled(experts, workload, planOf("")), "");
}

TEST(PlanFile, TheSearchLeavesThemOut) {
  for (const char *name : {"llama-3-8b", "moe-106b-a14b"}) {
    const ModelShape model = specOf(name);
    const Cluster cluster = plainCluster(32);
    const Workload workload;
    const SearchResult result =
        search(model, cluster, workload, 10, Scope::Compiled);
    EXPECT_GT(result.killed[size_t(Constraint::Compiler)].plans, 0);
    ASSERT_EQ(result.best.size(), 10U);
    for (const Candidate &each : result.best)
      EXPECT_EQ(whyNotCompiled(model, workload, each.plan), "");
    for (const auto &[degree, values] : result.choices)
      for (const auto &[value, choice] : values)
        if (choice.best)
          EXPECT_EQ(whyNotCompiled(model, workload, choice.best->plan), "");
  }
}

} // namespace
} // namespace tessera::planner::test
