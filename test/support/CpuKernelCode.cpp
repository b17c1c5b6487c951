#include "compiler/target/cpu/CpuTarget.h"
#include "compiler/target/cpu/LoadCode.h"
#include "test/support/KernelCode.h"

using namespace mlir;

namespace tessera::testing {

namespace {

class CpuKernelCode final : public KernelCode {
public:
  CpuKernelCode(cpu::CodeObject object,
                std::unique_ptr<cpu::LoadedCode> library)
      : code(std::move(object)), library(std::move(library)) {}

  llvm::Error run(KernelCall call, const RunOptions &options) override;
  const cpu::CodeObject *object() const override { return &code; }

private:
  cpu::CodeObject code;
  std::unique_ptr<cpu::LoadedCode> library;
};

} // namespace

llvm::Error CpuKernelCode::run(KernelCall call, const RunOptions &options) {
  std::string name = call.kernel.getSymName().str();
  cpu::KernelEntry entry = library->find(name);
  if (!entry)
    return llvm::createStringError("no code for kernel " + name);
  SmallVector<void *> pointers;
  for (const auto &buffer : call.buffers)
    pointers.push_back(buffer->data());
  int64_t step = options.blocksAtOnce ? options.blocksAtOnce : call.blocks;
  for (int64_t end = call.blocks; end > 0; end -= step) {
    int64_t begin = std::max<int64_t>(end - step, 0);
    std::vector<std::byte> scratch(code.scratchBytes.lookup(name) + 64,
                                   std::byte{0xff});
    auto address = reinterpret_cast<uintptr_t>(scratch.data());
    entry(pointers.data(), call.sizes.data(), begin, end,
          reinterpret_cast<void *>((address + 63) / 64 * 64));
  }
  return llvm::Error::success();
}

llvm::Expected<std::unique_ptr<KernelCode>>
compileForCpu(ModuleOp kernels, const TileTarget &target) {
  auto objects = cpu::compileKernels({{kernels, target}}, {});
  if (!objects)
    return objects.takeError();
  auto library = cpu::LoadedCode::load(objects->front().elf);
  if (!library)
    return library.takeError();
  return std::make_unique<CpuKernelCode>(std::move(objects->front()),
                                         std::move(*library));
}

} // namespace tessera::testing
