// The periodic part of a list, against the list itself.
#include "parallelism/pipeline/SteadyState.h"

#include "test/parallelism/pipeline/Cases.h"

namespace tessera::pipeline {
namespace {

/// As programs are lowered.
Schedule loweredOf(const Schedule &schedule) {
  LowerOptions options;
  options.costs.asyncTransfers = false;
  return take(lower(schedule, options));
}

TEST(SteadyState, RepeatsWhatTheListHas) {
  int found = 0;
  for (const Case &each : allCases()) {
    SCOPED_TRACE(each.text());
    for (const InstructionList &list :
         loweredOf(take(generate(*each.policy, each.shape))).lists) {
      const SteadyState state = findSteadyState(list);
      if (!state.trips)
        continue;
      ++found;
      ASSERT_GE(state.trips, 2);
      ASSERT_LE(state.end(), list.size());
      for (size_t k = state.begin; k < state.end(); ++k) {
        const size_t trip = (k - state.begin) / state.length;
        Instruction first =
            list[state.begin + (k - state.begin) % state.length];
        first.work.microbatch += int(trip) * state.microbatches;
        EXPECT_EQ(first.op, list[k].op);
        EXPECT_EQ(first.work.stage, list[k].work.stage);
        EXPECT_EQ(first.work.microbatch, list[k].work.microbatch);
      }
    }
  }
  EXPECT_GT(found, 200);
}

// What a stage keeps of a microbatch is free when the next trip needs its
// place.
TEST(SteadyState, ReusesEverySlot) {
  for (const Case &each : allCases())
    for (const InstructionList &list :
         loweredOf(take(generate(*each.policy, each.shape))).lists) {
      const SteadyState state = findSteadyState(list);
      auto has = [&](size_t k, const Work &work) {
        return list[k].work.stage == work.stage &&
               list[k].work.microbatch == work.microbatch;
      };
      for (size_t k = state.begin; k + state.length < state.end(); ++k) {
        Work next = list[k].work;
        next.microbatch += state.microbatches;
        for (size_t before = 0; before < k; ++before)
          ASSERT_FALSE(has(before, next)) << each.text();
      }
    }
}

TEST(SteadyState, OfEveryKindOfWorkOneComesBefore) {
  const InstructionList list = loweredOf(made("1f1b", 2, 8)).lists[0];
  const SteadyState state = findSteadyState(list);
  EXPECT_EQ(state.microbatches, 2);
  EXPECT_EQ(state.trips, 3);
  EXPECT_TRUE(std::any_of(
      list.begin(), list.begin() + ptrdiff_t(state.begin),
      [](const Instruction &each) { return each.op == Op::Backward; }));
}

TEST(SteadyState, WrittenIsNoMoreForMoreMicrobatches) {
  for (std::string_view policy : {"1f1b", "interleaved", "zb-h1"}) {
    const int chunks = policy == "interleaved" ? 2 : 1;
    auto written = [&](int microbatches) {
      size_t count = 0;
      for (const InstructionList &list :
           loweredOf(made(policy, 4, microbatches, chunks)).lists)
        count += findSteadyState(list).countWritten(list);
      return count;
    };
    // What does not fill a trip differs.
    EXPECT_LE(double(written(64)), 1.1 * double(written(32))) << policy;
    EXPECT_LE(double(written(128)), 1.1 * double(written(32))) << policy;
  }
}

// All forwards come before all backwards, so every microbatch is kept.
TEST(SteadyState, NoneOfSchedulesThatKeepEverything) {
  for (const InstructionList &list : loweredOf(made("gpipe", 2, 32)).lists)
    EXPECT_EQ(findSteadyState(list).trips, 0);
}

TEST(SteadyState, NoneOfShortLists) {
  EXPECT_EQ(findSteadyState({}).trips, 0);
  for (const InstructionList &list : loweredOf(made("1f1b", 4, 4)).lists)
    EXPECT_EQ(findSteadyState(list).trips, 0);
}

} // namespace
} // namespace tessera::pipeline
