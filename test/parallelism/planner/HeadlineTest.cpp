// The plan that was worked out by hand: a mixture of 106 billion parameters on
// 256 A100s, PP8 VPP5 EP8 DP32 with ZeRO-1. Its figures are reached within 15
// %.
#include <gtest/gtest.h>

#include "parallelism/planner/Reliability.h"
#include "parallelism/planner/Search.h"

namespace tessera::planner {
namespace {

struct Scenario {
  int64_t gpus = 256;
  int64_t batch = 1024;
  double internode = 25e9;
  Overlap overlap = {};
};

ModelShape theModel() {
  return *loadModelShape(TESSERA_SOURCE_DIR "/models/specs/moe-106b-a14b");
}

Candidate evaluated(const Scenario &scenario) {
  Cluster cluster =
      *loadCluster(TESSERA_SOURCE_DIR "/hardware/clusters/a100-80g-32x8.yaml");
  cluster.gpu.clockSpread = 0; // by hand all GPUs are alike
  EXPECT_TRUE(resize(cluster, scenario.gpus).ok());
  EXPECT_TRUE(resolveInternode(cluster, {scenario.internode, {}}).ok());
  Workload workload;
  workload.globalBatch = scenario.batch;
  workload.overlap = scenario.overlap;
  ParallelPlan plan = *parsePlan(
      "pipe=8,interleave=5,expert=8,zero=1,recompute=attention", scenario.gpus);
  EXPECT_EQ(plan.data, scenario.gpus / 8);
  auto candidate = evaluate(theModel(), cluster, workload, plan);
  EXPECT_TRUE(candidate.ok()) << candidate.message();
  return candidate.take();
}

constexpr Overlap nothingHidden = {
    .tensor = false, .expert = false, .data = false};

void expectNear(double value, double byHand) {
  EXPECT_NEAR(value, byHand, 0.15 * byHand);
}

TEST(Headline, TheModel) {
  ModelShape model = theModel();
  expectNear(double(model.parameters()), 106e9);
  expectNear(double(model.activeParameters()), 14.2e9);
  expectNear(model.flopsPerToken(4096), 90e9);
  expectNear(model.flopsPerToken(4096) * 1e12, 9.0e22);
}

TEST(Headline, Memory) {
  Memory memory = evaluated({}).memory;
  expectNear(memory.state(), 21.6e9);
  expectNear(memory.activations, 32.3e9);
  EXPECT_LT(memory.total(), 80e9);
}

TEST(Headline, ALayer) {
  StepCost cost = evaluated({}).cost;
  expectNear(cost.layerWhole, 47e-3);
  expectNear(cost.expertWhole, 4.4e-3);
}

TEST(Headline, Bubble) {
  expectNear(evaluated({}).cost.bubbleShare(), 0.044);
  expectNear(evaluated({.gpus = 1024}).cost.bubbleShare(), 0.15);
  expectNear(evaluated({.gpus = 1024, .batch = 2048}).cost.bubbleShare(),
             0.087);
}

// By hand every byte of gradients (fp32) and weights (bf16) leaves through the
// rank's own network card. Where eight data ranks share a node, most stay
// inside.
TEST(Headline, DataParallelTraffic) {
  for (auto [internode, byHand] : {std::pair(25e9, 0.55), {6.25e9, 2.2}}) {
    Cluster flat;
    flat.links = {{"network", 0, internode, "", 0.92, 10e-6}};
    CollectiveCost collectives(flat);
    RankParameters own = rankParameters(
        theModel(), *parsePlan("pipe=8,interleave=5,expert=8", 256), 5, true,
        false);
    double seconds = 0;
    for (auto [kind, bytes] : {std::pair(Collective::ReduceScatter, 4.0),
                               {Collective::AllGather, 2.0}})
      seconds += collectives.seconds(kind, bytes * own.dense, {32, 1}) +
                 collectives.seconds(kind, bytes * own.experts, {4, 8});
    expectNear(seconds, byHand);
    double inside = evaluated({.internode = internode}).cost.dataWhole;
    EXPECT_LT(inside, seconds);
    EXPECT_GT(inside, seconds / 2);
  }
}

TEST(Headline, Utilization) {
  expectNear(evaluated({}).cost.utilization, 0.55);
  expectNear(evaluated({.overlap = nothingHidden}).cost.utilization, 0.47);
  expectNear(evaluated({.internode = 6.25e9, .overlap = nothingHidden})
                 .cost.utilization,
             0.40);
}

// Young's interval for two seconds of blocking; 419 failures in 54 days on
// 16,384 GPUs.
TEST(Headline, Checkpoints) {
  double mtbf = 54 * 86400.0 * 16384 / 419;
  CheckpointPolicy at256 = checkpointPolicy(256, mtbf, 2, 600);
  CheckpointPolicy at1024 = checkpointPolicy(1024, mtbf, 2, 600);
  EXPECT_NEAR(at256.meanTimeBetweenFailures / 86400, 8.2, 0.1);
  EXPECT_NEAR(at1024.meanTimeBetweenFailures / 86400, 2.1, 0.05);
  EXPECT_NEAR(at256.young / 60, 28, 0.5);
  EXPECT_NEAR(at1024.young / 60, 14, 0.5);
}

} // namespace
} // namespace tessera::planner
