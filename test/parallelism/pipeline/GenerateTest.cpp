// What generators promise: schedules that can run, bubbles and memory as in the
// papers that README.md names.
#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "test/parallelism/pipeline/Cases.h"

namespace tessera::pipeline {
namespace {

/// Times of a whole rank; each of its chunks takes its share.
Costs uniform(double forward, double input, double weight, int chunks) {
  StageCost cost;
  cost.forward = forward / chunks;
  cost.backwardInput = input / chunks;
  cost.backwardWeight = weight / chunks;
  cost.backward = (input + weight) / chunks;
  Costs costs;
  costs.stages = {cost};
  return costs;
}

int peakLive(const Simulation &run) {
  int peak = 0;
  for (const RankUse &rank : run.ranks)
    peak = std::max(peak, rank.peakLive);
  return peak;
}

struct Outcome {
  double bubble; ///< makespan less the work of a rank
  int live;
};

Outcome outcome(const char *policy, Shape shape, double forward, double input,
                double weight) {
  const Costs costs = uniform(forward, input, weight, shape.chunks);
  const Schedule schedule = take(generate(policy, shape, costs));
  const Simulation run = take(simulate(schedule, costs));
  return {run.makespan - shape.microbatches * (forward + input + weight),
          peakLive(run)};
}

TEST(Generate, AllSchedulesPassTheCheckBeforeAndAfterLowering) {
  std::set<std::string_view> seen;
  for (const Case &each : allCases()) {
    SCOPED_TRACE(each.text());
    const Schedule schedule = take(generate(*each.policy, each.shape));
    const Status status = check(schedule);
    EXPECT_TRUE(status.ok()) << status.message();
    LowerOptions options;
    options.unsharded = each.shape.microbatches % 3 == 0 ? 2 : 0;
    const Status lowered = check(take(lower(schedule, options)));
    EXPECT_TRUE(lowered.ok()) << lowered.message();
    seen.insert(each.policy->name);
  }
  EXPECT_EQ(seen.size(), policies().size());
}

TEST(Generate, GPipeAnd1F1BHaveTheirBubbleAndMemory) {
  for (int p : {1, 2, 3, 4, 8})
    for (int m : {p, p + 1, 2 * p + 3, 6 * p})
      for (auto [f, i, w] : {std::array{1.0, 1.0, 1.0}, {2.0, 2.5, 1.5}}) {
        SCOPED_TRACE(fmt::format("p={} m={} F={}", p, m, f));
        const double bubble = (p - 1) * (f + i + w);
        const Outcome gpipe = outcome("gpipe", {p, m, 1}, f, i, w);
        EXPECT_NEAR(gpipe.bubble, bubble, 1e-9);
        EXPECT_EQ(gpipe.live, m);
        const Outcome onef = outcome("1f1b", {p, m, 1}, f, i, w);
        EXPECT_NEAR(onef.bubble, bubble, 1e-9);
        EXPECT_EQ(onef.live, p);
      }
}

TEST(Generate, InterleavedHasTheBubbleOverItsChunks) {
  for (int p : {2, 3, 4, 8})
    for (int v : {2, 3, 4})
      for (int rounds : {2, 3, 5}) {
        SCOPED_TRACE(fmt::format("p={} v={} rounds={}", p, v, rounds));
        const Outcome run =
            outcome("interleaved", {p, rounds * p, v}, 1.0, 1.2, 0.8);
        EXPECT_NEAR(run.bubble, (p - 1) * 3.0 / v, 1e-9);
        // p·(1 + (p−1)/(pv)) whole ranks are p·v + p − 1 chunks.
        EXPECT_EQ(run.live, p * v + p - 1);
      }
}

TEST(Generate, InterleavedRunsWithARaggedLastGroup) {
  for (int p : {2, 3, 4, 8})
    for (int m = 1; m < 3 * p; ++m) {
      SCOPED_TRACE(fmt::format("p={} m={}", p, m));
      const Outcome run = outcome("interleaved", {p, m, 2}, 1, 1, 1);
      EXPECT_LE(run.live, 2 * p + p - 1);
      // A group that is not full costs no more than its missing microbatches.
      const int missing = (p - m % p) % p;
      EXPECT_LE(run.bubble, (p - 1 + missing) * 3.0 + 1e-9);
    }
}

TEST(Generate, ZbH1HasItsBubbleInTheMemoryOf1F1B) {
  for (int p : {1, 2, 3, 4, 8, 16})
    for (int m : {p, 2 * p + 1, 4 * p})
      for (auto [f, i, w] :
           {std::array{1.0, 1.0, 1.0}, {1.0, 1.2, 0.8}, {1.0, 1.5, 0.7}}) {
        SCOPED_TRACE(fmt::format("p={} m={} I={}", p, m, i));
        const Outcome run = outcome("zb-h1", {p, m, 1}, f, i, w);
        // (p−1)(F + B − 2W) with B = I + W.
        EXPECT_NEAR(run.bubble, (p - 1) * (f + i - w), 1e-9);
        EXPECT_EQ(run.live, p);
      }
}

TEST(Generate, ZbVWaitsForTheFirstForwardAlone) {
  for (int p : {2, 3, 4, 8, 16})
    for (int m : {p, 2 * p, 5 * p}) {
      SCOPED_TRACE(fmt::format("p={} m={}", p, m));
      const Outcome run = outcome("zb-v", {p, m, 2}, 2, 2, 2);
      // The last rank cannot begin before (p−1) forwards of half a rank.
      EXPECT_GE(run.bubble, p - 1 - 1e-9);
      EXPECT_LE(run.bubble, 1.3 * (p - 1) + 1e-9);
      EXPECT_EQ(run.live, 2 * p);
      if (p <= 4 || m == p) {
        EXPECT_NEAR(run.bubble, p - 1, 1e-9);
      }
    }
}

TEST(Generate, DualPipeHasItsBubbleWithOneActivationMore) {
  for (int p : {2, 4, 6, 8, 16})
    for (int m : {2 * p, 2 * p + 2, 6 * p}) {
      SCOPED_TRACE(fmt::format("p={} m={}", p, m));
      const Outcome run = outcome("dualpipe", {p, m, 1}, 1, 1, 1);
      // (p/2−1)(F&B + B − 3W), F&B = 3.
      EXPECT_NEAR(run.bubble, p - 2, 1e-9); // 2(p/2−1)
      EXPECT_EQ(run.live, p + 1);
    }
}

TEST(Generate, DualPipeVHasTheBubbleOfTwiceTheRanksAndParametersOnce) {
  for (int p : {1, 2, 3, 4, 8})
    for (int m : {2 * p - 1, 2 * p, 5 * p}) {
      SCOPED_TRACE(fmt::format("p={} m={}", p, m));
      const Outcome run = outcome("dualpipev", {p, m, 2}, 2, 2, 2);
      EXPECT_NEAR(run.bubble, 2 * (p - 1), 1e-9);
      EXPECT_LE(run.live, 2 * p + 1);
      const Schedule whole = made("dualpipe", 2 * p, 2 * m);
      const Schedule half = made("dualpipev", p, m, 2);
      EXPECT_NEAR(take(simulate(half)).makespan, take(simulate(whole)).makespan,
                  1e-9);
      EXPECT_EQ(half.replicas, 1);
    }
}

/// Whether sums over microbatches have their order, if B and W add to them.
void expectGradientsInOrder(const Schedule &schedule) {
  std::vector<int> last(size_t(schedule.stages), -1);
  for (const InstructionList &list : schedule.lists)
    for (const Instruction &each : list) {
      const Work &back = each.op == Op::Overlap ? each.backward : each.work;
      if (each.op == Op::Overlap || each.op == Op::Backward ||
          each.op == Op::BackwardWeight)
        EXPECT_LT(std::exchange(last[size_t(back.stage)], back.microbatch),
                  back.microbatch)
            << toString(each);
    }
}

TEST(Generate, GradientsOfWeightsAreInTheOrderOfMicrobatches) {
  for (const Case &each : allCases()) {
    SCOPED_TRACE(each.text());
    expectGradientsInOrder(take(generate(*each.policy, each.shape)));
    Costs costs = uniform(1, 0.7, 1.9, each.shape.chunks);
    costs.link.latency = 0.3;
    expectGradientsInOrder(take(generate(*each.policy, each.shape, costs)));
  }
}

TEST(Generate, MemoryBoundsHoldAndCostTime) {
  for (const char *policy : {"gpipe", "1f1b", "zb-h1"}) {
    double before = 0;
    for (int memory : {1, 2, 3, 4, 8}) {
      const Schedule schedule =
          take(generate(policy, {4, 12, 1}, Costs{}, memory));
      EXPECT_TRUE(check(schedule, memory).ok());
      const double makespan = take(simulate(schedule)).makespan;
      if (before > 0) {
        EXPECT_LE(makespan, before) << policy << " " << memory;
      }
      before = makespan;
    }
  }
  auto starved = generate("interleaved", {4, 8, 2}, Costs{}, 2);
  ASSERT_FALSE(starved.ok());
  EXPECT_EQ(starved.message(), "interleaved: 2 live activations are not enough "
                               "for rank 0 of 4 with 2 chunks; allow more");
}

TEST(Generate, ReactsToTheCostsThatItIsGiven) {
  // W as long as all else, and a way between ranks that W can fill.
  Costs costs = uniform(1, 1, 6, 1);
  costs.link.latency = 2;
  const Schedule blind = made("zb-h1", 4, 8);
  const Schedule seeing = take(generate("zb-h1", {4, 8, 1}, costs));
  EXPECT_LT(take(simulate(seeing, costs)).makespan,
            take(simulate(blind, costs)).makespan);
}

TEST(Generate, NeverLosesToTheOrderOfEqualTimes) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> some(0.2, 3);
  for (const Case &each : allCases()) {
    Costs costs = uniform(some(random), some(random), some(random), 1);
    costs.link.latency = some(random) / 3;
    const Schedule blind = take(generate(*each.policy, each.shape));
    const Schedule seeing = take(generate(*each.policy, each.shape, costs));
    EXPECT_LE(take(simulate(seeing, costs)).makespan,
              take(simulate(blind, costs)).makespan * (1 + 1e-12))
        << each.text();
  }
}

TEST(Generate, RefusesShapesThatAScheduleDoesNotHave) {
  auto error = [](const char *policy, Shape shape) {
    auto schedule = generate(policy, shape);
    return schedule.ok() ? "" : schedule.message();
  };
  EXPECT_EQ(error("2f2b", {4, 8, 1}),
            "unknown schedule '2f2b'; use gpipe, 1f1b, interleaved, zb-h1, "
            "zb-v, dualpipe or dualpipev");
  EXPECT_EQ(error("1f1b", {4, 8, 2}), "1f1b: 2 chunks per rank; expected 1");
  EXPECT_EQ(error("interleaved", {4, 8, 1}),
            "interleaved: 1 chunks per rank; expected at least 2");
  EXPECT_EQ(
      error("1f1b", {0, 8, 1}),
      "1f1b: requires at least one rank, microbatch and chunk, got 0, 8 and "
      "1");
  EXPECT_EQ(
      error("dualpipe", {3, 8, 1}),
      "dualpipe: requires an even number of ranks and of microbatches, got 3 "
      "and 8");
  EXPECT_EQ(
      error("dualpipe", {8, 8, 1}),
      "dualpipe: 8 microbatches (batch.accumulate) do not fill 8 ranks; give "
      "at least 14");
  EXPECT_EQ(error("dualpipev", {4, 6, 2}),
            "dualpipev: 6 microbatches (batch.accumulate) do not fill 4 ranks; "
            "give at least 7");
  EXPECT_EQ(error("1f1b", {1 << 20, 1 << 20, 1}),
            "1f1b: 1048576 ranks, 1 chunks and 1048576 microbatches are more "
            "than 268435456 instructions; give fewer");
}

TEST(Generate, RefusesCostsThatDoNotFit) {
  Costs costs;
  costs.stages.resize(3);
  EXPECT_EQ(generate("1f1b", {4, 8, 1}, costs).message(),
            "costs of 3 stages for a schedule of 4; give one each or a single "
            "one for all");
  costs.stages = {StageCost{}};
  costs.stages[0].forward = -1;
  EXPECT_EQ(generate("1f1b", {4, 8, 1}, costs).message(),
            "cost of stage 0: forward must be finite and not negative, got -1");
  costs.stages = {StageCost{}};
  costs.rankFactor = {1, 2};
  EXPECT_EQ(generate("1f1b", {4, 8, 1}, costs).message(),
            "2 factors for 4 ranks; give one each or none");
}

} // namespace
} // namespace tessera::pipeline
