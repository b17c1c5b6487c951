#include "compiler/target/cpu/LoadCode.h"
#include "compiler/target/cuda/CudaPrinter.h"
#include "compiler/target/cuda/HostCode.h"
#include "runtime/hal/emulated/BlockMachine.h"
#include "runtime/hal/emulated/TensorMap.h"
#include "test/support/KernelCode.h"

using namespace mlir;

namespace tessera::testing {

namespace {

class EmulatedKernelCode final : public KernelCode {
public:
  llvm::Error run(KernelCall call, const RunOptions &options) override;

  std::vector<cuda::KernelShape> shapes;
  emulated::Chip chip;
  std::unique_ptr<cpu::LoadedCode> library;

private:
  emulated::BlockMachine machine;
};

} // namespace

static device::Access accessOf(tile::Access access) {
  switch (access) {
  case tile::Access::read:
    return device::Access::read;
  case tile::Access::write: // what is written may be read again
  case tile::Access::read_write:
    return device::Access::readWrite;
  }
  llvm_unreachable("all kinds are handled");
}

llvm::Error EmulatedKernelCode::run(KernelCall call,
                                    const RunOptions &options) {
  std::string name = call.kernel.getSymName().str();
  auto shape = llvm::find_if(
      shapes, [&](const cuda::KernelShape &s) { return s.name == name; });
  auto entry = reinterpret_cast<emulated::KernelEntry>(
      library->address(name + "_emulated"));
  if (shape == shapes.end() || !entry)
    return llvm::createStringError("no code for kernel " + name);
  // device::Launch, word by word: buffers, maps, sizes, first block, others,
  // count.
  std::vector<uint64_t> words;
  std::vector<emulated::BufferRange> ranges;
  for (auto [i, buffer] : llvm::enumerate(call.buffers)) {
    words.push_back(reinterpret_cast<uint64_t>(buffer->data()));
    ranges.push_back({buffer->data(), static_cast<uint64_t>(buffer->bytes()),
                      accessOf(call.kernel.getBufferAccess(i))});
  }
  std::vector<device::TensorMap> maps(shape->maps.size());
  for (auto [map, from] : llvm::zip_equal(maps, shape->maps)) {
    device::TensorBoxes boxes = from.boxes;
    boxes.base += words[from.buffer];
    if (Status status = emulated::makeTensorMap(boxes, map); !status.ok())
      return llvm::createStringError(status.message());
    words.push_back(reinterpret_cast<uint64_t>(&map));
  }
  words.insert(words.end(), call.sizes.begin(), call.sizes.end());
  words.insert(words.end(), {0, 0, 1});
  emulated::LaunchOptions launch;
  launch.kernel = name;
  launch.grid = {static_cast<unsigned>(call.blocks), 1, 1};
  launch.threads = static_cast<unsigned>(shape->threads);
  launch.sharedBytes = static_cast<size_t>(shape->sharedBytes);
  launch.chip = chip;
  launch.argumentBytes = words.size() * sizeof(uint64_t);
  launch.seed = static_cast<uint64_t>(options.blocksAtOnce);
  auto numerics =
      options.numerics.empty()
          ? emulated::numericsOfEnvironment()
          : emulated::parseNumerics(options.numerics, "RunOptions.numerics");
  if (!numerics.ok())
    return llvm::createStringError(numerics.message());
  launch.numerics = *numerics;
  Status status = machine.launch(launch, entry, words.data(), ranges);
  if (!status.ok())
    return llvm::createStringError(status.message());
  return llvm::Error::success();
}

llvm::Expected<std::unique_ptr<KernelCode>>
compileForEmulatedGpu(ModuleOp kernels, const TileTarget &target) {
  auto printed = cuda::printKernels(kernels, target);
  if (!printed)
    return printed.takeError();
  auto object = cuda::compileForHost(printed->text);
  if (!object)
    return object.takeError();
  auto library = cpu::LoadedCode::load(*object);
  if (!library)
    return library.takeError();
  auto chip =
      emulated::chipOf(llvm::StringRef(target.name).split(':').second.str());
  if (!chip.ok())
    return llvm::createStringError(chip.message());
  auto code = std::make_unique<EmulatedKernelCode>();
  code->chip = *chip;
  code->shapes = std::move(printed->kernels);
  code->library = std::move(*library);
  return code;
}

} // namespace tessera::testing
