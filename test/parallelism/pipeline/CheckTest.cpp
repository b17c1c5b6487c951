// Planted defects: each breaks a good schedule in one way, and the check must
// say which.
#include <algorithm>
#include <random>

#include "test/parallelism/pipeline/Cases.h"

namespace tessera::pipeline {
namespace {

/// Position of an instruction by its text, up to the buffer.
size_t find(const InstructionList &list, std::string_view text) {
  for (size_t k = 0; k < list.size(); ++k) {
    const std::string full = toString(list[k]);
    if (full == text || (full.starts_with(text) && full[text.size()] == '@'))
      return k;
  }
  ADD_FAILURE() << "no " << text;
  return 0;
}

std::string fault(const Schedule &schedule, int memory = 0) {
  return check(schedule, memory).message();
}

/// Two ranks, three microbatches:
///   rank 0: F0 F1 B0 F2 B1 B2, rank 1: F0 B0 F1 B1 F2 B2
Schedule small() { return made("1f1b", 2, 3); }
Schedule smallLowered(int unsharded = 0) {
  LowerOptions options;
  options.unsharded = unsharded;
  return take(lower(small(), options));
}

void drop(InstructionList &list, std::string_view text) {
  list.erase(list.begin() + std::ptrdiff_t(find(list, text)));
}

void duplicate(InstructionList &list, std::string_view text) {
  const size_t place = find(list, text);
  list.insert(list.begin() + std::ptrdiff_t(place), list[place]);
}

void exchange(InstructionList &list, std::string_view a, std::string_view b) {
  std::swap(list[find(list, a)], list[find(list, b)]);
}

TEST(Check, SmallSchedulesAreGood) {
  EXPECT_EQ(fault(small()), "");
  EXPECT_EQ(fault(smallLowered()), "");
  EXPECT_EQ(fault(smallLowered(1)), "");
  EXPECT_EQ(toText(smallLowered()),
            "1f1b: 2 ranks, 2 stages, 3 microbatches\n"
            "rank 0 (2 slots): 0F0@0 0SEND_F0@0 0F1@1 0SEND_F1@1 0RECV_B0@0 "
            "0B0@0 0F2@0 0SEND_F2@0 0RECV_B1@1 0B1@1 0RECV_B2@0 0B2@0 "
            "0REDUCE_GRAD OPT_STEP\n"
            "rank 1 (2 slots): 1RECV_F0@0 1RECV_F1@1 1F0@0 1B0@0 1SEND_B0@0 "
            "1F1@1 1RECV_F2@0 1B1@1 1SEND_B1@1 1F2@0 1B2@0 1SEND_B2@0 "
            "1REDUCE_GRAD OPT_STEP\n");
}

TEST(Check, FindsWhatIsComputedWrongly) {
  Schedule s = small();
  drop(s.lists[0], "0F1");
  EXPECT_EQ(fault(s), "rank 0, position 3: 0B1 runs before its F");
  s = small();
  drop(s.lists[1], "1B2");
  EXPECT_EQ(fault(s), "rank 1, at its end: 1B2 never ran");
  s = small();
  duplicate(s.lists[1], "1F1");
  EXPECT_EQ(fault(s), "rank 1, position 3: 1F1 runs twice");
  s = small();
  duplicate(s.lists[1], "1B1");
  EXPECT_EQ(fault(s), "rank 1, position 4: 1B1 runs twice");
  s = made("zb-h1", 2, 3);
  drop(s.lists[0], "0W2");
  EXPECT_EQ(fault(s), "rank 0, at its end: 0W2 never ran");
  s = made("zb-h1", 2, 3);
  exchange(s.lists[0], "0I1", "0W1");
  EXPECT_TRUE(fault(s).ends_with("0W1 runs before its I")) << fault(s);
  s = small();
  drop(s.lists[0], "0F2");
  drop(s.lists[0], "0B2");
  EXPECT_EQ(fault(s), "rank 0, at its end: 0F2 never ran");
}

TEST(Check, FindsWorkInTheWrongPlace) {
  Schedule s = small();
  s.lists[0][0].work.stage = 1;
  EXPECT_EQ(fault(s), "rank 0, position 0: 1F0 belongs to rank 1");
  s = small();
  s.lists[0][0].work.stage = 7;
  EXPECT_EQ(fault(s), "rank 0, position 0: 7F0 has no stage of the 2");
  s = small();
  s.lists[0][0].work.microbatch = 3;
  EXPECT_EQ(fault(s), "rank 0, position 0: 0F3 has no microbatch of the 3");
  s = made("dualpipe", 2, 4);
  s.lists[0][find(s.lists[0], "0F0")].work.microbatch = 3;
  EXPECT_TRUE(
      fault(s).ends_with("is of a microbatch that runs through chain 1"))
      << fault(s);
  s = small();
  s.placement[1] = 2;
  EXPECT_EQ(fault(s), "stage 1 is placed on rank 2 of 2");
  s = small();
  s.microbatches = 100;
  EXPECT_EQ(fault(s), "2 stages and 100 microbatches need 200 F, but there are "
                      "only 12 instructions");
  s = small();
  s.lists[0].push_back({Op::OptimizerStep, {}, {}});
  EXPECT_EQ(fault(s), "rank 0, position 6: OPT_STEP is in a schedule "
                      "without buffers; give only compute, or buffers as in "
                      "0F3@1");
}

TEST(Check, FindsOrdersInWhichRanksWaitForOneAnother) {
  // Rank 0 wants the gradient of 1 first, rank 1 never gets the F for it.
  Schedule s = small();
  exchange(s.lists[0], "0F1", "0B0");
  exchange(s.lists[1], "1F0", "1F1");
  exchange(s.lists[1], "1B0", "1B1");
  EXPECT_EQ(fault(s), "rank 0, position 1: 0B0 waits forever");
  // Both send first, which only works if somebody buffers.
  s = smallLowered();
  InstructionList &list = s.lists[1];
  const Instruction moved = list[find(list, "1RECV_F1")];
  drop(list, "1RECV_F1");
  list.insert(list.begin() + std::ptrdiff_t(find(list, "1F1")), moved);
  EXPECT_EQ(fault(s), "rank 0, position 3: 0SEND_F1@1 waits forever for rank "
                      "1, which is at position 3: 1SEND_B0@0");
}

TEST(Check, BoundsLiveActivations) {
  EXPECT_EQ(fault(small(), 2), "");
  EXPECT_EQ(fault(small(), 1), "rank 0, position 1: 0F1 makes 2 live "
                               "activations, 1 are allowed");
  EXPECT_EQ(fault(made("zb-h1", 4, 8), 4), "");
  EXPECT_NE(fault(made("zb-h1", 4, 8), 3), "");
}

TEST(Check, FindsTransfersThatDoNotFitTheCompute) {
  Schedule s = smallLowered();
  drop(s.lists[0], "0SEND_F1");
  EXPECT_EQ(fault(s), "rank 0, at its end: 0SEND_F1 never ran");
  s = smallLowered();
  drop(s.lists[1], "1SEND_B2");
  EXPECT_EQ(fault(s), "rank 1, at its end: 1SEND_B2 never ran");
  s = smallLowered();
  drop(s.lists[1], "1RECV_F1");
  EXPECT_EQ(fault(s), "rank 1, position 4: 1F1@1 runs before 1RECV_F1");
  s = smallLowered();
  drop(s.lists[0], "0RECV_B0");
  EXPECT_EQ(fault(s), "rank 0, position 4: 0B0@0 runs before 0RECV_B0");
  s = smallLowered();
  duplicate(s.lists[0], "0SEND_F0");
  EXPECT_EQ(fault(s), "rank 0, position 2: 0SEND_F0@0 runs twice");
  s = smallLowered();
  exchange(s.lists[0], "0F0", "0SEND_F0");
  EXPECT_EQ(fault(s), "rank 0, position 0: 0SEND_F0@0 runs before its F");
  s = smallLowered();
  exchange(s.lists[1], "1B2", "1SEND_B2");
  EXPECT_EQ(fault(s),
            "rank 1, position 10: 1SEND_B2@0 runs before its backward");
  s = smallLowered();
  s.lists[0][find(s.lists[0], "0SEND_F0")].op = Op::SendBackward;
  EXPECT_EQ(fault(s), "rank 0, position 1: 0SEND_B0@0 has no other rank to "
                      "send to or receive from");
}

TEST(Check, FindsChannelsWhoseEndsDisagree) {
  Schedule s = take(lower(made("gpipe", 2, 3)));
  exchange(s.lists[1], "1RECV_F0", "1RECV_F1");
  exchange(s.lists[1], "1F0", "1F1");
  EXPECT_EQ(fault(s),
            "rank 0, position 1: 0SEND_F0@0 is number 0 from there to rank 1, "
            "which waits for 1RECV_F1@1 at position 0 then");
}

TEST(Check, FindsBuffersThatAreOverwritten) {
  Schedule s = smallLowered();
  for (Instruction &each : s.lists[0])
    if (each.work.microbatch == 1)
      each.work.buffer = 0;
  EXPECT_EQ(fault(s), "rank 0, position 2: 0F1@0 overwrites what 0B0@0 at "
                      "position 5 needs");
  s = smallLowered();
  s.lists[0][find(s.lists[0], "0B1")].work.buffer = 0;
  EXPECT_EQ(fault(s),
            "rank 0, position 9: 0B1@0 has another buffer than 1 before it");
  s = smallLowered();
  s.lists[0][0].work.buffer = 2;
  EXPECT_EQ(fault(s),
            "rank 0, position 0: 0F0@2 has no buffer of the rank's 2");
  // Both halves of an OVERLAP run at once.
  EXPECT_EQ(fault(take(parseCsv("0F0@0,(0F1@0;0B0@0),0B1@0,0REDUCE_GRAD,"
                                "OPT_STEP\n",
                                "t"))),
            "rank 0, position 1: (0F1@0;0B0@0) overwrites what (0F1@0;0B0@0) "
            "at position 1 needs");
  s = smallLowered();
  s.slots[0] = 1000;
  EXPECT_EQ(fault(s), "rank 0 has 1000 slots for 14 instructions");
}

TEST(Check, FindsCollectivesOutOfPlace) {
  Schedule s = smallLowered(1);
  drop(s.lists[0], "0UNSHARD");
  EXPECT_NE(fault(s), "");
  s = take(lower(made("interleaved", 2, 2, 2), {.unsharded = 1, .costs = {}}));
  EXPECT_EQ(fault(s), "");
  Schedule broken = s;
  drop(broken.lists[0], "2UNSHARD");
  EXPECT_TRUE(fault(broken).find("2F0@") != std::string::npos &&
              fault(broken).ends_with("runs while its parameters are sharded"))
      << fault(broken);
  broken = s;
  duplicate(broken.lists[0], "0UNSHARD");
  EXPECT_EQ(fault(broken), "rank 0, position 1: 0UNSHARD gathers parameters "
                           "that are gathered already");
  broken = s;
  duplicate(broken.lists[0], "0RESHARD");
  EXPECT_TRUE(
      fault(broken).ends_with("releases parameters that are not gathered"));
  s = smallLowered();
  drop(s.lists[0], "0REDUCE_GRAD");
  EXPECT_EQ(fault(s), "rank 0, at its end: 0REDUCE_GRAD never ran");
  s = smallLowered();
  duplicate(s.lists[0], "0REDUCE_GRAD");
  EXPECT_EQ(fault(s), "rank 0, position 13: 0REDUCE_GRAD runs twice");
  s = smallLowered();
  exchange(s.lists[0], "0REDUCE_GRAD", "0B2");
  EXPECT_EQ(fault(s), "rank 0, position 12: 0B2@0 runs after its REDUCE_GRAD");
  s = smallLowered();
  drop(s.lists[1], "OPT_STEP");
  EXPECT_EQ(fault(s), "rank 1, at its end: OPT_STEP never ran");
  s = smallLowered();
  exchange(s.lists[1], "1REDUCE_GRAD", "OPT_STEP");
  EXPECT_EQ(fault(s), "rank 1, position 12: OPT_STEP is not the last of its "
                      "rank");
}

/// Forwards of two ranks, three microbatches, lowered or not.
Schedule counting(bool lowered, int unsharded = 0) {
  const Schedule forwards = forwardsOf(small());
  LowerOptions options;
  options.unsharded = unsharded;
  return lowered ? take(lower(forwards, options)) : forwards;
}

TEST(Check, ForwardsAloneAreGood) {
  EXPECT_EQ(fault(counting(false)), "");
  EXPECT_EQ(fault(counting(true)), "");
  EXPECT_EQ(fault(counting(true, 1)), "");
  EXPECT_EQ(toText(counting(true)),
            "1f1b: 2 ranks, 2 stages, 3 microbatches\n"
            "rank 0 (1 slots): 0F0@0 0SEND_F0@0 0F1@0 0SEND_F1@0 0F2@0 "
            "0SEND_F2@0\n"
            "rank 1 (2 slots): 1RECV_F0@0 1RECV_F1@1 1F0@0 1RECV_F2@0 1F1@1 "
            "1F2@0\n");
  // Nothing is kept for a backward, so nothing bounds it.
  EXPECT_EQ(fault(counting(false), 1), "");
}

TEST(Check, FindsForwardsThatAreMissingOrTooMany) {
  Schedule s = counting(false);
  duplicate(s.lists[0], "0F1");
  EXPECT_EQ(fault(s), "rank 0, position 2: 0F1 runs twice");
  s = counting(false);
  s.lists[1][find(s.lists[1], "1F1")].work.microbatch = 2;
  EXPECT_EQ(fault(s), "rank 1, position 2: 1F2 runs twice");
  s = counting(true);
  drop(s.lists[1], "1F2");
  EXPECT_EQ(fault(s), "rank 1, at its end: 1F2 never ran");
  s = counting(true);
  drop(s.lists[0], "0SEND_F1");
  EXPECT_EQ(fault(s), "rank 0, at its end: 0SEND_F1 never ran");
  s = counting(true);
  drop(s.lists[1], "1RECV_F1");
  EXPECT_EQ(fault(s), "rank 1, position 3: 1F1@1 runs before 1RECV_F1");
  s = counting(true, 1);
  drop(s.lists[1], "1UNSHARD");
  EXPECT_NE(fault(s), "");
}

TEST(Check, FindsWhatForwardsAloneDoNot) {
  for (Op op : {Op::Backward, Op::BackwardInput, Op::BackwardWeight}) {
    Schedule s = counting(false);
    s.lists[0].push_back({op, {0, 2}, {}});
    EXPECT_EQ(fault(s),
              fmt::format("rank 0, position 3: 0{}2 is in a schedule of "
                          "forwards only",
                          name(op)));
  }
  Schedule s = counting(true);
  s.lists[1].push_back({Op::SendBackward, {1, 2, 0}, {}});
  EXPECT_TRUE(fault(s).ends_with("is in a schedule of forwards only"));
  for (Op op : {Op::ReduceGrad, Op::OptimizerStep}) {
    s = counting(true);
    s.lists[0].push_back(op == Op::OptimizerStep ? Instruction{op, {}, {}}
                                                 : Instruction{op, {0}, {}});
    EXPECT_TRUE(fault(s).ends_with("is in a schedule of forwards only"))
        << fault(s);
  }
  // What forwards alone may miss, all others may not.
  s = counting(false);
  s.forwardOnly = false;
  EXPECT_EQ(fault(s), "rank 0, at its end: 0B0 never ran");
}

TEST(Check, FindsForwardsThatWaitForOneAnother) {
  Schedule s = take(parseCsv("# tessera-schedule pass=forward\n"
                             "2F0,0F0\n1F0\n",
                             "t"));
  EXPECT_EQ(fault(s), "rank 0, position 0: 2F0 waits forever");
  s = counting(true);
  exchange(s.lists[0], "0F0", "0F1");
  exchange(s.lists[0], "0SEND_F0", "0SEND_F1");
  EXPECT_NE(fault(s), "");
}

/// Whoever can run, their forwards can; and they take no longer.
TEST(Check, ForwardsOfEverySchedulePass) {
  for (const Case &each : allCases()) {
    SCOPED_TRACE(each.text());
    const Schedule schedule = take(generate(*each.policy, each.shape));
    const Schedule forwards = forwardsOf(schedule);
    EXPECT_EQ(fault(forwards), "");
    LowerOptions options;
    options.unsharded = 1;
    for (bool async : {true, false}) {
      options.costs.asyncTransfers = async;
      EXPECT_EQ(fault(take(lower(forwards, options))), "");
    }
    const Simulation run = take(simulate(forwards));
    EXPECT_LE(run.makespan, take(simulate(schedule)).makespan);
    EXPECT_EQ(run.ranks.front().peakLive, 0);
    // Fills and drains once, where each rank has one stage.
    if (schedule.stages == schedule.ranks)
      EXPECT_DOUBLE_EQ(run.makespan,
                       schedule.microbatches + schedule.ranks - 1);
  }
}

TEST(Check, FindsReplicasThatReduceInAnotherOrder) {
  Schedule s = take(lower(made("dualpipe", 2, 4)));
  EXPECT_EQ(fault(s), "");
  // Stages 0 and 3 on rank 0, 1 and 2 on rank 1; 0 pairs with 2, 1 with 3.
  auto putLast = [&](int rank, std::string_view text) {
    InstructionList &list = s.lists[size_t(rank)];
    const Instruction moved = list[find(list, text)];
    drop(list, text);
    list.insert(list.end() - 1, moved);
  };
  putLast(0, "0REDUCE_GRAD");
  putLast(0, "3REDUCE_GRAD");
  putLast(1, "1REDUCE_GRAD");
  putLast(1, "2REDUCE_GRAD");
  EXPECT_TRUE(fault(s).find(": 1REDUCE_GRAD meets rank 0, position ") !=
                  std::string::npos &&
              fault(s).ends_with(": 0REDUCE_GRAD"))
      << fault(s);
}

TEST(Check, FindsDataParallelCopiesThatDiffer) {
  Schedule a = smallLowered(1), b = a;
  EXPECT_TRUE(checkSameCollectives(a, b).ok());
  drop(b.lists[1], "1REDUCE_GRAD");
  EXPECT_EQ(checkSameCollectives(a, b).message(),
            "rank 1: 1REDUCE_GRAD in one copy meets OPT_STEP in the other");
  EXPECT_EQ(checkSameCollectives(a, made("1f1b", 3, 3)).message(),
            "2 ranks in one copy, 3 in the other");
}

/// What a list means does not depend on neighbours that have nothing to do with
/// one another, so not every exchange is a defect; every loss and every
/// repetition is.
TEST(Check, CatchesEveryLossAndRepetition) {
  std::mt19937 random(7);
  for (const char *policy : {"1f1b", "interleaved", "zb-v", "dualpipe"}) {
    const int chunks = findPolicy(policy)->minChunks;
    LowerOptions options;
    options.unsharded = 2;
    const Schedule good = take(lower(made(policy, 4, 8, chunks), options));
    for (const bool twice : {false, true})
      for (int rank = 0; rank < good.ranks; ++rank)
        for (size_t k = 0; k < good.lists[size_t(rank)].size(); ++k) {
          if (good.lists[size_t(rank)][k].op == Op::Reshard && !twice)
            continue; // parameters that stay gathered cost memory alone
          Schedule bad = good;
          InstructionList &list = bad.lists[size_t(rank)];
          const auto place = list.begin() + std::ptrdiff_t(k);
          if (twice)
            list.insert(place, *place);
          else
            list.erase(place);
          EXPECT_NE(fault(bad), "") << policy << ", rank " << rank
                                    << ", position " << k << " " << twice;
        }
  }
}

/// An exchange within a list that the check lets pass must leave a schedule
/// that runs and computes the same: the simulator's dependencies, which share
/// nothing with the order of lists, still hold.
TEST(Check, ExchangesThatPassStillRun) {
  std::mt19937 random(11);
  int passed = 0, caught = 0;
  const Schedule good = take(lower(made("zb-h1", 4, 8)));
  for (int trial = 0; trial < 2000; ++trial) {
    Schedule bad = good;
    InstructionList &list = bad.lists[random() % 4];
    std::swap(list[random() % list.size()], list[random() % list.size()]);
    if (!fault(bad).empty()) {
      ++caught;
      continue;
    }
    ++passed;
    const Simulation run = take(simulate(bad));
    for (int rank = 0; rank < bad.ranks; ++rank)
      for (size_t k = 0; k < bad.lists[size_t(rank)].size(); ++k) {
        const Span span = run.spans[size_t(rank)][k];
        EXPECT_LE(span.start, span.end);
        EXPECT_LE(span.end, run.makespan);
      }
  }
  EXPECT_GT(passed, 0);
  EXPECT_GT(caught, 1000);
}

} // namespace
} // namespace tessera::pipeline
