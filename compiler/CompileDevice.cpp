#include "compiler/CompileDevice.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "compiler/target/cuda/CudaTarget.h"
#include "passes/kernels/Tiling.h"

using namespace mlir;
using namespace tessera;

// The nested module with the kernels for `target`.
static ModuleOp kernelsFor(ModuleOp module, llvm::StringRef target) {
  for (auto nested : module.getOps<ModuleOp>())
    if (auto name = nested->getAttrOfType<StringAttr>(kTargetAttr);
        name && name.getValue() == target)
      return nested;
  return {};
}

static llvm::Expected<std::vector<CodeObject>>
compileForCpu(llvm::ArrayRef<cpu::KernelModule> kernels,
              const CompileDeviceOptions &options) {
  cpu::CompileOptions cpuOptions;
  cpuOptions.cache = options.cache;
  cpuOptions.progress = options.progress;
  llvm::Expected<std::vector<cpu::CodeObject>> compiled =
      cpu::compileKernels(kernels, cpuOptions);
  if (!compiled)
    return compiled.takeError();
  std::vector<CodeObject> code;
  for (auto [from, object] : llvm::zip(kernels, *compiled)) {
    CodeObject &entry = code.emplace_back();
    entry.target = from.target.name;
    entry.features = cpu::requiredFeatures(from.target.name);
    entry.elf = std::move(object.elf);
    for (auto &[name, bytes] : object.scratchBytes)
      entry.scratch[name] = static_cast<int64_t>(bytes);
  }
  return code;
}

static GpuKernel gpuKernel(const cuda::KernelShape &shape,
                           const cuda::KernelResources *resources) {
  GpuKernel kernel;
  kernel.threads = static_cast<uint32_t>(shape.threads);
  kernel.sharedBytes = static_cast<uint32_t>(shape.sharedBytes);
  kernel.source = shape.text;
  kernel.aligned = shape.aligned;
  for (const cuda::KernelMap &map : shape.maps)
    kernel.maps.push_back({map.buffer, map.boxes});
  if (!resources)
    return kernel;
  kernel.registers = static_cast<uint32_t>(resources->registers);
  kernel.staticSharedBytes = static_cast<uint32_t>(resources->sharedBytes);
  kernel.stackBytes = static_cast<uint32_t>(resources->stackBytes);
  kernel.spillBytes = static_cast<uint32_t>(resources->spillBytes);
  kernel.hmma = static_cast<uint32_t>(resources->hmma);
  kernel.hgmma = static_cast<uint32_t>(resources->hgmma);
  return kernel;
}

static llvm::Error compileForCuda(ModuleOp kernels, const TileTarget &target,
                                  const CompileDeviceOptions &options,
                                  DevicePart &part) {
  cuda::CompileOptions cudaOptions;
  cudaOptions.cache = options.cache;
  cudaOptions.progress = options.progress;
  cudaOptions.cubins = !cuda::findNvcc().empty();
  cudaOptions.emulated = options.emulate;
  if (!cudaOptions.cubins && !cudaOptions.emulated)
    return llvm::createStringError(
        target.name + ": nvcc was not found, so only the emulated GPU is "
                      "supported, which --no-emulate excludes; install the "
                      "CUDA toolkit, set CUDACXX, or omit --no-emulate");
  if (!cudaOptions.cubins && options.note)
    options.note("nvcc was not found: " + target.name +
                 " is compiled only for the emulated GPU; install the CUDA "
                 "toolkit or set CUDACXX, and compile again");
  llvm::Expected<cuda::CompiledKernels> compiled =
      cuda::compileKernels(kernels, target, cudaOptions);
  if (!compiled)
    return compiled.takeError();
  for (auto [i, shape] : llvm::enumerate(compiled->shapes))
    part.gpu[shape.name] = gpuKernel(
        shape, cudaOptions.cubins ? &compiled->resources[i] : nullptr);
  llvm::StringRef arch = llvm::StringRef(target.name).split(':').second;
  auto add = [&](const std::string &name,
                 std::vector<cuda::KernelObject> &objects) {
    for (cuda::KernelObject &object : objects) {
      CodeObject &entry = part.code.emplace_back();
      entry.target = name;
      entry.elf = std::move(object.bytes);
      entry.kernels = std::move(object.kernels);
    }
  };
  add(target.name, compiled->cubins);
  add(("ptx:compute_" + arch.substr(strlen("sm_"))).str(), compiled->ptx);
  add(("cuda-emu:" + arch).str(), compiled->emulated);
  return llvm::Error::success();
}

llvm::Expected<DevicePart>
tessera::compileDevice(ModuleOp module, const DeviceKind &kind,
                       const CompileDeviceOptions &options) {
  DevicePart part{kind.name, module, {}, {}};
  std::vector<cpu::KernelModule> kernels;
  for (const std::string &name : kind.targets)
    if (ModuleOp nested = kernelsFor(module, name))
      kernels.push_back({nested, *lookupTileTarget(name)});
  if (kernels.empty())
    return llvm::createStringError("the module has no kernels for " +
                                   kind.name);
  if (!kind.isCpu()) {
    if (llvm::Error error = compileForCuda(
            kernels.front().module, kernels.front().target, options, part))
      return std::move(error);
    return part;
  }
  if (llvm::Error error = compileForCpu(kernels, options).moveInto(part.code))
    return std::move(error);
  return part;
}
