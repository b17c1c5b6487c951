// Fits of what was made up, so that the answer is known.
#include "runtime/bench/RateFit.h"

#include <gtest/gtest.h>

namespace tessera::bench {
namespace {

std::vector<RateSample> samplesOf(const planner::KernelRate &rate) {
  std::vector<RateSample> samples;
  for (double work : {1e3, 1e6, 1e8, 1e9})
    for (double traffic : {1e3, 1e5, 1e7})
      samples.push_back({work, traffic, rate.seconds(work, traffic)});
  return samples;
}

TEST(RateFit, FindsLaunchAndRates) {
  const planner::KernelRate rate{3e-6, 150e9, 40e9};
  const planner::KernelRate fit = fitRate(samplesOf(rate));
  EXPECT_NEAR(fit.launch / rate.launch, 1, 1e-6);
  EXPECT_NEAR(fit.flops / rate.flops, 1, 1e-6);
  EXPECT_NEAR(fit.bytes / rate.bytes, 1, 1e-6);
}

TEST(RateFit, WhatTakesNoTimeIsZero) {
  std::vector<RateSample> samples = samplesOf({3e-6, 150e9, 0});
  const planner::KernelRate fit = fitRate(samples);
  EXPECT_NEAR(fit.flops / 150e9, 1, 1e-6);
  EXPECT_TRUE(fit.bytes == 0 || fit.bytes > 1e15);
  for (RateSample &sample : samples)
    sample.work = 0;
  EXPECT_EQ(fitRate(samples).flops, 0);
  EXPECT_EQ(fitRate({}).launch, 0);
}

// With noise of a tenth, and never negative.
TEST(RateFit, ToleratesNoise) {
  const planner::KernelRate rate{1e-6, 150e9, 40e9};
  std::vector<RateSample> samples = samplesOf(rate);
  for (std::size_t i = 0; i < samples.size(); ++i)
    samples[i].seconds *= i % 2 == 0 ? 1.1 : 0.9;
  const planner::KernelRate fit = fitRate(samples);
  EXPECT_NEAR(fit.flops / rate.flops, 1, 0.15);
  EXPECT_GE(fit.launch, 0);
}

} // namespace
} // namespace tessera::bench
