#include "parallelism/planner/Replay.h"
#include "test/parallelism/planner/Fixture.h"

#include <cmath>

#include <gtest/gtest.h>

namespace tessera::planner::test {
namespace {

struct Refused {
  const char *text, *message;
};

TEST(ParallelPlan, WhatIsNoPlan) {
  const Refused cases[] = {
      {"pipe", "--fix 'pipe': expected KEY=VALUE"},
      {"pipes=2", "is not a part of a plan"},
      {"pipe=0", "--fix 'pipe': '0' must be a whole number from 1"},
      {"pipe=2x", "'2x' must be a whole number"},
      {"pipe=99999999999999999999", "must be a whole number"},
      {"pipe=2,pipe=2", "'pipe' is given twice"},
      {"zero=4", "'4' must be 0, 1, 2 or 3"},
      {"recompute=some",
       "'some' is none of none, selective, attention or full"},
      {"schedule=zb-v", "'zb-v' is none of 1f1b, interleaved or zb-h1"},
      {"stages=odd", "'odd' is none of balanced or even"},
      {"pipe=3", "do not divide 256 GPUs"},
      {"pipe=99999,tensor=99999,context=99999,data=99999",
       "are more than 256 GPUs"}};
  for (const Refused &each : cases) {
    auto plan = parsePlan(each.text, 256);
    ASSERT_FALSE(plan.ok()) << each.text;
    EXPECT_NE(plan.message().find(each.message), std::string::npos)
        << plan.message();
  }
}

TEST(ParallelPlan, FillsInWhatIsLeftOut) {
  ParallelPlan plan = *parsePlan("pipe=8,interleave=5,expert=8", 256);
  EXPECT_EQ(plan.data, 32);
  EXPECT_EQ(plan.schedule, Schedule::Interleaved);
  EXPECT_EQ(plan.zero, 1);
  EXPECT_EQ(plan.expertCopies(), 4);
  EXPECT_EQ(describe(plan),
            "PP8 VPP5 TP1 EP8 DP32 ZeRO-1 micro 1 selective interleaved");
  plan = *parsePlan("tensor=2,replicate=16,zero=3", 256);
  EXPECT_EQ(plan.data, 128);
  EXPECT_EQ(plan.shardRanks(), 8);
  EXPECT_EQ(describe(plan),
            "PP1 TP2 DP128 in 16 replicas ZeRO-3 micro 1 selective 1f1b");
}

// Of 1, 2, 4, … nodes, as far as ranks of tensor and expert parallelism divide
// them.
TEST(ParallelPlan, ReplicasAreOfWholeNodes) {
  const Cluster cluster = plainCluster(8);
  auto counts = [&](const char *text) {
    return replicaCounts(cluster, *parsePlan(text, 64));
  };
  using Counts = std::vector<int64_t>;
  EXPECT_EQ(counts("zero=3"), (Counts{2, 4, 8}));
  EXPECT_EQ(counts("tensor=8,zero=3"), (Counts{2, 4}));
  EXPECT_EQ(counts("tensor=4,context=8,zero=3"), (Counts{2}));
  EXPECT_EQ(counts("expert=16,zero=3"), (Counts{2, 4}));
  EXPECT_EQ(counts("pipe=8,zero=3"), Counts());
  EXPECT_EQ(replicaCounts(plainCluster(1), *parsePlan("zero=3", 8)), Counts());
  EXPECT_EQ(replicaCounts(plainCluster(12), *parsePlan("zero=3", 96)),
            (Counts{3, 6, 12}));
}

TEST(ParallelPlan, EachConstraintIsNamed) {
  ModelShape model = specOf("moe-106b-a14b");
  Cluster cluster = plainCluster(32);
  Workload workload;
  const std::tuple<const char *, Constraint, const char *> cases[] = {
      {"data=3", Constraint::Gpus, "= 3, the cluster has 256"},
      {"tensor=16", Constraint::Heads, "tensor = 16, heads = 40"},
      {"pipe=64", Constraint::Layers, "= 64, layers = 40"},
      {"pipe=8,interleave=3", Constraint::Layers, "= 24, layers = 40"},
      {"micro=1024", Constraint::Batch, "global batch = 1024"},
      {"pipe=2,interleave=2,schedule=1f1b", Constraint::Schedule,
       "1f1b with pipe = 2"},
      {"schedule=zb-h1", Constraint::Schedule, "zb-h1 with pipe = 1"},
      {"pipe=16,interleave=1,data=1,context=16,zero=0", Constraint::Sharding,
       ""},
      {"expert=5", Constraint::Experts, "expert = 5"},
      {"replicate=3", Constraint::Replicas, "replicate = 3, data = 256"},
      {"replicate=2,zero=0", Constraint::Replicas, "zero = 0"},
      {"expert=8,replicate=64", Constraint::Replicas,
       "copies of an expert = 32"},
      {"replicate=256,zero=1", Constraint::Sharding, "replicate = 256"},
      {"pipe=8,zero=3", Constraint::Sharding, "zero = 3"},
      {"pipe=8,interleave=5,micro=8", Constraint::Microbatches,
       "pipe = 8 does not divide 4 microbatches"}};
  for (auto &[text, constraint, detail] : cases) {
    auto plan = parsePlan(text, 256);
    ASSERT_TRUE(plan.ok()) << plan.message();
    Violation violation = explainViolation(model, cluster, workload, *plan);
    if (constraint == Constraint::Sharding && plan->zero == 0)
      continue;
    EXPECT_EQ(violation.constraint, constraint)
        << text << ": " << name(violation.constraint);
    EXPECT_NE(violation.detail.find(detail), std::string::npos)
        << violation.detail;
    EXPECT_FALSE(evaluate(model, cluster, workload, *plan).ok());
  }
  workload.sequence = 4095;
  EXPECT_EQ(
      firstViolation(model, cluster, workload, *parsePlan("context=2", 256)),
      Constraint::Sequence);
  model.intermediate = 0;
  model.sharedWidth = 2561;
  EXPECT_EQ(
      firstViolation(model, cluster, Workload(), *parsePlan("tensor=2", 256)),
      Constraint::Width);
  model.heads = model.kvHeads = 64;
  model.sharedWidth = 0;
  EXPECT_EQ(
      firstViolation(model, cluster, Workload(), *parsePlan("tensor=16", 256)),
      Constraint::NodeBound);
}

TEST(Search, ItsPlansAreWhatItSays) {
  for (const char *name : {"llama-3-8b", "moe-106b-a14b"}) {
    ModelShape model = specOf(name);
    Cluster cluster = plainCluster(4);
    Workload workload;
    SearchResult result = search(model, cluster, workload);
    ASSERT_EQ(result.best.size(), 10u);
    double before = 0;
    for (const Candidate &each : result.best) {
      EXPECT_EQ(firstViolation(model, cluster, workload, each.plan),
                Constraint::None);
      EXPECT_LE(each.memory.total(), usableMemory(cluster.gpu));
      auto alone = evaluate(model, cluster, workload, each.plan);
      ASSERT_TRUE(alone.ok());
      EXPECT_DOUBLE_EQ(alone->cost.total, each.cost.total);
      EXPECT_DOUBLE_EQ(alone->memory.total(), each.memory.total());
      EXPECT_GE(each.cost.total, before);
      before = each.cost.total;
    }
    ASSERT_TRUE(result.chosen);
    EXPECT_LE(result.chosen->cost.total, result.best.front().cost.total *
                                             (1 + SearchResult::indifference));
    int64_t killed = 0;
    for (const Killed &each : result.killed)
      killed += each.plans;
    EXPECT_EQ(killed + result.fitting, result.considered);
  }
}

// Plans that a person would try are none of them faster than the fastest.
TEST(Search, NothingThatPeopleTryIsFaster) {
  ModelShape model = specOf("moe-106b-a14b");
  Cluster cluster = plainCluster(32);
  Workload workload;
  SearchResult result = search(model, cluster, workload, 1);
  for (const char *text :
       {"pipe=8,interleave=5,expert=8,recompute=attention",
        "pipe=4,interleave=5,expert=8", "pipe=2,interleave=5,expert=16",
        "pipe=2,tensor=2,expert=8", "tensor=8,pipe=4,expert=8",
        "pipe=8,expert=8,schedule=zb-h1"}) {
    auto plan = evaluate(model, cluster, workload, *parsePlan(text, 256));
    ASSERT_TRUE(plan.ok()) << plan.message();
    if (plan->memory.total() <= usableMemory(cluster.gpu))
      EXPECT_GE(plan->cost.total, result.best.front().cost.total) << text;
  }
}

// GPUs on which neither state sharded inside a node nor activations of several
// microbatches leave much room.
SearchResult searchOnSmallGpus(double between) {
  Cluster cluster = plainCluster(4);
  cluster.gpu.memory = 46e9;
  cluster.links.back().perGpu = between;
  Workload workload;
  workload.globalBatch = 128;
  workload.sequence = 8192;
  workload.compiled = true;
  workload.overlap = compiledOverlap;
  return search(specOf("llama-3-8b"), cluster, workload, 10, Scope::Compiled);
}

// Plans beyond the memory are apart from those that fit, and chosen only where
// none does.
TEST(Search, SlackKeepsPlansBeyondTheMemory) {
  Cluster cluster = plainCluster(4);
  cluster.gpu.memory = 40e9;
  Workload workload;
  workload.globalBatch = 128;
  workload.sequence = 8192;
  const double memory = usableMemory(cluster.gpu);
  auto find = [&](double slack) {
    return search(specOf("llama-3-8b"), cluster, workload, 1000, Scope::Any,
                  slack);
  };
  const SearchResult strict = find(1), loose = find(1.3);
  EXPECT_TRUE(strict.beyond.empty());
  ASSERT_FALSE(loose.beyond.empty());
  for (const Candidate &each : loose.beyond) {
    EXPECT_GT(each.memory.total(), memory);
    EXPECT_LE(each.memory.total(), 1.3 * memory);
  }
  for (const Candidate &each : loose.simplest)
    EXPECT_LE(each.memory.total(), memory);
  EXPECT_EQ(describe(loose.chosen->plan), describe(strict.chosen->plan));
  for (const auto &[pipe, choice] : strict.choices.at("pipe"))
    if (choice.best)
      EXPECT_EQ(describe(loose.choices.at("pipe").at(pipe).best->plan),
                describe(choice.best->plan));
}

TEST(Search, ReplicasWinWhereLinksBetweenNodesAreSlow) {
  const SearchResult slow = searchOnSmallGpus(10e9),
                     fast = searchOnSmallGpus(50e9);
  auto best = [](const SearchResult &result, int64_t replicas) {
    return *result.choices.at("replicate").at(replicas).best;
  };
  EXPECT_LT(best(slow, 4).cost.total, best(slow, 1).cost.total)
      << describe(best(slow, 1).plan);
  EXPECT_GT(best(fast, 4).cost.total, best(fast, 1).cost.total)
      << describe(best(fast, 4).plan);
  // The same without replicas is slower where links are slow.
  for (auto [between, isFaster] : {std::pair(10e9, true), {50e9, false}}) {
    Cluster cluster = plainCluster(4);
    cluster.links.back().perGpu = between;
    Workload workload;
    workload.globalBatch = 128;
    workload.sequence = 8192;
    ParallelPlan plan = best(slow, 4).plan;
    const double own =
        evaluate(specOf("llama-3-8b"), cluster, workload, plan)->cost.total;
    plan.replicate = 1;
    const double whole =
        evaluate(specOf("llama-3-8b"), cluster, workload, plan)->cost.total;
    if (isFaster)
      EXPECT_LT(1.02 * own, whole) << between;
    else
      EXPECT_LT(whole, 1.02 * own) << between;
  }
}

TEST(Search, IsDeterministic) {
  ModelShape model = specOf("llama-3-8b");
  Cluster cluster = plainCluster(2);
  SearchResult first = search(model, cluster, {}),
               second = search(model, cluster, {});
  ASSERT_EQ(first.best.size(), second.best.size());
  for (size_t i = 0; i < first.best.size(); ++i)
    EXPECT_EQ(first.best[i].plan, second.best[i].plan);
  EXPECT_EQ(first.chosen->plan, second.chosen->plan);
}

TEST(Search, MoreMemoryIsNeverSlower) {
  ModelShape model = specOf("llama-3-8b");
  Cluster cluster = plainCluster(1);
  double before = INFINITY;
  for (double memory : {24e9, 40e9, 80e9, 160e9}) {
    cluster.gpu.memory = memory;
    SearchResult result = search(model, cluster, {}, 1);
    ASSERT_FALSE(result.best.empty());
    EXPECT_LE(result.best.front().cost.total, before);
    before = result.best.front().cost.total;
  }
  cluster.gpu.memory = 4e9;
  SearchResult none = search(model, cluster, {}, 1);
  EXPECT_FALSE(none.chosen);
  EXPECT_GT(none.killed[size_t(Constraint::Memory)].plans, 0);
}

// The replay runs every instruction; the cost model has closed forms.
TEST(Replay, AgreesWithTheCostModel) {
  Cluster cluster = plainCluster(32);
  Workload workload;
  const std::pair<const char *, const char *> cases[] = {
      {"moe-106b-a14b", "pipe=8,interleave=5,expert=8"},
      {"moe-106b-a14b", "pipe=8,expert=8"},
      {"moe-106b-a14b", "pipe=8,expert=8,schedule=zb-h1"},
      {"moe-106b-a14b", "pipe=2,interleave=7,expert=8"},
      {"deepseek-v3", "pipe=8,interleave=8,expert=32"},
      {"deepseek-v3", "pipe=4,interleave=8,expert=32"},
      {"llama-3.1-405b", "pipe=16,tensor=8,interleave=8"},
      {"llama-3.1-405b", "pipe=8,tensor=8"},
      {"llama-3-8b", "tensor=2"}};
  for (auto &[spec, text] : cases) {
    ModelShape model = specOf(spec);
    auto plan = evaluate(model, cluster, workload, *parsePlan(text, 256));
    ASSERT_TRUE(plan.ok()) << plan.message();
    auto run = replay(model, cluster, workload, *plan);
    ASSERT_TRUE(run.ok()) << run.message();
    EXPECT_NEAR(run->modelled / run->simulation.makespan, 1, 0.06)
        << spec << " " << text;
  }
}

TEST(Replay, DisturbancesSlowItDown) {
  ModelShape model = specOf("moe-106b-a14b");
  Cluster cluster = plainCluster(32);
  Workload workload;
  Candidate plan =
      *evaluate(model, cluster, workload, *parsePlan("pipe=8,expert=8", 256));
  double usual = replay(model, cluster, workload, plan)->simulation.makespan;
  Disturbance straggler;
  straggler.rankFactor = {1, 1, 1, 1.3};
  double slow =
      replay(model, cluster, workload, plan, straggler)->simulation.makespan;
  EXPECT_GT(slow, 1.05 * usual);
  EXPECT_LT(slow, 1.35 * usual);
  Disturbance spread;
  spread.microbatchSpread = 0.5;
  EXPECT_GT(replay(model, cluster, workload, plan, spread)->simulation.makespan,
            usual);
  straggler.rankFactor.resize(9, 1.0);
  EXPECT_FALSE(replay(model, cluster, workload, plan, straggler).ok());
}

} // namespace
} // namespace tessera::planner::test
