// The periodic part of a list, against the list itself.
#include "parallelism/pipeline/SteadyState.h"

#include <algorithm>
#include <array>

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
        for (Work *work : {&first.work, &first.backward})
          if (work->microbatch >= 0)
            work->microbatch += int(trip) * state.microbatches;
        // Buffers are numbered for the whole list.
        Instruction other = list[k];
        for (Work *work :
             {&first.work, &first.backward, &other.work, &other.backward})
          work->buffer = -1;
        EXPECT_EQ(first, other) << toString(first) << " " << toString(other);
      }
    }
  }
  EXPECT_GT(found, 200);
}

// What a stage keeps of a microbatch is free when a trip needs its place, and
// not before.
TEST(SteadyState, ReusesEverySlot) {
  int several = 0;
  for (const Case &each : allCases())
    for (const InstructionList &list :
         loweredOf(take(generate(*each.policy, each.shape))).lists) {
      const SteadyState state = findSteadyState(list);
      // Whether all of a microbatch comes before all of the one that is as many
      // trips later.
      auto isFreeAfter = [&](int trips) {
        std::map<std::pair<int, int>, size_t> first;
        for (size_t k = 0; k < list.size(); ++k)
          for (const Work &work : {list[k].work, list[k].backward})
            first.try_emplace({work.stage, work.microbatch}, k);
        for (size_t k = state.begin; k < list.size(); ++k)
          for (const Work &work : {list[k].work, list[k].backward}) {
            if (work.microbatch < 0)
              continue;
            auto next = first.find(
                {work.stage, work.microbatch + trips * state.microbatches});
            auto own = first.find({work.stage, work.microbatch});
            if (own->second < state.end() && next != first.end() &&
                next->second <= k)
              return false;
          }
        return true;
      };
      if (!state.trips)
        continue;
      ASSERT_TRUE(isFreeAfter(state.inFlight)) << each.text();
      if (state.inFlight > 1) {
        ++several;
        ASSERT_FALSE(isFreeAfter(state.inFlight - 1)) << each.text();
        ASSERT_GE(state.microbatches, kFewestInTrip) << each.text();
      }
    }
  EXPECT_GT(several, 10);
}

// If no more is written for it, so that sums have a term already.
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
  for (std::string_view policy :
       {"1f1b", "interleaved", "zb-h1", "dualpipev"}) {
    const int chunks = findPolicy(policy)->minChunks;
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

// Eight microbatches are all written. Around the periodic part transfers come
// in another order, so it is shorter than that of the work alone.
TEST(SteadyState, LittleMoreIsWrittenThanOfEightMicrobatches) {
  auto written = [](std::string_view policy, int ranks, int microbatches,
                    int chunks) {
    size_t count = 0;
    for (const InstructionList &list :
         loweredOf(made(policy, ranks, microbatches, chunks)).lists)
      count += findSteadyState(list).countWritten(list);
    return double(count);
  };
  for (auto [policy, chunks, most] :
       {std::tuple("1f1b", 1, 1.1), std::tuple("zb-h1", 1, 1.1),
        std::tuple("interleaved", 2, 1.5), std::tuple("zb-v", 2, 1.65)})
    for (int ranks : {2, 4})
      EXPECT_LE(written(policy, ranks, 64, chunks),
                most * written(policy, ranks, 8, chunks))
          << policy << " " << ranks;
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
