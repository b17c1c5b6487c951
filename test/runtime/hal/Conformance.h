// What the conformance tests share: devices to try, an artifact whose kernels
// are those of Kernels.cpp, and the way to run a program of it.
#pragma once
#include "runtime/hal/Session.h"
#include "test/runtime/artifact/TestArtifact.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tessera::test {

/// Kernels.cpp, in the order of the artifact's list.
enum TestKernel : std::uint32_t {
  kIota,
  kScale,
  kAccumulate,
  kPartialSums,
  kTotal,
  kReverseBlocks,
  kCountRuns,
  kNanBelowFive,
  kMeet,
  kTakeBoxes,
};

/// The shared object of Kernels.cpp.
const std::string &kernelObject();
/// That of GpuKernels.cu, for the emulated GPU.
const std::string &emulatedObject();

/// The programs of `from` and the kernels of GpuKernels.cu, for the emulated
/// GPU: "cuda:sm_80".
DeviceCodeT emulatedCode(const DeviceCodeT &from);
/// The same and, for the fake driver of CUDA, that object in a cubin's place.
DeviceCodeT cudaCode(const DeviceCodeT &from);

/// No programs yet; `stateBytes` of state and one code object that every
/// processor of this architecture runs.
ArtifactT kernelArtifact(std::uint64_t stateBytes = 0);

/// An artifact with one program, ready to run: "main".
ArtifactT oneProgram(ProgramT program, std::uint64_t stateBytes = 0);

/// Blocks of Kernels.cpp for n elements.
inline std::uint64_t blocksOf(std::int64_t n) {
  return static_cast<std::uint64_t>(n + 63) / 64;
}
inline std::uint64_t floatBytes(std::int64_t n) {
  return static_cast<std::uint64_t>(n) * 4;
}

struct DeviceUnderTest {
  const char *label;
  const char *device;
  unsigned threads;
  /// Why results cannot be compared; null where they can.
  const char *noResults;
  int repeats = 200; ///< where runs are repeated to provoke races
  /// Whether kernels are given scratch.
  bool hasScratch = true;
  const char *cudaMode = "";
};
extern const std::vector<DeviceUnderTest> kDevices;

/// A session that owns the artifact's bytes. Adds what a GPU needs if that is
/// the device.
class Runner {
public:
  Runner(const ArtifactT &artifact, const hal::SessionOptions &options);
  hal::Session *operator->() { return session->get(); }
  hal::Session &get() { return **session; }
  bool ok() const { return session.ok(); }
  const std::string &message() const { return session.message(); }

private:
  AlignedBytes bytes;
  StatusOr<std::unique_ptr<hal::Session>> session;
};

/// Fixture over kDevices. GPUs are those of the fake driver.
class Conformance : public testing::TestWithParam<DeviceUnderTest> {
protected:
  void SetUp() override;
  void TearDown() override;
  hal::SessionOptions options() const;
  /// A float or int output of program "main", as the vector's element type.
  template <typename T>
  std::vector<T> output(hal::Session &session, std::string_view name,
                        std::size_t count) {
    std::vector<T> values(count);
    const Status status = session.readOutput(
        "main", name, std::as_writable_bytes(std::span(values)));
    EXPECT_TRUE(status.ok()) << status.message();
    return values;
  }
};

} // namespace tessera::test

/// Ends a test that has shown that the device takes the program, but whose
/// results this device does not compute.
#define SKIP_WITHOUT_RESULTS()                                                 \
  do {                                                                         \
    if (GetParam().noResults)                                                  \
      GTEST_SKIP() << GetParam().noResults;                                    \
  } while (false)
