// Candidates are compiled in order, each program once, in the time that there
// is.
#include "compiler/api/TrialWalk.h"

#include <gtest/gtest.h>

#include "test/compiler/api/FakePrograms.h"
#include "test/compiler/api/TinyQuestion.h"

namespace tessera {
namespace {

using planner::Candidate;
using testing::kTooMuch;

constexpr double kSeconds = 14;

class TrialWalkTest : public ::testing::Test {
protected:
  Candidate plan(const std::string &text) {
    return testing::candidateOf(question, text);
  }
  std::vector<std::string> run(TrialWalk &walk,
                               const std::vector<Candidate> &candidates,
                               size_t count = 10) {
    std::vector<std::string> names;
    for (const Candidate &each : walk.run(candidates, count))
      names.push_back(describe(each.plan));
    return names;
  }
  static std::vector<std::string> namesOf(std::vector<Candidate> candidates) {
    std::vector<std::string> names;
    for (const Candidate &each : candidates)
      names.push_back(describe(each.plan));
    return names;
  }

  const planner::Question question = testing::tinyQuestion();
  testing::FakePrograms programs{question};
  TrialWalk walk{programs.find(), question, kSeconds};
};

TEST_F(TrialWalkTest, KeepsTheOrderOfThoseThatFit) {
  const Candidate data = plan("data=4,micro=1"), tensor = plan("tensor=2"),
                  pipe = plan("pipe=2"), expert = plan("expert=4");
  programs.set(tensor, {.bytes = kTooMuch});
  EXPECT_EQ(run(walk, {pipe, tensor, expert, data}),
            namesOf({pipe, expert, data}));
  EXPECT_EQ(walk.trials().compiled, 4);
  EXPECT_EQ(walk.trials().unfit, 1);
  ASSERT_TRUE(walk.trials().smallest);
  EXPECT_EQ(walk.trials().smallest->plan, tensor.plan);
  EXPECT_EQ(walk.trials().smallest->program->state, double(kTooMuch));
}

TEST_F(TrialWalkTest, EndsWhenEnoughFit) {
  const Candidate data = plan("data=4,micro=1"), tensor = plan("tensor=2"),
                  pipe = plan("pipe=2"), expert = plan("expert=4");
  programs.set(data, {.bytes = kTooMuch});
  EXPECT_EQ(run(walk, {data, tensor, pipe, expert}, 1), namesOf({tensor}));
  EXPECT_EQ(programs.asked.size(), 2U); // two are compiled at once
}

// Gradients that are reduced once a step are sharded with the optimizer state,
// so that ZeRO-2 is ZeRO-1.
TEST_F(TrialWalkTest, CompilesPlansOfOneProgramOnce) {
  const Candidate one = plan("data=4,micro=2,zero=1"),
                  two = plan("data=4,micro=2,zero=2");
  EXPECT_EQ(run(walk, {one, two}), namesOf({one, two}));
  EXPECT_EQ(programs.asked, std::vector{programs.nameOf(one)});
  EXPECT_EQ(walk.trials().compiled, 1);
  // Nor again in another walk over the same.
  EXPECT_EQ(run(walk, {two}), namesOf({two}));
  EXPECT_EQ(walk.trials().compiled, 1);
  EXPECT_EQ(walk.trials().programs.size(), 2U);
}

// A program that needs far more than formulas say speaks for others of its
// kind.
TEST_F(TrialWalkTest, LeavesOutWhatIsLikeAPlanThatDoesNotFit) {
  const Candidate one = plan("data=4,micro=1"), two = plan("data=4,micro=2"),
                  tensor = plan("tensor=2");
  programs.set(one, {.bytes = kTooMuch});
  EXPECT_EQ(run(walk, {one, tensor, two}), namesOf({tensor}));
  EXPECT_EQ(walk.trials().unfit, 1);
  EXPECT_EQ(walk.trials().alike, 1);
  EXPECT_EQ(programs.asked,
            (std::vector{programs.nameOf(one), programs.nameOf(tensor)}));
}

TEST_F(TrialWalkTest, NamesTheFirstThatIsRefused) {
  const Candidate data = plan("data=4,micro=1"), tensor = plan("tensor=2"),
                  pipe = plan("pipe=2");
  programs.set(data, {.refusal = "too wide"});
  programs.set(tensor, {.refusal = "too deep"});
  EXPECT_EQ(run(walk, {data, tensor, pipe}), namesOf({pipe}));
  EXPECT_EQ(walk.trials().refused, 2);
  EXPECT_EQ(walk.trials().refusal, describe(data.plan) + ": too wide");
  EXPECT_FALSE(walk.trials().smallest);
}

// Candidates after the time limit keep the estimates of the formulas.
TEST_F(TrialWalkTest, SpendsNoMoreThanItsTime) {
  const Candidate data = plan("data=4,micro=1"), tensor = plan("tensor=2"),
                  pipe = plan("pipe=2"), expert = plan("expert=4");
  for (const Candidate &each : {data, tensor, pipe, expert})
    programs.set(each, {.cost = kSeconds / 2});
  const std::vector<Candidate> kept =
      walk.run(std::vector{data, tensor, pipe}, 3);
  ASSERT_EQ(kept.size(), 3U);
  EXPECT_TRUE(kept[0].program && kept[1].program);
  EXPECT_FALSE(kept[2].program);
  EXPECT_EQ(walk.trials().compiled, 2);
  EXPECT_EQ(walk.trials().estimated, 1);
  walk.grant(kSeconds / 2);
  EXPECT_TRUE(walk.run(std::vector{expert}, 1).at(0).program);
  EXPECT_EQ(walk.trials().compiled, 3);
}

TEST_F(TrialWalkTest, SpendsTwiceItsTimeUntilOneFits) {
  const Candidate all[] = {plan("data=4,micro=1"), plan("tensor=2"),
                           plan("pipe=2"), plan("expert=4")};
  for (const Candidate &each : all)
    programs.set(each, {.bytes = kTooMuch, .cost = 0.6 * kSeconds});
  EXPECT_EQ(walk.run(all, 4).size(), 1U);
  EXPECT_EQ(walk.trials().compiled, 3);
  EXPECT_EQ(walk.trials().estimated, 1);
}

TEST_F(TrialWalkTest, LeavesOutWhatTakesAllTimeAlone) {
  const Candidate data = plan("data=4,micro=1");
  programs.set(data, {.cost = kSeconds + 1});
  EXPECT_EQ(run(walk, {data}), namesOf({data}));
  EXPECT_EQ(walk.trials().compiled, 0);
  EXPECT_EQ(walk.trials().estimated, 1);
}

} // namespace
} // namespace tessera
