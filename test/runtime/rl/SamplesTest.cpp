// Advantages against numbers worked out by hand.
#include "runtime/rl/Samples.h"

#include <gtest/gtest.h>

namespace tessera::rl {
namespace {

using recipe::Baseline;
using recipe::RewardScale;

Group groupOf(std::initializer_list<std::optional<double>> rewards) {
  Group group;
  for (const auto &reward : rewards)
    group.samples.push_back({.tokens = {1}, .reward = reward});
  return group;
}

void expectNear(const std::vector<double> &values,
                const std::vector<double> &expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], expected[i], 1e-12) << i;
}

TEST(Advantages, OfAGroupByItsMeanAndItsDeviation) {
  // Mean 2, deviation sqrt((1 + 1 + 4 + 0) / 3) = sqrt 2.
  const double by = std::sqrt(2.0) + 1e-4;
  expectNear(
      advantagesOf(groupOf({1, 1, 4, 2}), Baseline::Group, RewardScale::Group),
      {-1 / by, -1 / by, 2 / by, 0});
  expectNear(
      advantagesOf(groupOf({1, 1, 4, 2}), Baseline::Group, RewardScale::None),
      {-1, -1, 2, 0});
}

TEST(Advantages, OfTheOthers) {
  expectNear(advantagesOf(groupOf({1, 0, 5}), Baseline::LeaveOneOut,
                          RewardScale::None),
             {1 - 2.5, 0 - 3.0, 5 - 0.5});
  // Alone there are no others to compare with.
  expectNear(
      advantagesOf(groupOf({3}), Baseline::LeaveOneOut, RewardScale::None),
      {0});
}

TEST(Advantages, WithoutABaseline) {
  expectNear(advantagesOf(groupOf({1, -2}), Baseline::None, RewardScale::None),
             {1, -2});
}

TEST(Advantages, SamplesWithoutARewardDoNotCount) {
  expectNear(advantagesOf(groupOf({1, std::nullopt, 3}), Baseline::Group,
                          RewardScale::None),
             {-1, 0, 1});
}

TEST(Advantages, EqualRewardsTeachNothing) {
  expectNear(
      advantagesOf(groupOf({0.5, 0.5}), Baseline::Group, RewardScale::Group),
      {0, 0});
}

} // namespace
} // namespace tessera::rl
