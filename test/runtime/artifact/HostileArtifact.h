// Artifacts with one thing wrong each, and the validator's word for it.
#pragma once
#include "runtime/artifact/Validate.h"
#include "test/runtime/artifact/TestArtifact.h"

#include <functional>
#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace tessera::test {

inline constexpr std::uint64_t kHuge =
    std::numeric_limits<std::uint64_t>::max();

/// All have correct hashes: only the validator stands between them and the
/// machine.
struct Hostile {
  const char *name;
  std::function<void(ArtifactT &)> plant;
  const char *expected;
};

inline std::string errorOf(const ArtifactT &artifact) {
  const AlignedBytes bytes(pack(artifact));
  return ArtifactReader::fromBytes(bytes.span(), "hostile").message();
}

inline DeviceCodeT &gpu(ArtifactT &artifact) {
  return *share(artifact).devices[1];
}

inline NodeT &step(ArtifactT &artifact, int index) {
  return *cpu(artifact).programs[0]->steps[index];
}
inline ArgT &launchArg(ArtifactT &artifact, int argument) {
  LoopT &loop = *step(artifact, 1).step.AsLoop();
  return *loop.body[0]->step.AsLaunch()->instances[0]->args[argument];
}
inline InstanceT &innerInstance(ArtifactT &artifact) {
  return *step(artifact, 1)
              .step.AsLoop()
              ->body[0]
              ->step.AsLaunch()
              ->instances[0];
}

class HostileTest : public testing::TestWithParam<Hostile> {
protected:
  void expectRefused() {
    ArtifactT artifact = smallArtifact();
    GetParam().plant(artifact);
    const std::string error = errorOf(artifact);
    EXPECT_NE(error.find(GetParam().expected), std::string::npos)
        << "got: " << error;
    EXPECT_EQ(error.find("hostile: offset 0x"), 0u) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
};

inline std::string nameOf(const testing::TestParamInfo<Hostile> &info) {
  return info.param.name;
}

} // namespace tessera::test
