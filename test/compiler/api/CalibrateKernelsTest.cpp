// Rates of kinds of kernels, from times that were made up.
#include "compiler/api/CalibrateKernels.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

using planner::KernelKind;
using planner::KernelRate;

/// Kernels that take `slowdown` times what `rate` says.
std::vector<bench::RateSample> samplesOf(const KernelRate &rate,
                                         double slowdown = 1) {
  std::vector<bench::RateSample> samples;
  for (double work : {1e3, 1e6, 1e8, 1e9})
    for (double traffic : {1e3, 1e5, 1e7})
      samples.push_back(
          {work, traffic, slowdown * rate.seconds(work, traffic)});
  return samples;
}

std::vector<bench::RateSample> &of(KernelSamples &samples, KernelKind kind) {
  return samples[size_t(kind)];
}
const KernelRate &of(const KernelCalibration &result, KernelKind kind) {
  return result.rates[size_t(kind)];
}

TEST(CalibrateKernels, FitsEachKindAlone) {
  KernelSamples samples;
  of(samples, KernelKind::matmul) = samplesOf({3e-6, 150e9, 40e9});
  of(samples, KernelKind::attention) = samplesOf({5e-6, 50e9, 20e9});
  const KernelCalibration result = fitKernels(samples, 3.5);
  EXPECT_NEAR(of(result, KernelKind::matmul).flops / 150e9, 1, 1e-6);
  EXPECT_NEAR(of(result, KernelKind::attention).flops / 50e9, 1, 1e-6);
  EXPECT_NEAR(of(result, KernelKind::attention).launch / 5e-6, 1, 1e-6);
  EXPECT_EQ(result.kernels, 24U);
  EXPECT_EQ(result.speedup, 3.5);
  EXPECT_NEAR(result.low, 1, 1e-6);
  EXPECT_NEAR(result.high, 1, 1e-6);
}

// Without native bf16 no matmul is in it.
TEST(CalibrateKernels, TakesMatmulsForKindsWithoutKernels) {
  KernelSamples samples;
  of(samples, KernelKind::matmul) = samplesOf({3e-6, 150e9, 40e9});
  const KernelCalibration result = fitKernels(samples, 1);
  EXPECT_EQ(of(result, KernelKind::matmulBf16).flops,
            of(result, KernelKind::matmul).flops);
  EXPECT_EQ(result.kernels, 12U);
}

// Half of the kernels take 1.2 times as long as the others, so that no rate
// predicts both.
TEST(CalibrateKernels, SaysHowFarOffSingleKernelsAre) {
  KernelSamples samples;
  auto &all = of(samples, KernelKind::matmul);
  all = samplesOf({3e-6, 150e9, 40e9});
  for (const bench::RateSample &each : samplesOf({3e-6, 150e9, 40e9}, 1.2))
    all.push_back(each);
  const KernelCalibration result = fitKernels(samples, 1);
  EXPECT_LT(result.low, 1);
  EXPECT_GT(result.high, 1);
  EXPECT_NEAR(result.high / result.low, 1.2, 0.01);
}

} // namespace
} // namespace tessera
