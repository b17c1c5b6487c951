#include "runtime/hal/cpu/CpuDevice.h"

#include "runtime/artifact/ElementTypes.h"
#include "runtime/hal/cpu/CodeObject.h"
#include "runtime/hal/cpu/CpuCommandList.h"
#include "runtime/hal/cpu/ThreadPool.h"
#include "runtime/hal/host/HostProgram.h"
#include "runtime/hal/host/LoadedCode.h"
#include "runtime/support/CpuFeatures.h"
#include "runtime/support/PeakFlops.h"

#include <algorithm>
#include <cstdlib>

namespace tessera::hal {
namespace {

class CpuExecutable : public Executable {
public:
  CpuExecutable(const ArtifactReader &artifact,
                const artifact::DeviceCode &device, std::string_view target,
                LoadedCode code, std::vector<KernelFunction *> kernels,
                HostMemory scratch, std::uint64_t scratchStride)
      : artifact(artifact), device(device), targetName(target),
        code(std::move(code)), kernels(std::move(kernels)),
        memory(std::move(scratch)), scratchStride(scratchStride) {}
  std::string_view target() const override { return targetName; }
  std::uint64_t scratchBytes() const override { return memory.size(); }
  std::span<const std::byte> scratch() const override {
    return {memory.data(), memory.size()};
  }

  ArtifactReader artifact;
  const artifact::DeviceCode &device;
  std::string_view targetName;
  LoadedCode code;
  std::vector<KernelFunction *> kernels; // as DeviceCode.kernels
  HostMemory memory;                     // the kernels' scratch
  std::uint64_t scratchStride;           // a thread's share
};

class CpuDevice : public HostDevice {
public:
  CpuDevice(std::shared_ptr<ThreadPool> pool, std::string forcedTarget)
      : cpu(CpuFeatures::detect()), pool(std::move(pool)),
        forcedTarget(std::move(forcedTarget)) {}
  std::string_view name() const override { return "cpu"; }
  std::string describe() const override;
  StatusOr<const artifact::DeviceCode *>
  choose(const ArtifactReader &artifact) const override;
  StatusOr<std::unique_ptr<Executable>>
  load(const ArtifactReader &artifact,
       const artifact::DeviceCode &code) override;
  StatusOr<std::unique_ptr<CommandList>>
  record(Executable &executable, const artifact::Program &program,
         const Bindings &bindings, const RecordOptions &options) override;

private:
  CpuFeatures cpu;
  std::shared_ptr<ThreadPool> pool;
  std::string forcedTarget;
};

std::string CpuDevice::describe() const {
  const auto names = cpu.names();
  return fmt::format("{}, {} thread{}, {}", CpuFeatures::brand(),
                     pool->threads(), pool->threads() == 1 ? "" : "s",
                     fmt::join(names, " "));
}

/// Bytes of scratch for each thread, a multiple of the page size.
std::uint64_t scratchShare(const artifact::DeviceCode &code) {
  std::uint64_t most = 0;
  for (const artifact::Kernel *kernel : *code.kernels())
    most = std::max(most, kernel->scratch_bytes());
  return (most + 4095) / 4096 * 4096;
}

bool holdsBf16(const artifact::DeviceCode &code) {
  for (const artifact::Kernel *kernel : *code.kernels())
    if (kernel->element_types())
      for (auto type : *kernel->element_types())
        if (artifact::ElementType(type) == artifact::ElementType::bf16)
          return true;
  return false;
}

bool needs(const artifact::CodeObject &code, std::string_view feature) {
  for (const flatbuffers::String *needed : *code.features())
    if (artifact::toView(needed) == feature)
      return true;
  return false;
}

/// If the bf16 dot-product instruction is slow and the processor lacks matrix
/// registers, a bf16 program runs faster with code that upcasts, if the
/// artifact has it.
StatusOr<const artifact::CodeObject *>
chooseFastest(const ArtifactReader &artifact, const artifact::DeviceCode &code,
              const CpuFeatures &cpu) {
  constexpr std::string_view kDot = "avx512_bf16", kMatrices = "amx_bf16";
  auto best = chooseCodeObject(artifact, code, cpu, "");
  if (best.ok() && needs(**best, kDot) && !needs(**best, kMatrices) &&
      holdsBf16(code) && !bf16DotPays())
    if (auto upcasting =
            chooseCodeObject(artifact, code, cpu.without(kDot), "");
        upcasting.ok())
      return upcasting;
  return best;
}

StatusOr<const artifact::DeviceCode *>
CpuDevice::choose(const ArtifactReader &artifact) const {
  if (const artifact::DeviceCode *code = artifact.device("cpu"))
    return code;
  return noCodeFor(artifact, name(), "cpu");
}

StatusOr<std::unique_ptr<Executable>>
CpuDevice::load(const ArtifactReader &artifact,
                const artifact::DeviceCode &device) {
  auto chosen = forcedTarget.empty()
                    ? chooseFastest(artifact, device, cpu)
                    : chooseCodeObject(artifact, device, cpu, forcedTarget);
  if (!chosen.ok())
    return chosen.status();
  const artifact::CodeObject &object = **chosen;
  const std::string_view target = artifact::toView(object.target());
  auto code = LoadedCode::load(
      std::as_bytes(std::span(object.elf()->data(), object.elf()->size())),
      fmt::format("{}: code object '{}'", artifact.path(), target));
  if (!code.ok())
    return code.status();
  std::vector<KernelFunction *> kernels;
  for (const artifact::Kernel *kernel : *device.kernels()) {
    auto function = code->function<KernelFunction>(kernel->name()->str());
    if (!function.ok())
      return function.status();
    kernels.push_back(*function);
  }
  const std::uint64_t share = scratchShare(device);
  auto scratch =
      HostMemory::allocate(share * pool->threads(), "the kernels' scratch");
  if (!scratch.ok())
    return scratch.status();
  return std::unique_ptr<Executable>(std::make_unique<CpuExecutable>(
      artifact, device, target, code.take(), std::move(kernels), scratch.take(),
      share));
}

StatusOr<std::unique_ptr<CommandList>>
CpuDevice::record(Executable &executable, const artifact::Program &program,
                  const Bindings &bindings, const RecordOptions &options) {
  auto &loaded = static_cast<CpuExecutable &>(executable);
  auto prepared = HostProgram::prepare(loaded.artifact.share(), loaded.device,
                                       program, bindings);
  if (!prepared.ok())
    return prepared.status();
  return std::unique_ptr<CommandList>(std::make_unique<CpuCommandList>(
      artifact::toView(program.name()), std::move(prepared->commands),
      std::move(prepared->collectives), loaded.kernels, *pool,
      loaded.memory.data(), loaded.scratchStride,
      std::span(prepared->spaces.arena, program.arena_bytes()), options));
}

} // namespace

StatusOr<std::unique_ptr<Device>>
createCpuDevice(std::string_view which, const DeviceOptions &options) {
  std::shared_ptr<ThreadPool> pool = options.pool;
  if (!pool) {
    auto created = ThreadPool::create(options.threads ? options.threads
                                                      : availableProcessors(),
                                      options.processors);
    if (!created.ok())
      return created.status();
    pool = created.take();
  }
  std::string target(which.empty() ? options.cpuTarget : which);
  if (const char *environment = std::getenv("TESSERA_CPU");
      target.empty() && environment)
    target = environment;
  return std::unique_ptr<Device>(
      std::make_unique<CpuDevice>(std::move(pool), std::move(target)));
}

} // namespace tessera::hal
