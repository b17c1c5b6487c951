#include "compiler/api/Extrapolation.h"
#include <gtest/gtest.h>
#include <vector>

namespace tessera {
namespace {

double linear(const ExtentFeatures &at, double constant, double perLayer,
              double perFlight) {
  return constant + perLayer * at[1] + perFlight * at[2];
}

double through(const std::vector<ExtentFeatures> &points,
               const ExtentFeatures &to, double constant, double perLayer,
               double perFlight) {
  std::vector<double> values;
  for (const ExtentFeatures &point : points)
    values.push_back(linear(point, constant, perLayer, perFlight));
  return linearAt(points, values, to);
}

// Layers and what is in flight vary by themselves.
TEST(ExtrapolationTest, ThreePoints) {
  const ExtentFeatures to{1, 20, 44};
  EXPECT_NEAR(through({{1, 2, 5}, {1, 3, 7}, {1, 4, 10}}, to, 7, 3, 0.5),
              linear(to, 7, 3, 0.5), 1e-9);
}

// More layers have as many more in flight: one slope holds both.
TEST(ExtrapolationTest, ProportionalPoints) {
  const ExtentFeatures to{1, 20, 40};
  EXPECT_NEAR(through({{1, 2, 4}, {1, 3, 6}, {1, 4, 8}}, to, 7, 3, 0.5),
              linear(to, 7, 3, 0.5), 1e-9);
  EXPECT_NEAR(through({{1, 1, 2}, {1, 3, 6}}, to, 7, 3, 0.5),
              linear(to, 7, 3, 0.5), 1e-9);
}

// Equal layers: along what is in flight.
TEST(ExtrapolationTest, EqualLayers) {
  const ExtentFeatures to{1, 2, 12};
  EXPECT_NEAR(through({{1, 2, 4}, {1, 2, 6}}, to, 7, 3, 0.5),
              linear(to, 7, 3, 0.5), 1e-9);
}

TEST(ExtrapolationTest, EqualPoints) {
  EXPECT_EQ(through({{1, 2, 4}, {1, 2, 4}}, {1, 5, 9}, 7, 3, 0.5), 15);
}

} // namespace
} // namespace tessera
