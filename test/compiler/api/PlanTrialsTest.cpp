// Compiled programs decide which of the plans of a search is chosen.
#include "compiler/api/PlanTrials.h"
#include "parallelism/planner/MemoryModel.h"

#include <gtest/gtest.h>

#include "test/compiler/api/FakePrograms.h"
#include "test/compiler/api/TinyQuestion.h"

namespace tessera {
namespace {

using testing::FakePrograms;
using testing::kTooMuch;

class PlanTrialsTest : public ::testing::Test {
protected:
  PlanTrialsTest() {
    answer.search = search(question.model, question.cluster, question.workload,
                           60, question.scope, 1.15);
    answer.chosen = *answer.search->chosen;
  }
  Status tryWith(FakePrograms &programs) {
    return tryPlans({.spec = testing::kTinySpec,
                     .recipe = {},
                     .set = testing::kTinyKeys,
                     .find = programs.find()},
                    question, answer);
  }

  planner::Question question = testing::tinyQuestion();
  planner::Answer answer;
};

TEST_F(PlanTrialsTest, KeepsTheChosenPlanIfItsProgramFits) {
  const planner::ParallelPlan plan = answer.chosen.plan;
  FakePrograms programs(question);
  ASSERT_TRUE(tryWith(programs).ok());
  EXPECT_EQ(answer.chosen.plan, plan);
  ASSERT_TRUE(answer.chosen.program);
  EXPECT_EQ(answer.chosen.program->state, 1e9);
  EXPECT_EQ(programs.asked.at(0), programs.nameOf(answer.chosen));
}

TEST_F(PlanTrialsTest, ChoosesAnotherPlanIfItsProgramDoesNotFit) {
  const planner::Candidate first = answer.chosen;
  FakePrograms programs(question);
  programs.set(first, {.bytes = kTooMuch});
  ASSERT_TRUE(tryWith(programs).ok());
  EXPECT_FALSE(answer.chosen.plan == first.plan);
  ASSERT_TRUE(answer.chosen.program);
  EXPECT_LE(answer.chosen.bytes(), usableMemory(question.cluster.gpu));
  EXPECT_EQ(answer.search->chosen->plan, answer.chosen.plan);
  EXPECT_EQ(answer.trials.smallest->plan, first.plan);
}

TEST_F(PlanTrialsTest, SaysWhichPlanNeedsLeast) {
  FakePrograms programs(question, {.bytes = kTooMuch});
  programs.set(answer.chosen, {.bytes = kTooMuch - 1'000'000'000});
  const Status status = tryWith(programs);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message().find("the program of no plan fits "), 0U);
  EXPECT_NE(
      status.message().find(describe(answer.chosen.plan) + " needs least, "),
      std::string::npos)
      << status.message();
}

TEST_F(PlanTrialsTest, SaysWhyAllPlansAreRefused) {
  FakePrograms programs(question, {.cost = 0, .refusal = "no kernel for it"});
  const Status status = tryWith(programs);
  EXPECT_EQ(status.message(),
            "the compiler refuses every plan; the first one: " +
                describe(answer.chosen.plan) + ": no kernel for it");
}

// Of a plan that was given it is said whether it fits.
TEST_F(PlanTrialsTest, LeavesAGivenPlan) {
  answer.search.reset();
  answer.given = true;
  const planner::ParallelPlan plan = answer.chosen.plan;
  FakePrograms programs(question, {.bytes = kTooMuch});
  ASSERT_TRUE(tryWith(programs).ok());
  EXPECT_FALSE(answer.fits);
  EXPECT_EQ(answer.chosen.plan, plan);
  EXPECT_EQ(answer.chosen.program->state, double(kTooMuch));
}

TEST_F(PlanTrialsTest, TriesNothingWithoutATarget) {
  question.cluster.gpu.target.clear();
  EXPECT_EQ(whyNotTried(testing::kTinySpec, question),
            "dgx-h100-1x8 has no gpu.target to compile for; add it to its "
            "file, such as target: cuda:sm_80");
  FakePrograms programs(question);
  EXPECT_TRUE(tryWith(programs).ok());
  EXPECT_TRUE(programs.asked.empty());
  EXPECT_FALSE(answer.chosen.program);
}

} // namespace
} // namespace tessera
