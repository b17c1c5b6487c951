#include "test/compiler/target/cpu/KernelRunner.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Parser/Parser.h"
#include <cmath>
#include <cstring>
#include <random>

namespace tessera::cpu::test {

static mlir::DialectRegistry registry() {
  mlir::DialectRegistry registry;
  registerCpuTarget(registry);
  return registry;
}

std::unique_ptr<LoadedCode> loadKernels(mlir::ModuleOp kernels,
                                        const TileTarget &target,
                                        CodeObject &code) {
  auto objects = compileKernels({{kernels, target}}, {});
  if (!objects) {
    ADD_FAILURE() << llvm::toString(objects.takeError());
    return nullptr;
  }
  code = std::move(objects->front());
  auto loaded = LoadedCode::load(code.elf);
  if (!loaded) {
    ADD_FAILURE() << llvm::toString(loaded.takeError());
    return nullptr;
  }
  return std::move(*loaded);
}

Kernels::Kernels(const std::string &text, const TileTarget &target)
    : context(registry()) {
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  if (!module) {
    ADD_FAILURE() << "kernel text does not parse:\n" << text;
    return;
  }
  library = loadKernels(*module, target, code);
}

void Kernels::run(const std::string &name, std::vector<void *> buffers,
                  int64_t end, std::vector<int64_t> sizes, int64_t begin) {
  ASSERT_TRUE(library);
  KernelEntry entry = library->find(name);
  ASSERT_TRUE(entry) << name;
  size_t bytes = (code.scratchBytes.lookup(name) + 63) / 64 * 64 + 64;
  void *scratch = std::aligned_alloc(64, bytes);
  std::memset(scratch, 0xff, bytes); // NaN in every float type
  entry(buffers.data(), sizes.data(), begin, end, scratch);
  std::free(scratch);
}

std::string kernelText(const std::string &name, const std::string &parameters,
                       const std::string &access, const std::string &body,
                       int dynamicSizes) {
  std::string modes;
  for (char mode : access)
    modes += std::string(modes.empty() ? "" : ", ") + "#tile<access " +
             (mode == 'r'   ? "read"
              : mode == 'w' ? "write"
                            : "read_write") +
             ">";
  return "tile.kernel @" + name + "(%block: index, " + parameters +
         ") attributes {skeleton = #tile<skeleton elementwise>, access = [" +
         modes + "], dynamic_sizes = " + std::to_string(dynamicSizes) +
         " : i64, summary = \"test\"} {\n" + body + "\ntile.return\n}\n";
}

void TargetTest::SetUp() {
  target = *lookupTileTarget(GetParam());
  std::string missing = missingFeatures(target.name);
  if (!missing.empty())
    GTEST_SKIP() << "this processor has no" << missing;
}

uint16_t toBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (std::isnan(value))
    return bits >> 16 | 0x40;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

float fromBf16(uint16_t half) {
  uint32_t bits = uint32_t(half) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

std::vector<float> randomFloats(size_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(count);
  for (float &value : values)
    value = uniform(generator);
  return values;
}

} // namespace tessera::cpu::test
