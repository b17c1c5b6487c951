// What tests of "cuda:N" share: the fake driver with its settings, clean before
// and after each test, and small programs.
#pragma once
#include "test/runtime/hal/Conformance.h"
#include "test/runtime/hal/cuda/FakeCuda.h"

#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

namespace tessera::test {

class CudaTest : public testing::Test {
protected:
  void SetUp() override { fake.reset(); }
  void TearDown() override {
    for (const std::string &name : changed)
      ::unsetenv(name.c_str());
    ::setenv("TESSERA_LIBCUDA", TESSERA_FAKE_CUDA, 1);
    ::setenv("TESSERA_LIBCUBLASLT", TESSERA_FAKE_CUDA, 1);
    EXPECT_EQ(fake.leaks(), "");
    EXPECT_EQ(fake.misuse(), "");
  }
  /// For the rest of the test.
  void environment(const std::string &name, const std::string &value) {
    changed.insert(name);
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  /// A setting of the fake driver.
  void setting(const std::string &name, const std::string &value) {
    environment("TESSERA_FAKE_CUDA_" + name, value);
  }

  FakeCuda &fake = FakeCuda::get();

private:
  std::set<std::string> changed;
};

inline hal::SessionOptions cuda(std::string mode = "",
                                std::string device = "cuda:0") {
  hal::SessionOptions options;
  options.device = std::move(device);
  options.deviceOptions.cudaMode = std::move(mode);
  return options;
}

/// The artifact with code for sm_80, a cubin as the fake driver takes it.
inline ArtifactT withCuda(ArtifactT artifact) {
  share(artifact).devices.push_back(
      std::make_unique<DeviceCodeT>(cudaCode(cpu(artifact))));
  return artifact;
}
inline DeviceCodeT &gpu(ArtifactT &artifact) {
  return *share(artifact).devices[1];
}

/// y = 0, 1, 2, … of n elements; the kernel is told of `argumentBytes`.
inline ProgramT iotaProgram(std::int64_t n) {
  return program(
      "main", 0, floatBytes(n), {},
      {tensor("y", ElementType::f32, {n}, Role::output, Space::io, 0)},
      {launch(kIota,
              {instance({arg(Space::io, 0, floatBytes(n))}, blocksOf(n), {n})},
              "transformer.h.0.attn")});
}

/// Whether `text` is one line that holds `part`.
inline testing::AssertionResult isLineWith(const std::string &text,
                                           std::string_view part) {
  if (text.find(part) == text.npos || text.find('\n') != text.npos)
    return testing::AssertionFailure()
           << "expected a line with '" << part << "', got '" << text << "'";
  return testing::AssertionSuccess();
}

} // namespace tessera::test
