#include "runtime/hal/emulated/EmulatedDevice.h"

#include "runtime/artifact/ElementTypes.h"
#include "runtime/artifact/Validate.h"
#include "runtime/hal/emulated/EmulatedCommandList.h"
#include "runtime/hal/host/HostProgram.h"
#include "runtime/hal/host/LoadedCode.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace tessera::hal {
namespace {

constexpr std::string_view kName = "cuda-emu";

class EmulatedExecutable : public Executable {
public:
  EmulatedExecutable(const ArtifactReader &artifact,
                     const artifact::DeviceCode &device,
                     std::string_view target, const emulated::Chip &chip)
      : artifact(artifact), device(device), targetName(target), chip(chip) {}
  std::string_view target() const override { return targetName; }
  std::uint64_t scratchBytes() const override { return 0; }

  ArtifactReader artifact;
  const artifact::DeviceCode &device;
  std::string_view targetName;
  emulated::Chip chip;
  std::vector<LoadedCode> code;
  std::vector<EmulatedFunction *> kernels; // as DeviceCode.kernels
};

class EmulatedDevice : public HostDevice {
public:
  EmulatedDevice(std::string_view architecture, std::uint64_t seed,
                 const emulated::Numerics &numerics)
      : architecture(architecture), seed(seed), numerics(numerics) {}
  std::string_view name() const override { return kName; }
  std::string describe() const override {
    std::string text = fmt::format("a GPU emulated on the host, seed {}", seed);
    if (numerics.isHardware)
      text += fmt::format(", numerics of hardware, seed {}", numerics.seed);
    return text;
  }
  StatusOr<const artifact::DeviceCode *>
  choose(const ArtifactReader &artifact) const override;
  StatusOr<std::unique_ptr<Executable>>
  load(const ArtifactReader &artifact,
       const artifact::DeviceCode &code) override;
  StatusOr<std::unique_ptr<CommandList>>
  record(Executable &executable, const artifact::Program &program,
         const Bindings &bindings, const RecordOptions &options) override;

private:
  std::string architecture; // empty: any
  std::uint64_t seed;
  emulated::Numerics numerics;
};

/// "cuda-emu:sm_80" for the kind "cuda:sm_80"; empty for device kinds other
/// than GPUs.
std::string emulatedTarget(const artifact::DeviceCode &device) {
  std::string_view kind = artifact::toView(device.device());
  if (!kind.starts_with(artifact::kCudaPrefix))
    return "";
  kind.remove_prefix(artifact::kCudaPrefix.size());
  return fmt::format("{}:{}", kName, kind);
}

StatusOr<const artifact::DeviceCode *>
EmulatedDevice::choose(const ArtifactReader &artifact) const {
  const std::string wanted =
      architecture.empty() ? "" : fmt::format("{}:{}", kName, architecture);
  std::string withoutTwin;
  for (const artifact::DeviceCode *device : *artifact.share().devices()) {
    const std::string target = emulatedTarget(*device);
    if (target.empty() || (!wanted.empty() && target != wanted))
      continue;
    for (const artifact::CodeObject *code : *device->code())
      if (artifact::toView(code->target()) == target)
        return device;
    withoutTwin = device->device()->str();
  }
  if (withoutTwin.empty())
    return noCodeFor(artifact, wanted.empty() ? kName : wanted,
                     "cuda:" + (architecture.empty() ? "sm_80" : architecture));
  return Status::error(
      "{}: its kernels for {} were compiled without those for the emulated "
      "GPU; compile it again without --no-emulate: {}",
      artifact.path(), withoutTwin,
      artifact::toView(artifact.root().rebuild_command()));
}

StatusOr<std::unique_ptr<Executable>>
EmulatedDevice::load(const ArtifactReader &artifact,
                     const artifact::DeviceCode &device) {
  const std::string target = emulatedTarget(device);
  auto chip =
      emulated::chipOf(std::string_view(target).substr(target.find(':') + 1));
  if (!chip.ok())
    return Status::error("{}: {}", artifact.path(), chip.message());
  std::unique_ptr<EmulatedExecutable> executable;
  for (const artifact::CodeObject *object : *device.code()) {
    if (artifact::toView(object->target()) != target)
      continue;
    auto code = LoadedCode::load(
        std::as_bytes(std::span(object->elf()->data(), object->elf()->size())),
        fmt::format("{}: code object '{}'", artifact.path(), target));
    if (!code.ok())
      return code.status();
    if (!executable) {
      executable = std::make_unique<EmulatedExecutable>(
          artifact, device, artifact::toView(object->target()), *chip);
      executable->kernels.resize(device.kernels()->size());
    }
    for (std::uint32_t i = 0; i < device.kernels()->size(); ++i) {
      if (!artifact::holds(*object, i))
        continue;
      auto function = code->function<EmulatedFunction>(
          device.kernels()->Get(i)->name()->str() + "_emulated");
      if (!function.ok())
        return function.status();
      executable->kernels[i] = *function;
    }
    executable->code.push_back(code.take());
  }
  return std::unique_ptr<Executable>(std::move(executable));
}

StatusOr<std::unique_ptr<CommandList>>
EmulatedDevice::record(Executable &executable, const artifact::Program &program,
                       const Bindings &bindings, const RecordOptions &options) {
  auto &loaded = static_cast<EmulatedExecutable &>(executable);
  auto prepared = HostProgram::prepare(loaded.artifact.share(), loaded.device,
                                       program, bindings);
  if (!prepared.ok())
    return prepared.status();
  return std::unique_ptr<CommandList>(std::make_unique<EmulatedCommandList>(
      artifact::toView(program.name()), std::move(prepared->commands),
      std::move(prepared->collectives), loaded.kernels, loaded.chip, seed,
      numerics, std::span(prepared->spaces.arena, program.arena_bytes()),
      options));
}

} // namespace

StatusOr<std::unique_ptr<Device>>
createEmulatedDevice(std::string_view which, const DeviceOptions &options) {
  std::uint64_t seed = options.emulatorSeed;
  if (const char *environment = std::getenv("TESSERA_EMU_SEED");
      seed == 0 && environment) {
    const char *end = environment + std::strlen(environment);
    const auto [stopped, error] = std::from_chars(environment, end, seed);
    if (error != std::errc() || stopped != end)
      return Status::error(
          "TESSERA_EMU_SEED is '{}'; expected an integer of at most 64 bits",
          environment);
  }
  auto numerics =
      options.emulatorNumerics.empty()
          ? emulated::numericsOfEnvironment()
          : emulated::parseNumerics(options.emulatorNumerics,
                                    "DeviceOptions.emulatorNumerics");
  if (!numerics.ok())
    return numerics.status();
  return std::unique_ptr<Device>(
      std::make_unique<EmulatedDevice>(which, seed, *numerics));
}

} // namespace tessera::hal
