// The most probable tokens of a teacher, against all of them sorted.
#include "runtime/generate/TeacherScores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

using namespace tessera;

namespace {
/// Every second logit is a small integer, so that many are equal.
std::vector<float> drawLogits(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(count);
  for (std::size_t i = 0; i < count; ++i)
    logits[i] = i % 2 ? std::round(normal(random)) : normal(random);
  return logits;
}
} // namespace

TEST(TeacherScores, AreTheLargestOfASoftmax) {
  for (unsigned seed = 0; seed < 20; ++seed)
    for (std::size_t top : {1, 5, 63, 64})
      for (double temperature : {0.5, 1.0, 3.0}) {
        const std::vector<float> logits = drawLogits(64, seed);
        std::vector<int32_t> order(64);
        std::iota(order.begin(), order.end(), 0);
        std::ranges::sort(order, [&](int32_t a, int32_t b) {
          return std::pair(-logits[std::size_t(a)], a) <
                 std::pair(-logits[std::size_t(b)], b);
        });
        double sum = 0, others = 0;
        for (float logit : logits)
          sum += std::exp(logit / temperature);
        for (std::size_t i = top; i < 64; ++i)
          others += std::exp(logits[std::size_t(order[i])] / temperature);
        std::vector<int32_t> tokens(top);
        std::vector<float> logProbs(top + 1);
        ASSERT_TRUE(topClasses(logits, temperature, tokens, logProbs));
        for (std::size_t i = 0; i < top; ++i) {
          EXPECT_EQ(tokens[i], order[i]);
          EXPECT_NEAR(logProbs[i],
                      logits[std::size_t(tokens[i])] / temperature -
                          std::log(sum),
                      1e-5);
        }
        EXPECT_NEAR(logProbs[top],
                    std::max<double>(std::log(others / sum), kLeastLogProb),
                    1e-5);
      }
}

TEST(TeacherScores, RefuseLogitsThatAreNotFinite) {
  std::vector<int32_t> tokens(2);
  std::vector<float> logProbs(3);
  for (float wrong : {NAN, INFINITY, -INFINITY}) {
    const std::vector<float> logits{1, 2, wrong, 3};
    EXPECT_FALSE(topClasses(logits, 1, tokens, logProbs));
  }
}

TEST(TeacherScores, AreNoLowerThanTheLeast) {
  std::vector<int32_t> tokens(2);
  std::vector<float> logProbs(3);
  ASSERT_TRUE(
      topClasses(std::vector<float>{0, 500, -500}, 1, tokens, logProbs));
  EXPECT_EQ(tokens, (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(logProbs, (std::vector<float>{0, kLeastLogProb, kLeastLogProb}));
}
