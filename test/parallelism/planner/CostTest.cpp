// Closed forms worked out by hand, and what must hold of any cost.
#include "test/parallelism/planner/Fixture.h"

#include <cmath>
#include <functional>

#include <gtest/gtest.h>

namespace tessera::planner::test {
namespace {

// (n-1) alpha + (n-1)/n V/beta inside a node.
TEST(CollectiveCost, RingInANode) {
  CollectiveCost cost(plainCluster(4));
  double bytes = 1e9, expected = 7 * 4e-6 + 7.0 / 8 * bytes / 240e9;
  EXPECT_DOUBLE_EQ(cost.seconds(Collective::AllGather, bytes, {8, 1}),
                   expected);
  EXPECT_DOUBLE_EQ(cost.seconds(Collective::ReduceScatter, bytes, {8, 1}),
                   expected);
  EXPECT_DOUBLE_EQ(cost.seconds(Collective::AllReduce, bytes, {8, 1}),
                   2 * expected);
  EXPECT_DOUBLE_EQ(cost.seconds(Collective::AllToAll, bytes, {8, 1}),
                   4e-6 + 7.0 / 8 * bytes / 240e9);
}

// One rank a node: everything leaves through its own link.
TEST(CollectiveCost, RingBetweenNodes) {
  CollectiveCost cost(plainCluster(4));
  double bytes = 1e9;
  EXPECT_DOUBLE_EQ(cost.seconds(Collective::AllGather, bytes, {4, 8}),
                   3 * 10e-6 + 3.0 / 4 * bytes / 20e9);
}

// Eight ranks a node share the way out: rings at once, the slower tier decides.
TEST(CollectiveCost, RingsThroughNodes) {
  CollectiveCost cost(plainCluster(4));
  double bytes = 8e9;
  double between = 31.0 / 32 * bytes / 8 / 20e9;
  double seconds = cost.seconds(Collective::AllGather, bytes, {32, 1});
  EXPECT_DOUBLE_EQ(seconds, between + 28 * 4e-6 + 3 * 10e-6);
  EXPECT_EQ(cost.members({32, 1}), (std::vector<int64_t>{8, 32}));
  EXPECT_EQ(cost.members({4, 4}), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(cost.members({4, 16}), (std::vector<int64_t>{1, 4}));
}

// In between a ring in each tier has fewer messages than one around all: (g-1)
// and (N-1) of them, and what leaves a node is an eighth.
TEST(CollectiveCost, TiersOneAfterAnother) {
  CollectiveCost cost(plainCluster(8));
  double bytes = 8e6;
  EXPECT_DOUBLE_EQ(cost.seconds(Collective::AllGather, bytes, {64, 1}),
                   7 * 4e-6 + 7.0 / 8 * bytes / 240e9 + 7 * 10e-6 +
                       7.0 / 8 * bytes / 8 / 20e9);
}

// Few bytes over many ranks: log2(n) messages instead of n-1.
TEST(CollectiveCost, SmallMessagesTakeATree) {
  CollectiveCost cost(plainCluster(32));
  double seconds = cost.seconds(Collective::AllGather, 64, {256, 1});
  EXPECT_NEAR(seconds, 3 * 4e-6 + 5 * 10e-6, 1e-6);
}

TEST(CollectiveCost, GroupsOfOneAreFree) {
  CollectiveCost cost(plainCluster(4));
  for (Collective kind :
       {Collective::AllGather, Collective::AllReduce, Collective::AllToAll})
    EXPECT_EQ(cost.seconds(kind, 1e9, {1, 8}), 0);
  EXPECT_EQ(cost.dispatch(4096, 8, 10240, {1, 1}), 0);
}

// A token with many copies crosses to a node once.
TEST(CollectiveCost, DispatchSendsOncePerNode) {
  CollectiveCost cost(plainCluster(2));
  double every =
      cost.seconds(Collective::AllToAll, 4096 * 8 * 10240.0, {16, 1});
  double dispatch = cost.dispatch(4096, 8, 10240, {16, 1});
  EXPECT_LT(dispatch, every / 3);
  // Two nodes, half of all tokens' other node: 4096 * (1 - 2^-8) rows.
  double remote = 4096 * 2 * (1 - std::pow(0.5, 8)) / 2 * 10240.0;
  EXPECT_NEAR(dispatch, remote / 20e9 + 14e-6, 1e-9);
}

TEST(CollectiveCost, MoreNeverTakesLess) {
  CollectiveCost cost(plainCluster(32));
  for (Collective kind :
       {Collective::AllGather, Collective::AllReduce, Collective::AllToAll}) {
    double before = 0;
    for (double bytes = 1; bytes < 1e11; bytes *= 7) {
      double seconds = cost.seconds(kind, bytes, {64, 2});
      EXPECT_GT(seconds, before);
      before = seconds;
    }
    EXPECT_LE(cost.seconds(kind, 1e9, {8, 1}),
              cost.seconds(kind, 1e9, {16, 1}));
  }
}

TEST(KernelCost, LargeProductsComeNearThePeak) {
  Gpu gpu = plainCluster(1).gpu;
  KernelCost cost(gpu);
  double best = 2 * std::pow(8192.0, 3) / (gpu.bf16 * gpu.sustainedClock);
  double seconds = cost.gemm(8192, 8192, 8192);
  EXPECT_GT(seconds, best);
  EXPECT_LT(seconds, 1.2 * best);
}

TEST(KernelCost, SmallProductsAreBoundByMemoryOrRounds) {
  Gpu gpu = plainCluster(1).gpu;
  KernelCost cost(gpu);
  double weights = 2 * 8192.0 * 8192;
  EXPECT_GT(cost.gemm(1, 8192, 8192), weights / gpu.memoryBandwidth);
  // One tile more than a round of all multiprocessors is a second round.
  int64_t full = 256 * gpu.multiprocessors;
  EXPECT_GT(cost.gemm(full + 1, 128, 4096), 1.2 * cost.gemm(full, 128, 4096));
}

TEST(KernelCost, AttentionTakesWhatItsProductsTake) {
  Gpu gpu = plainCluster(1).gpu;
  KernelCost cost(gpu);
  double rows = 4096 * 32, keys = 2048;
  double flops = 4 * rows * keys * 128;
  double forward = cost.attentionForward(rows, keys, 128, 128);
  EXPECT_GT(forward, flops / gpu.bf16);
  // FlashAttention-2 reaches 190 to 200 TFLOP/s on such a chip.
  EXPECT_NEAR(flops / forward, 195e12, 20e12);
  double backward = cost.attentionBackward(rows, keys, 128, 128);
  // And 165 to 195 in its backward pass, of five products for two.
  EXPECT_NEAR(2.5 * flops / backward, 180e12, 15e12);
}

// FlashAttention-2 reaches 35 % of an H100's peak, kernels for it 60 to 75 %
// (Shah et al., arXiv 2407.08608).
TEST(KernelCost, AttentionOfOlderChipsIsSlowOnNewOnes) {
  Gpu gpu = plainCluster(1).gpu;
  gpu.asynchronous = true;
  gpu.bf16 = 989.4e12;
  gpu.multiprocessors = 132;
  gpu.clock = 1830e6;
  gpu.sustainedClock = 0.8;
  KernelCost cost(gpu);
  double rows = 8192 * 16, keys = 4096, flops = 4 * rows * keys * 128;
  double usual = flops / cost.attentionForward(rows, keys, 128, 128);
  double older = flops / cost.attentionForward(rows, keys, 128, 128, false);
  EXPECT_NEAR(usual / gpu.bf16, 0.65, 0.08);
  EXPECT_NEAR(older / gpu.bf16, 0.35, 0.03);
}

TEST(KernelCost, Fp8TakesMorePower) {
  Gpu gpu = plainCluster(1).gpu;
  gpu.fp8 = 2 * gpu.bf16;
  double before = KernelCost(gpu).gemm(8192, 8192, 8192, 1, Operand::Fp8);
  double bf16 = KernelCost(gpu).gemm(8192, 8192, 8192);
  gpu.fp8Clock = 0.5;
  EXPECT_NEAR(KernelCost(gpu).gemm(8192, 8192, 8192, 1, Operand::Fp8),
              2 * before, 0.01 * before);
  EXPECT_EQ(KernelCost(gpu).gemm(8192, 8192, 8192), bf16);
}

// Means of the largest of n standard normal values are tabled: 1.03 of three,
// 1.42 of eight, 2.51 of a hundred, 3.24 of a thousand.
TEST(KernelCost, ManyGpusWaitForTheSlowest) {
  Gpu gpu = plainCluster(1).gpu;
  gpu.sustainedClock = 0.5;
  gpu.clockSpread = 0;
  EXPECT_EQ(slowestOf(gpu, 1000).sustainedClock, 0.5);
  gpu.clockSpread = 0.01;
  for (auto [count, deviations] : {std::pair<int64_t, double>{1, 0},
                                   {3, 0.8463},
                                   {8, 1.4236},
                                   {100, 2.5076},
                                   {1000, 3.2414}})
    EXPECT_NEAR(slowestOf(gpu, count).sustainedClock,
                0.5 * (1 - 0.01 * deviations), 1e-6);
}

// Eight chunks of a product have eight last rounds; weights' gradients are not
// cut.
TEST(LayerPricer, OverlappedProductsAreRoundsOfTheirOwn) {
  ModelShape model = classic(4, 12288, 96);
  Workload overlapped, plain;
  overlapped.sequence = plain.sequence = 2048;
  plain.overlap.tensor = false;
  auto layer = [&](const Workload &workload, int64_t tensor) {
    ParallelPlan plan;
    plan.tensor = tensor;
    return LayerPricer(model, plainCluster(1), workload).layer(plan, false);
  };
  EXPECT_GT(layer(overlapped, 8).forward, 1.05 * layer(plain, 8).forward);
  EXPECT_GT(layer(overlapped, 8).input, layer(plain, 8).input);
  EXPECT_EQ(layer(overlapped, 8).weight, layer(plain, 8).weight);
  EXPECT_EQ(layer(overlapped, 1).forward, layer(plain, 1).forward);
}

TEST(LayerPricer, RepeatedProductsAreAFractionOfTheForwardOnes) {
  ModelShape model = classic(4, 4096, 32);
  Workload workload;
  workload.sequence = 2048;
  LayerPricer usual(model, plainCluster(1), workload);
  workload.repeatedProducts = 0.5;
  LayerPricer repeating(model, plainCluster(1), workload);
  ParallelPlan plan;
  plan.recompute = Recompute::None;
  LayerCost layer = repeating.layer(plan, false);
  EXPECT_GT(layer.recompute, 0.3 * layer.forward);
  EXPECT_LT(layer.recompute, 0.5 * layer.forward);
  EXPECT_EQ(layer.forward, usual.layer(plan, false).forward);
  plan.recompute = Recompute::Full;
  EXPECT_EQ(repeating.layer(plan, false).recompute,
            usual.layer(plan, false).recompute);
}

// Two all-gathers and two reduce-scatters of all rows forward, the same and two
// gathers for the weights' gradients backward (arXiv 2205.05198, 4.2.2).
TEST(LayerPricer, CollectivesOfSequenceParallelism) {
  ModelShape model = classic(4, 4096, 32);
  Cluster cluster = plainCluster(1);
  Workload workload;
  workload.sequence = 2048;
  LayerPricer pricer(model, cluster, workload);
  ParallelPlan plan;
  plan.tensor = 8;
  plan.micro = 2;
  LayerCost layer = pricer.layer(plan, false);
  double gather = 7 * 4e-6 + 7.0 / 8 * (2 * 2 * 2048 * 4096) / 240e9;
  EXPECT_DOUBLE_EQ(layer.tensor.forward, 4 * gather);
  EXPECT_DOUBLE_EQ(layer.tensor.backward, 6 * gather);
  EXPECT_EQ(layer.expert.forward, 0);
  plan.recompute = Recompute::Full;
  LayerCost again = pricer.layer(plan, false);
  EXPECT_DOUBLE_EQ(again.tensor.backward, 10 * gather);
  EXPECT_DOUBLE_EQ(again.recompute, layer.forward);
}

// Each rank sends its tokens' copies out and back; balanced, as many come in.
TEST(LayerPricer, CollectivesOfExperts) {
  ModelShape model = specOf("moe-106b-a14b");
  Workload workload;
  workload.imbalance = 1;
  LayerPricer pricer(model, plainCluster(1), workload);
  ParallelPlan plan;
  plan.expert = 8;
  double once = 4e-6 + 7.0 / 8 * (4096 * 6 * 2.0 * 5120) / 240e9;
  LayerCost layer = pricer.layer(plan, true);
  EXPECT_DOUBLE_EQ(layer.expert.forward, 2 * once);
  EXPECT_DOUBLE_EQ(layer.expert.backward, 2 * once);
}

// sbh(34 + 5as/h) without flash attention, 34sbh/t with; 2sbh where all is
// computed again (arXiv 2205.05198, tables 2 and 3; theirs keeps 2 more for
// attention's own dropout, ours 4 a token and head for the log-sum-exp).
TEST(MemoryModel, ActivationsOfKorthikanti) {
  ModelShape model = classic(48, 6144, 64);
  Workload workload;
  workload.sequence = 2048;
  workload.dropout = true;
  workload.flashAttention = false;
  ParallelPlan plan;
  plan.micro = 4;
  double sbh = 2048.0 * 4 * 6144;
  double scores = 5.0 * 64 * 2048 / 6144;
  for (int64_t tensor : {1, 8}) {
    plan.tensor = tensor;
    double t = double(tensor);
    EXPECT_NEAR(layerActivations(model, workload, plan, false, Recompute::None),
                sbh * (34 + scores) / t, 1e-9 * sbh);
    EXPECT_DOUBLE_EQ(
        layerActivations(model, workload, plan, false, Recompute::Full),
        2 * sbh / t);
  }
  workload.flashAttention = true;
  double logSumExp = 4.0 * 2048 * 4 * 64 / 8;
  EXPECT_NEAR(layerActivations(model, workload, plan, false, Recompute::None),
              sbh * 34 / 8 + logSumExp, 1e-9 * sbh);
}

// 2 T d + 4 T f with T = s k imbalance, beside the layer's input.
TEST(MemoryModel, ActivationsOfExperts) {
  ModelShape model = specOf("moe-106b-a14b");
  Workload workload;
  ParallelPlan plan;
  plan.expert = 8;
  double rows = 4096 * 6 * 1.3, input = 2.0 * 4096 * 5120;
  double shared = 4.0 * 4096 * 2560, router = 4.0 * 4096 * 64;
  EXPECT_NEAR(
      layerActivations(model, workload, plan, true, Recompute::Attention),
      2 * rows * 5120 + 4 * rows * 2560 + input + shared + router, 1);
}

TEST(MemoryModel, RecomputationOnlySaves) {
  Workload workload;
  ParallelPlan plan;
  for (const char *name : {"llama-3-8b", "moe-106b-a14b", "deepseek-v3"}) {
    ModelShape model = specOf(name);
    double before = INFINITY;
    for (Recompute each : {Recompute::None, Recompute::Selective,
                           Recompute::Attention, Recompute::Full}) {
      double bytes =
          layerActivations(model, workload, plan, model.experts > 0, each);
      EXPECT_LT(bytes, before) << name;
      before = bytes;
    }
  }
}

// The table of ZeRO: 18, 6 + 12/d, 2 + 16/d, 18/d bytes a parameter.
TEST(MemoryModel, StateOfZero) {
  ModelShape model = specOf("llama-3-8b");
  Workload workload;
  workload.globalBatch = 64;
  double d = 8;
  double perParameter[] = {18, 6 + 12 / d, 2 + 16 / d, 18 / d};
  for (int level = 0; level <= 3; ++level) {
    ParallelPlan plan;
    plan.data = 8;
    plan.zero = level;
    Memory memory = peakMemory(model, workload, plan, {32, 32});
    double parameters = double(model.parameters());
    EXPECT_NEAR(memory.state() / parameters, perParameter[level], 0.01);
    // Four such replicas need what one does.
    if (level == 0)
      continue;
    plan.data = 32;
    plan.replicate = 4;
    EXPECT_EQ(peakMemory(model, workload, plan, {32, 32}).state(),
              memory.state());
  }
}

TEST(MemoryModel, ReplicasHaveAllExperts) {
  const ModelShape model = specOf("moe-106b-a14b");
  for (bool compiled : {false, true}) {
    Workload workload;
    workload.compiled = compiled;
    workload.globalBatch = 64;
    ParallelPlan whole, replicas;
    whole.expert = replicas.expert = 8;
    whole.data = 16;
    whole.zero = replicas.zero = 3;
    replicas.data = 64;
    replicas.replicate = 4;
    const StageLayers stages{model.layers, model.layers};
    EXPECT_EQ(peakMemory(model, workload, replicas, stages).optimizer,
              peakMemory(model, workload, whole, stages).optimizer)
        << compiled;
  }
}

// p + (p-1)/v microbatches on the first rank; never more than there are.
TEST(MemoryModel, MicrobatchesInFlight) {
  Workload workload;
  workload.overlap.expert = false;
  ParallelPlan plan;
  plan.pipe = 8;
  plan.data = 32;
  EXPECT_EQ(microbatchesInFlight(plan, workload), 8);
  plan.interleave = 5;
  plan.schedule = Schedule::Interleaved;
  EXPECT_DOUBLE_EQ(microbatchesInFlight(plan, workload),
                   8 * (1 + 7.0 / (8 * 5)));
  workload.globalBatch = 128;
  EXPECT_EQ(microbatchesInFlight(plan, workload), 4);
}

StepCost stepOf(const ModelShape &model, const Cluster &cluster,
                const Workload &workload, const char *plan) {
  auto parsed = parsePlan(plan, cluster.gpus());
  EXPECT_TRUE(parsed.ok()) << parsed.message();
  auto candidate = evaluate(model, cluster, workload, *parsed);
  EXPECT_TRUE(candidate.ok()) << candidate.message();
  return candidate->cost;
}

// Gathers and reduce-scatters of microbatches among eight ranks, then one
// all-reduce of shards among the four replicas.
TEST(CostModel, CollectivesOfReplicas) {
  const ModelShape model = specOf("llama-3-8b");
  Workload workload;
  workload.globalBatch = 96;
  workload.overlap.data = false;
  const Cluster cluster = plainCluster(4);
  const CollectiveCost collectives(cluster);
  const double all = rankParameters(model, {}, 32, true, true).dense;
  const RankGroup shards{8, 1}, replicas{4, 8};
  const double gather =
      collectives.seconds(Collective::AllGather, 2 * all, shards);
  const double reduce =
      collectives.seconds(Collective::ReduceScatter, 4 * all, shards);
  const double across =
      collectives.seconds(Collective::AllReduce, 4 * all / 8, replicas);
  auto seconds = [&](const char *plan) {
    return stepOf(model, cluster, workload, plan).data;
  };
  const double m = 3;
  EXPECT_NEAR(seconds("replicate=4,zero=1"), gather + reduce + across, 1e-9);
  EXPECT_NEAR(seconds("replicate=4,zero=2"), gather + m * reduce + across,
              1e-9);
  EXPECT_NEAR(seconds("replicate=4,zero=3"), m * (2 * gather + reduce) + across,
              1e-9);
  // Overlapped they are part of it, at least one layer's.
  workload.overlap.data = true;
  const double visible = seconds("replicate=4,zero=3");
  EXPECT_GE(visible, (2 * m * gather + m * reduce + across) / 32 * (1 - 1e-9));
  EXPECT_LT(visible, m * (2 * gather + reduce) + across);
}

// (p-1)(F+B) in m(F+B), a v-th interleaved; zero-bubble saves 2W of it. A model
// without vocabulary to speak of has equal stages.
TEST(CostModel, BubblesOfSchedules) {
  ModelShape model = classic(64, 4096, 32);
  model.vocab = 64;
  Workload workload;
  workload.sequence = 2048;
  workload.globalBatch = 128;
  Cluster cluster = plainCluster(4);
  double m = 32, p = 8;
  StepCost plain = stepOf(model, cluster, workload, "pipe=8");
  EXPECT_NEAR(plain.bubbleShare(), (p - 1) / (m + p - 1), 2e-3);
  StepCost interleaved =
      stepOf(model, cluster, workload, "pipe=8,interleave=4");
  EXPECT_NEAR(interleaved.bubbleShare(), (p - 1) / (4 * m + p - 1), 2e-3);
  StepCost zero = stepOf(model, cluster, workload, "pipe=8,schedule=zb-h1");
  EXPECT_NEAR(plain.bubble - zero.bubble, 2 * (p - 1) * plain.slowest.weight,
              0.01 * plain.bubble);
}

// The layers that the rank with the head has fewer are missing from its last
// chunk, where the head is.
TEST(CostModel, TheChunkWithTheHeadIsSmaller) {
  ModelShape model = classic(30, 1024, 8);
  model.vocab = 256 * 1024;
  Workload workload;
  workload.globalBatch = 64;
  CostModel costs(model, plainCluster(1), workload);
  ParallelPlan plan = *parsePlan("pipe=4,interleave=4,data=2", 8);
  PricedLayers layers = costs.price(plan);
  EXPECT_EQ(costs.stages(plan, layers), (StageLayers{8, 6}));
  std::vector<PassTimes> times = costs.stageTimes(plan, layers);
  double others = times[1].total();
  for (size_t stage : {3, 7, 11})
    EXPECT_DOUBLE_EQ(times[stage].total(), others);
  EXPECT_DOUBLE_EQ(times[15].weight, layers.head.weight);
}

TEST(CostModel, PartsSumToTheWhole) {
  StepCost cost = stepOf(specOf("moe-106b-a14b"), plainCluster(32), {},
                         "pipe=8,interleave=5,expert=8");
  EXPECT_DOUBLE_EQ(cost.total, cost.perRank.total() + cost.uneven +
                                   cost.bubble + cost.send + cost.data +
                                   cost.optimizer);
}

TEST(CostModel, FasterHardwareIsNeverSlower) {
  ModelShape model = specOf("moe-106b-a14b");
  const char *plan = "pipe=4,tensor=2,expert=8,context=2";
  Cluster cluster = plainCluster(32);
  double before = stepOf(model, cluster, {}, plan).total;
  std::vector<std::function<void(Cluster &)>> improvements = {
      [](Cluster &c) { *c.links[0].perGpu *= 2; },
      [](Cluster &c) { *c.links[1].perGpu *= 2; },
      [](Cluster &c) { c.links[1].latency = 0; },
      [](Cluster &c) { c.gpu.memoryBandwidth *= 2; },
      [](Cluster &c) { c.gpu.sustainedClock = 1; },
      [](Cluster &c) { c.gpu.clockSpread = 0; },
      [](Cluster &c) { c.gpu.launch = 0; }};
  for (auto &improve : improvements) {
    Cluster better = cluster;
    improve(better);
    EXPECT_LE(stepOf(model, better, {}, plan).total, before);
  }
}

TEST(CostModel, WorseWorkIsNeverFaster) {
  ModelShape model = specOf("moe-106b-a14b");
  Cluster cluster = plainCluster(32);
  const char *plan = "pipe=4,tensor=2,expert=8";
  Workload usual;
  double before = stepOf(model, cluster, usual, plan).total;
  std::vector<std::function<void(Workload &)>> burdens = {
      [](Workload &w) { w.imbalance = 2; },
      [](Workload &w) { w.overlap.tensor = false; },
      [](Workload &w) { w.overlap.expert = false; },
      [](Workload &w) { w.overlap.data = false; },
      [](Workload &w) { w.overlap.pipe = false; },
      [](Workload &w) { w.elementwisePasses = 2; },
      [](Workload &w) { w.chunkedLoss = false; },
      [](Workload &w) { w.countsBefore = true; },
      [](Workload &w) { w.repeatedProducts = 0.1; },
      [](Workload &w) { w.flashAttention = false; }};
  for (size_t i = 0; i < burdens.size(); ++i) {
    Workload worse = usual;
    burdens[i](worse);
    EXPECT_GT(stepOf(model, cluster, worse, plan).total, before) << i;
  }
  EXPECT_GT(
      stepOf(model, cluster, usual, "pipe=4,tensor=2,expert=8,recompute=full")
          .total,
      before);
}

} // namespace
} // namespace tessera::planner::test
