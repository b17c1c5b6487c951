#include "runtime/support/PeakFlops.h"
#include "runtime/support/CpuFeatures.h"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

using namespace tessera;

TEST(PeakFlops, UsesTheWidestInstructionOfThisMachine) {
  CpuFeatures cpu = CpuFeatures::detect();
  std::string fp32 = measurePeakFlops(PeakType::fp32, 1).instruction;
  std::string bf16 = measurePeakFlops(PeakType::bf16, 1).instruction;
  if (cpu.has("avx512f"))
    EXPECT_EQ(fp32, "vfmadd231ps zmm");
  else if (cpu.has("avx2") && cpu.has("fma"))
    EXPECT_EQ(fp32, "vfmadd231ps ymm");
  else
    EXPECT_EQ(fp32, "scalar");
  std::string matrices = measurePeakFlops(PeakType::bf16Matrix, 1).instruction;
  EXPECT_EQ(matrices, cpu.has("amx_bf16") ? "tdpbf16ps" : fp32);
  EXPECT_EQ(bf16, cpu.has("avx512_bf16") ? "vdpbf16ps zmm" : fp32);
}

TEST(PeakFlops, KeepsToNarrowRegistersWhereToldTo) {
  CpuFeatures cpu = CpuFeatures::detect();
  if (!cpu.has("avx2") || !cpu.has("fma"))
    GTEST_SKIP() << "no AVX2 here";
  for (PeakType type : {PeakType::fp32, PeakType::bf16})
    EXPECT_STREQ(measurePeakFlops(type, 1, 256).instruction, "vfmadd231ps ymm");
}

TEST(PeakFlops, IsAFiniteNumberForAnyThreadCount) {
  for (unsigned threads : {0u, 1u, 3u}) {
    double peak = measurePeakFlops(PeakType::fp32, threads).perSecond;
    EXPECT_TRUE(std::isfinite(peak) && peak > 0) << threads;
  }
}
