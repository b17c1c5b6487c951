// Reward programs that answer, and every way in which one can fail to.
#include "runtime/rl/Reward.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <thread>

namespace tessera::rl {
namespace {

const RewardQuestion kQuestion{R"({"prompt": "2+2=", "answer": 4})",
                               "4\n\"four\"", false};

std::string errorOf(const std::string &command, int64_t seconds = 20) {
  auto reward = rewardProgram(command, seconds);
  auto answer = reward->score(kQuestion);
  return answer.ok() ? "no error" : answer.message();
}

TEST(RewardProgram, IsAskedByALineOfJson) {
  const auto line = nlohmann::json::parse(printQuestion(kQuestion, 7));
  EXPECT_EQ(line["prompt"]["answer"], 4);
  EXPECT_EQ(line["id"], 7);
  EXPECT_EQ(line["completion"], "4\n\"four\"");
  EXPECT_EQ(line["finish_reason"], "stop");
  EXPECT_EQ(printQuestion(kQuestion, 7).find('\n'),
            printQuestion(kQuestion, 7).size() - 1);
}

TEST(RewardProgram, AnswersOneQuestionAfterAnother) {
  auto reward = rewardProgram(
      "n=0; while read -r line; do n=$((n+1)); echo \" $n.5\"; done", 20);
  for (int i = 1; i < 100; ++i) {
    auto answer = reward->score(kQuestion);
    ASSERT_TRUE(answer.ok()) << answer.message();
    EXPECT_EQ(*answer, i + 0.5);
  }
}

TEST(RewardProgram, SaysWhatIsWrong) {
  EXPECT_EQ(errorOf("read -r line; echo good"),
            "it wrote 'good', which is not a number");
  EXPECT_EQ(errorOf("read -r line; echo 2 1"),
            "it wrote '2 1', an answer to question 2, and 1 was asked");
  EXPECT_EQ(errorOf("read -r line; echo"),
            "it wrote '', which is not a number");
  EXPECT_EQ(errorOf("read -r line; echo nan"),
            "the reward is nan, which is not a number up to 1e+15");
  EXPECT_EQ(errorOf("read -r line; echo -1e300"),
            "the reward is -1e+300, which is not a number up to 1e+15");
  EXPECT_EQ(errorOf("read -r line; exit 3"),
            "it exited with code 3 without an answer");
  EXPECT_EQ(errorOf("read -r line; kill -9 $$"),
            "it was ended by signal 9 without an answer");
  EXPECT_EQ(errorOf("exec 1>&-; sleep 20"),
            "it closed its output without an answer");
  EXPECT_EQ(
      errorOf("/no/such/program 2>/dev/null"),
      "it exited with code 127 (the shell did not find it) without an answer");
  EXPECT_TRUE(errorOf("read -r line; yes | tr -d '\\n'")
                  .starts_with("it wrote 'yyyyyy"));
}

TEST(RewardProgram, BeginsBeforeItIsAsked) {
  auto lasting = rewardProgram("read -r line; echo 3", 20);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(lasting->begin().ok());
  EXPECT_EQ(*lasting->score(kQuestion), 3);

  auto ending = rewardProgram("exit 4", 20);
  EXPECT_TRUE(ending->begin().ok());
  Status status = Status::success();
  for (int i = 0; i < 2000 && status.ok(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    status = ending->begin();
  }
  EXPECT_EQ(status.message(),
            "it exited with code 4 before the first completion");
}

TEST(RewardProgram, DoesNotWaitForever) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(errorOf("sleep 60; echo 1", 1),
            "no line within 1 s (rollout.reward_timeout); its output must be "
            "flushed");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(RewardProgram, MayAnswerWithTheId) {
  auto reward =
      rewardProgram("read -r a; echo 1 0.5; read -r b; echo 1 0.5", 20);
  auto answer = reward->score(kQuestion);
  ASSERT_TRUE(answer.ok()) << answer.message();
  EXPECT_EQ(*answer, 0.5);
  answer = reward->score(kQuestion); // with the id of the one before
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.message(),
            "it wrote '1 0.5', an answer to question 1, and 2 was asked");
}

TEST(RewardProgram, IsStartedAgainAfterAnError) {
  const std::string file = ::testing::TempDir() + "/reward-once";
  ::unlink(file.c_str());
  auto reward = rewardProgram("if [ -e " + file +
                                  " ]; then while read -r l; "
                                  "do echo 7; done; else touch " +
                                  file + "; exit 1; fi",
                              20);
  EXPECT_FALSE(reward->score(kQuestion).ok());
  for (int i = 0; i < 3; ++i) {
    auto answer = reward->score(kQuestion);
    ASSERT_TRUE(answer.ok()) << answer.message();
    EXPECT_EQ(*answer, 7);
  }
}

TEST(RewardProgram, TwoAnswersToOneQuestionAreAnError) {
  auto reward =
      rewardProgram("while read -r l; do printf '1\\n2\\n'; done", 20);
  ASSERT_TRUE(reward->score(kQuestion).ok());
  auto answer = reward->score(kQuestion);
  ASSERT_FALSE(answer.ok());
  EXPECT_TRUE(answer.message().starts_with("it wrote '2")) << answer.message();
}

TEST(RewardProgram, ALongQuestionArrivesWhole) {
  const std::string text(1 << 22, 'x');
  auto reward =
      rewardProgram("while read -r l; do printf '%s' \"$l\" | wc -c; done", 60);
  const RewardQuestion question{"{}", text, true};
  auto answer = reward->score(question);
  ASSERT_TRUE(answer.ok()) << answer.message();
  EXPECT_EQ(*answer, double(printQuestion(question, 1).size() - 1));
}

} // namespace
} // namespace tessera::rl
