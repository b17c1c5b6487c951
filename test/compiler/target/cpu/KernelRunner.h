// Compiles kernels from text and runs them in this process, as the runtime
// does.
#pragma once
#include "compiler/target/cpu/CpuTarget.h"
#include "compiler/target/cpu/LoadCode.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace tessera::cpu::test {

/// Compiles and loads the kernels of a module; null, and a failed test, where
/// that fails.
std::unique_ptr<LoadedCode>
loadKernels(mlir::ModuleOp kernels, const TileTarget &target, CodeObject &code);

/// Loaded code of the kernels in one module's text.
class Kernels {
public:
  /// Any error fails the running test and leaves no kernel callable.
  Kernels(const std::string &text, const TileTarget &target);

  /// Runs blocks [begin, end) of a kernel.
  void run(const std::string &name, std::vector<void *> buffers, int64_t end,
           std::vector<int64_t> sizes = {}, int64_t begin = 0);

private:
  mlir::MLIRContext context;
  CodeObject code;
  std::unique_ptr<LoadedCode> library;
};

/// "tile.kernel @name(%block: index, PARAMETERS) attributes {...} { BODY
/// tile.return }" `access` has r, w or x (read_write) for each buffer.
std::string kernelText(const std::string &name, const std::string &parameters,
                       const std::string &access, const std::string &body,
                       int dynamicSizes = 0);

/// A test that runs once for each CPU target, and is skipped, with the reason,
/// where the processor lacks a feature.
class TargetTest : public ::testing::TestWithParam<std::string> {
protected:
  void SetUp() override;
  TileTarget target;
};

/// Bits of a float rounded to bf16 (to nearest even), and back.
uint16_t toBf16(float value);
float fromBf16(uint16_t bits);

/// Reproducible numbers in [-1, 1).
std::vector<float> randomFloats(size_t count, uint32_t seed);

inline std::string
targetLabel(const ::testing::TestParamInfo<std::string> &info) {
  return info.param.substr(4); // without "cpu:"
}

} // namespace tessera::cpu::test

#define TESSERA_FOR_EACH_CPU_TARGET(Suite)                                     \
  INSTANTIATE_TEST_SUITE_P(Targets, Suite,                                     \
                           ::testing::ValuesIn(cpuTargetNames()),              \
                           ::tessera::cpu::test::targetLabel)
