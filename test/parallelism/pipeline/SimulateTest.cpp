// The simulator against plain statements of what may not happen, and against a
// slow one that knows no queues.
#include <algorithm>
#include <map>
#include <random>

#include "test/parallelism/pipeline/Cases.h"

namespace tessera::pipeline {
namespace {

using Key = std::tuple<char, int, int>; // F, B (or I) or W, stage, microbatch

/// Where each half of compute runs, from a schedule and its spans.
std::map<Key, Span> computeSpans(const Schedule &schedule,
                                 const Simulation &run) {
  std::map<Key, Span> spans;
  for (int rank = 0; rank < schedule.ranks; ++rank)
    for (size_t k = 0; k < schedule.lists[size_t(rank)].size(); ++k) {
      const Instruction &each = schedule.lists[size_t(rank)][k];
      const Span span = run.spans[size_t(rank)][k];
      auto add = [&](char what, const Work &work) {
        spans[{what, work.stage, work.microbatch}] = span;
      };
      if (each.op == Op::Forward || each.op == Op::Overlap)
        add('F', each.work);
      if (each.op == Op::Backward || each.op == Op::BackwardInput)
        add('B', each.work);
      if (each.op == Op::Overlap)
        add('B', each.backward);
      if (each.op == Op::BackwardWeight)
        add('W', each.work);
    }
  return spans;
}

double wire(const Costs &costs, int from, int to, double bytes) {
  if (from == to)
    return 0;
  const LinkCost &link = costs.linkBetween(from, to);
  return link.latency + link.perByte * bytes;
}

void expectDependencies(const Schedule &schedule, const Costs &costs,
                        const Simulation &run) {
  const std::map<Key, Span> spans = computeSpans(schedule, run);
  const double slack = 1e-9 * run.makespan;
  for (const auto &[key, span] : spans) {
    const auto [what, stage, microbatch] = key;
    EXPECT_LE(span.start, span.end);
    if (what == 'F' && !schedule.isFirst(stage)) {
      const double sent =
          wire(costs, schedule.rankOf(stage - 1), schedule.rankOf(stage),
               costs.stage(stage - 1).outputBytes);
      EXPECT_GE(span.start + slack,
                spans.at({'F', stage - 1, microbatch}).end + sent);
    }
    if (what == 'B' && !schedule.isLast(stage)) {
      const double sent =
          wire(costs, schedule.rankOf(stage + 1), schedule.rankOf(stage),
               costs.stage(stage).outputBytes);
      EXPECT_GE(span.start + slack,
                spans.at({'B', stage + 1, microbatch}).end + sent);
    }
    if (what != 'F') {
      const char before = what == 'B' ? 'F' : 'B';
      EXPECT_GE(span.start + slack, spans.at({before, stage, microbatch}).end);
    }
  }
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    double free = 0;
    for (size_t k = 0; k < schedule.lists[size_t(rank)].size(); ++k) {
      if (!isCompute(schedule.lists[size_t(rank)][k].op))
        continue;
      const Span span = run.spans[size_t(rank)][k];
      EXPECT_GE(span.start + slack, free);
      free = span.end;
    }
  }
}

/// Makespan of compute alone without contention for links: repeats "not before
/// what it needs" until nothing moves.
double slowMakespan(const Schedule &schedule, const Costs &costs) {
  Simulation run;
  for (const InstructionList &list : schedule.lists)
    run.spans.emplace_back(list.size());
  for (bool moved = true; moved;) {
    moved = false;
    const std::map<Key, Span> spans = computeSpans(schedule, run);
    auto end = [&](char what, int stage, int microbatch) {
      return spans.at({what, stage, microbatch}).end;
    };
    for (int rank = 0; rank < schedule.ranks; ++rank)
      for (size_t k = 0; k < schedule.lists[size_t(rank)].size(); ++k) {
        const Instruction &each = schedule.lists[size_t(rank)][k];
        double start = k > 0 ? run.spans[size_t(rank)][k - 1].end : 0;
        auto needForward = [&](const Work &work) {
          if (!schedule.isFirst(work.stage))
            start = std::max(
                start, end('F', work.stage - 1, work.microbatch) +
                           wire(costs, schedule.rankOf(work.stage - 1), rank,
                                costs.stage(work.stage - 1).outputBytes));
        };
        auto needBackward = [&](const Work &work) {
          start = std::max(start, end('F', work.stage, work.microbatch));
          if (!schedule.isLast(work.stage))
            start = std::max(
                start, end('B', work.stage + 1, work.microbatch) +
                           wire(costs, schedule.rankOf(work.stage + 1), rank,
                                costs.stage(work.stage).outputBytes));
        };
        if (each.op == Op::Forward || each.op == Op::Overlap)
          needForward(each.work);
        if (each.op == Op::Backward || each.op == Op::BackwardInput)
          needBackward(each.work);
        if (each.op == Op::Overlap)
          needBackward(each.backward);
        Span &span = run.spans[size_t(rank)][k];
        const double finish = start + costs.seconds(each, rank);
        moved |= finish > span.end;
        span = {start, finish};
        run.makespan = std::max(run.makespan, finish);
      }
  }
  return run.makespan;
}

Costs randomCosts(const Schedule &shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> some(0.2, 3);
  Costs costs;
  costs.stages.clear();
  for (int stage = 0; stage < shape.stages; ++stage) {
    StageCost cost{some(random), some(random), some(random), some(random)};
    cost.outputBytes = some(random);
    costs.stages.push_back(cost);
  }
  for (int rank = 0; rank < shape.ranks; ++rank)
    costs.rankFactor.push_back(some(random));
  for (int microbatch = 0; microbatch < shape.microbatches; ++microbatch)
    costs.microbatchFactor.push_back(some(random));
  costs.link.latency = some(random) / 10;
  costs.overlapFactor = 0.8;
  return costs;
}

/// No schedule is shorter than the work of its busiest rank, nor than the way
/// of one microbatch through its chain and back.
double lowerBound(const Schedule &schedule, const Costs &costs) {
  std::vector<double> work(size_t(schedule.ranks), 0);
  std::map<int, double> way;
  for (int rank = 0; rank < schedule.ranks; ++rank)
    for (const Instruction &each : schedule.lists[size_t(rank)]) {
      const double seconds = costs.seconds(each, rank);
      work[size_t(rank)] += seconds;
      if (each.op == Op::Forward || each.op == Op::Backward ||
          each.op == Op::BackwardInput)
        way[each.work.microbatch] += seconds;
    }
  double bound = *std::ranges::max_element(work);
  for (const auto &[microbatch, seconds] : way)
    bound = std::max(bound, seconds);
  return bound;
}

TEST(Simulate, RandomTimesKeepDependenciesAndBounds) {
  uint32_t seed = 0;
  for (const Case &each : allCases()) {
    SCOPED_TRACE(each.text());
    const Schedule plain = take(generate(*each.policy, each.shape));
    const Costs costs = randomCosts(plain, ++seed);
    const Schedule fitted = take(generate(*each.policy, each.shape, costs));
    for (const Schedule *schedule : {&plain, &fitted}) {
      const Status status = check(*schedule);
      EXPECT_TRUE(status.ok()) << status.message();
      const Simulation run = take(simulate(*schedule, costs));
      expectDependencies(*schedule, costs, run);
      EXPECT_GE(run.makespan, lowerBound(*schedule, costs) * (1 - 1e-12));
      LowerOptions options;
      for (bool async : {true, false}) {
        Costs mode = costs;
        mode.asyncTransfers = async;
        options.costs = mode;
        const Schedule lowered = take(lower(*schedule, options));
        EXPECT_TRUE(check(lowered).ok()) << check(lowered).message();
        const Simulation whole = take(simulate(lowered, mode));
        expectDependencies(lowered, mode, whole);
        // Receives that are posted late and ranks that stand still only cost.
        EXPECT_GE(whole.makespan, run.makespan * (1 - 1e-12)) << async;
      }
    }
  }
}

TEST(Simulate, AgreesWithTheSlowOne) {
  uint32_t seed = 100;
  for (const Case &each : allCases()) {
    if (each.shape.ranks > 4 || each.shape.microbatches > 12)
      continue;
    SCOPED_TRACE(each.text());
    const Schedule schedule = take(generate(*each.policy, each.shape));
    const Costs costs = randomCosts(schedule, ++seed);
    EXPECT_NEAR(take(simulate(schedule, costs)).makespan,
                slowMakespan(schedule, costs), 1e-9);
  }
}

TEST(Simulate, LoweringCostsNothingWhereTransfersRunBeside) {
  for (const char *policy : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}) {
    const int chunks = findPolicy(policy)->minChunks;
    Costs costs;
    costs.stages[0].outputBytes = 3;
    costs.link = {0.05, 0.01};
    const Schedule schedule = take(generate(policy, {4, 12, chunks}, costs));
    LowerOptions options;
    options.costs = costs;
    const Schedule lowered = take(lower(schedule, options));
    EXPECT_NEAR(take(simulate(lowered, costs)).makespan,
                take(simulate(schedule, costs)).makespan, 1e-9)
        << policy;
    options.costs.asyncTransfers = false;
    const Schedule standing = take(lower(schedule, options));
    const double blocked = take(simulate(standing, options.costs)).makespan;
    EXPECT_GT(blocked, take(simulate(schedule, costs)).makespan) << policy;
    // Receiving early is for engines of their own alone.
    EXPECT_LT(blocked, take(simulate(lowered, options.costs)).makespan)
        << policy;
  }
}

/// Two ranks and one microbatch, by hand: F 1, transfer 0.5 + 4·0.25, F 1,
/// B 2, transfer 1.5, B 2.
TEST(Simulate, CountsTransfersByLatencyAndBytes) {
  Costs costs;
  costs.stages[0].outputBytes = 4;
  costs.link = {0.5, 0.25};
  const Schedule schedule = made("1f1b", 2, 1);
  Simulation run = take(simulate(schedule, costs));
  EXPECT_DOUBLE_EQ(run.makespan, 9);
  EXPECT_DOUBLE_EQ(run.ranks[0].busy, 3);
  EXPECT_DOUBLE_EQ(run.ranks[0].idle, 6);
  EXPECT_DOUBLE_EQ(run.bubbleFraction, 1 - 6.0 / 18);
  ASSERT_EQ(run.transfers.size(), 2u);
  EXPECT_EQ(run.transfers[0].to, 1);
  EXPECT_DOUBLE_EQ(run.transfers[0].span.start, 1);
  EXPECT_DOUBLE_EQ(run.transfers[0].span.end, 2.5);
  costs.links[{1, 0}] = {0, 0};
  EXPECT_DOUBLE_EQ(take(simulate(schedule, costs)).makespan, 7.5);
}

TEST(Simulate, LinksCarryOneTransferAtATime) {
  Costs costs;
  costs.stages[0].forward = 0.1;
  costs.stages[0].outputBytes = 1;
  costs.link.perByte = 1;
  // Four forwards at once: the last of four transfers arrives at 0.1 + 4.
  const Simulation run = take(simulate(made("gpipe", 2, 4), costs));
  double last = 0;
  for (const Transfer &each : run.transfers)
    if (each.from == 0)
      last = std::max(last, each.span.end);
  EXPECT_DOUBLE_EQ(last, 4.1);
}

TEST(Simulate, StragglersAndImbalanceStretchWhatTheyTouch) {
  const Schedule schedule = made("1f1b", 4, 16);
  const double before = take(simulate(schedule)).makespan;
  Costs costs;
  costs.rankFactor = {1, 1, 1.5, 1};
  const Simulation slow = take(simulate(schedule, costs));
  // The straggler is the bottleneck of the steady state: 16·3·1.5 of its own.
  EXPECT_DOUBLE_EQ(slow.ranks[2].busy, 72);
  EXPECT_GE(slow.makespan, 72);
  EXPECT_GT(slow.makespan, before);
  EXPECT_LE(slow.makespan, 1.5 * before);
  costs = {};
  costs.microbatchFactor.assign(16, 1);
  costs.microbatchFactor[3] = 2;
  EXPECT_DOUBLE_EQ(take(simulate(schedule, costs)).ranks[0].busy, 51);
}

TEST(Simulate, CountsBytesOfActivations) {
  Costs costs;
  costs.stages[0].activationBytes = 10;
  costs.stages[0].weightBytes = 4;
  EXPECT_DOUBLE_EQ(take(simulate(made("1f1b", 4, 8), costs)).ranks[0].peakBytes,
                   40);
  EXPECT_DOUBLE_EQ(take(simulate(made("1f1b", 4, 8), costs)).ranks[3].peakBytes,
                   10);
  // The last rank of ZB-H1 keeps p microbatches, all but one for W alone.
  const Simulation run = take(simulate(made("zb-h1", 4, 8), costs));
  EXPECT_EQ(run.ranks[3].peakLive, 4);
  EXPECT_DOUBLE_EQ(run.ranks[3].peakBytes, 3 * 4 + 10);
}

TEST(Simulate, TimesCollectivesAndTheOptimizer) {
  Costs costs;
  StageCost &stage = costs.stages[0];
  stage.unshard = 0.5;
  stage.reduceGrad = 0.25;
  stage.optimizer = 0.125;
  LowerOptions options;
  options.unsharded = 1;
  options.costs = costs;
  const Schedule schedule = take(lower(made("1f1b", 1, 2), options));
  // UNSHARD 0.5, F B F B, REDUCE_GRAD 0.25, OPT_STEP 0.125.
  Simulation run = take(simulate(schedule, costs));
  EXPECT_DOUBLE_EQ(run.makespan, 0.5 + 6 + 0.25 + 0.125);
  EXPECT_DOUBLE_EQ(run.ranks[0].busy, 6.125);
  costs.asyncCollectives = false;
  EXPECT_DOUBLE_EQ(take(simulate(schedule, costs)).makespan, 6.875);
}

TEST(Simulate, GathersTheNextStageBesideTheOneThatComputes) {
  Costs costs;
  costs.stages[0].unshard = 0.5;
  auto makespan = [&](int unsharded) {
    LowerOptions options;
    options.unsharded = unsharded;
    options.costs = costs;
    const Schedule schedule = made("interleaved", 1, 1, 2);
    return take(simulate(take(lower(schedule, options)), costs)).makespan;
  };
  // F F B B of 1, 1, 2, 2: with one at a time three gathers are waited for,
  // with two the first alone.
  EXPECT_DOUBLE_EQ(makespan(1), 6 + 3 * 0.5);
  EXPECT_DOUBLE_EQ(makespan(2), 6 + 0.5);
}

/// Rank 1 has one slot. The gradient of microbatch 0 leaves it from 4 to 14, so
/// microbatch 1, whose forward is through at 5, cannot write its own there.
TEST(Simulate, WaitsUntilABufferIsSentBeforeItIsOverwritten) {
  const Schedule schedule = take(parseCsv(
      "0F0@0,0SEND_F0@0,0F1@1,0RECV_B0@0,0SEND_F1@1,0B0@0,0RECV_B1@1,0B1@1,"
      "0REDUCE_GRAD,OPT_STEP\n"
      "1RECV_F0@0,1F0@0,1B0@0,1SEND_B0@0,1RECV_F1@0,1F1@0,1B1@0,1SEND_B1@0,"
      "1REDUCE_GRAD,OPT_STEP\n",
      "t"));
  EXPECT_TRUE(check(schedule).ok()) << check(schedule).message();
  Costs costs;
  costs.stages[0].outputBytes = 1;
  costs.links[{1, 0}].perByte = 10;
  const Simulation run = take(simulate(schedule, costs));
  EXPECT_DOUBLE_EQ(run.spans[1][5].end, 5);
  EXPECT_DOUBLE_EQ(run.spans[1][6].start, 14);
}

TEST(Simulate, RefusesWhatItCannotTime) {
  Costs costs;
  costs.asyncTransfers = false;
  EXPECT_EQ(simulate(made("1f1b", 2, 2), costs).message(),
            "the lists have no SEND and RECV, which blocking transfers "
            "require; lower the schedule first");
  Schedule schedule = made("1f1b", 2, 2);
  std::swap(schedule.lists[0][0], schedule.lists[0].back());
  EXPECT_EQ(simulate(schedule).message(),
            "rank 0, position 0: 0B1 waits forever");
}

} // namespace
} // namespace tessera::pipeline
