#include "compiler/api/LocalTargets.h"
#include "compiler/DeviceKinds.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "test/runtime/infer/TinyDecoder.h"

#include <cstdlib>

#include <gtest/gtest.h>

namespace tessera {
namespace {

using Targets = std::vector<std::string>;

/// Without TESSERA_CPU, which may be set where the tests run.
class LocalTargets : public ::testing::Test {
protected:
  void SetUp() override {
    if (const char *set = std::getenv("TESSERA_CPU"))
      before = set;
    ::unsetenv("TESSERA_CPU");
  }
  void TearDown() override {
    before.empty() ? ::unsetenv("TESSERA_CPU")
                   : ::setenv("TESSERA_CPU", before.c_str(), 1);
  }
  std::string before;
};

// All variants are compiled, and the runtime chooses among them.
TEST_F(LocalTargets, AreWhatTheRuntimeChooses) {
  Targets targets = localTargets("cpu");
  ASSERT_EQ(targets.size(), 1u);
  EXPECT_EQ(cpu::missingFeatures(targets.front()), "");
  std::unique_ptr<hal::Session> session = testing::openTinyDecoder("bf16@cpu");
  ASSERT_TRUE(session);
  EXPECT_EQ(session->target(), targets.front());
}

TEST_F(LocalTargets, FollowTheEnvironment) {
  ::setenv("TESSERA_CPU", "avx2", 1);
  EXPECT_EQ(localTargets("cpu"), Targets{"cpu:avx2"});
  ::setenv("TESSERA_CPU", "cpu:avx512", 1);
  EXPECT_EQ(localTargets("cpu"), Targets{"cpu:avx512"});
}

TEST_F(LocalTargets, AreWhatNativeMeans) {
  auto targets = resolveTargets({"cpu:native", "cuda:sm_80"});
  ASSERT_TRUE(bool(targets));
  EXPECT_EQ(*targets, (Targets{localTargets("cpu").front(), "cuda:sm_80"}));
  ::setenv("TESSERA_CPU", "avx2", 1);
  targets = resolveTargets({"cpu:native", "cpu:avx2"});
  ASSERT_TRUE(bool(targets));
  EXPECT_EQ(*targets, Targets{"cpu:avx2"});
}

TEST_F(LocalTargets, OfNamedDevices) {
  EXPECT_EQ(localTargets("cpu:avx2"), Targets{"cpu:avx2"});
  EXPECT_EQ(localTargets("cuda-emu"), Targets{"cuda:sm_80"});
  EXPECT_EQ(localTargets("cuda-emu:sm_90a"), Targets{"cuda:sm_90a"});
  EXPECT_EQ(localTargets("cuda:0"), (Targets{"cuda:sm_80", "cuda:sm_90a"}));
}

} // namespace
} // namespace tessera
