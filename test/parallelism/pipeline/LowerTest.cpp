// What lowering adds, and that it leaves the compute alone. That its lists run
// is for the check, which every generator's tests call.
#include <algorithm>
#include <map>

#include "test/parallelism/pipeline/Cases.h"

namespace tessera::pipeline {
namespace {

TEST(Lower, TakesAsFewSlotsAsAreLiveAtOnce) {
  for (const Case &each : allCases()) {
    SCOPED_TRACE(each.text());
    const Schedule lowered =
        take(lower(take(generate(*each.policy, each.shape))));
    for (int rank = 0; rank < lowered.ranks; ++rank) {
      const InstructionList &list = lowered.lists[size_t(rank)];
      // From the first to the last mention, counted position by position.
      std::map<std::pair<int, int>, std::pair<size_t, size_t>> lives;
      for (size_t k = 0; k < list.size(); ++k)
        for (const Work &work : {list[k].work, list[k].backward})
          if (work.microbatch >= 0)
            lives.try_emplace({work.stage, work.microbatch}, k, k)
                .first->second.second = k;
      size_t most = 0;
      for (size_t k = 0; k < list.size(); ++k)
        most = std::max(
            most, size_t(std::ranges::count_if(lives, [&](const auto &each) {
              return each.second.first <= k && k <= each.second.second;
            })));
      EXPECT_EQ(size_t(lowered.slots[size_t(rank)]), most);
    }
  }
}

TEST(Lower, KeepsTheOrderOfCompute) {
  for (const Case &each : allCases()) {
    const Schedule schedule = take(generate(*each.policy, each.shape));
    LowerOptions options;
    options.unsharded = 2;
    Schedule lowered = take(lower(schedule, options));
    for (InstructionList &list : lowered.lists) {
      std::erase_if(list,
                    [](const Instruction &one) { return !isCompute(one.op); });
      for (Instruction &one : list)
        one.work.buffer = one.backward.buffer = -1;
    }
    EXPECT_EQ(lowered.lists, schedule.lists) << each.text();
  }
}

TEST(Lower, OrdersInstantsByWhatTheyNeed) {
  Costs costs;
  costs.stages[0] = {0, 0, 0, 0};
  for (const Case &each : allCases()) {
    LowerOptions options;
    options.costs = costs;
    const Status status =
        check(take(lower(take(generate(*each.policy, each.shape)), options)));
    EXPECT_TRUE(status.ok()) << each.text() << ": " << status.message();
  }
}

TEST(Lower, LetsGoOfTheStageThatIsNeededLast) {
  LowerOptions options;
  options.unsharded = 2;
  const Schedule schedule = take(lower(made("interleaved", 1, 1, 3), options));
  EXPECT_EQ(toText(schedule),
            "interleaved: 1 ranks, 3 stages, 1 microbatches\n"
            "rank 0 (3 slots): 0UNSHARD 1UNSHARD 0F0@0 0RESHARD 2UNSHARD "
            "1F0@1 2F0@2 2B0@2 2RESHARD 2REDUCE_GRAD 0UNSHARD 1B0@1 1RESHARD "
            "1REDUCE_GRAD 0B0@0 0RESHARD 0REDUCE_GRAD OPT_STEP\n");
}

TEST(Lower, RefusesWhatCannotBeLowered) {
  const Schedule lowered = take(lower(made("1f1b", 2, 2)));
  EXPECT_EQ(lower(lowered).message(),
            "the schedule is lowered already; expected one of compute only");
  LowerOptions options;
  options.unsharded = 1;
  EXPECT_TRUE(lower(made("dualpipe", 2, 4), options)
                  .message()
                  .ends_with("needs 2 gathered stages, but 1 are allowed"));
  Schedule broken = made("1f1b", 2, 2);
  broken.lists[0].pop_back();
  EXPECT_EQ(lower(broken).message(), "rank 0, at its end: 0B1 never ran");
}

} // namespace
} // namespace tessera::pipeline
