#include "runtime/artifact/ElementTypes.h"
#include "runtime/artifact/Validate.h"
#include "runtime/hal/Device.h"
#include "runtime/hal/cpu/CpuDevice.h"
#include "runtime/hal/cuda/CudaDevice.h"
#include "runtime/hal/emulated/EmulatedDevice.h"
#include "runtime/hal/null/NullDevice.h"

#include <algorithm>

namespace tessera::hal {
namespace {

struct Kind {
  std::string_view name;
  /// `which` is what follows the colon, often nothing.
  StatusOr<std::unique_ptr<Device>> (*create)(std::string_view which,
                                              const DeviceOptions &options);
};

constexpr Kind kKinds[] = {{"cpu", createCpuDevice},
                           {"cuda", createCudaDevice},
                           {"cuda-emu", createEmulatedDevice},
                           {"null", createNullDevice}};

Status checkBinding(const Buffer *buffer, std::uint64_t needed,
                    std::string_view space) {
  const std::uint64_t bound = buffer ? buffer->bytes() : 0;
  if (bound < needed)
    return Status::error("a program needs {} bytes of {}, but {} are bound",
                         needed, space, bound);
  return Status::success();
}

} // namespace

Status checkBindings(const artifact::Share &share,
                     const artifact::Program &program,
                     const Bindings &bindings) {
  TESSERA_RETURN_IF_ERROR(
      checkBinding(bindings.state, share.state_bytes(), "state"));
  TESSERA_RETURN_IF_ERROR(
      checkBinding(bindings.arena, program.arena_bytes(), "arena"));
  return checkBinding(bindings.io, program.io_bytes(), "io");
}

Status checkRange(std::uint64_t offset, std::uint64_t count,
                  std::uint64_t bytes, std::string_view what) {
  if (offset > bytes || count > bytes - offset)
    return Status::error("{} bytes at {} leave {} of {} bytes", count, offset,
                         what, bytes);
  return Status::success();
}

std::string gibibytes(std::uint64_t bytes) {
  constexpr double mebi = 1 << 20, gibi = 1 << 30;
  const auto value = static_cast<double>(bytes);
  return value < gibi ? fmt::format("{:.1f} MiB", value / mebi)
                      : fmt::format("{:.2f} GiB", value / gibi);
}

/// The command that rebuilds the artifact, with one more target.
static std::string withTarget(std::string_view command,
                              std::string_view target) {
  constexpr std::string_view kOption = " --target ", kOutput = " -o ";
  std::string text(command);
  if (const auto at = text.find(kOption); at != text.npos) {
    const auto end = text.find(' ', at + kOption.size());
    return text.insert(end == text.npos ? text.size() : end,
                       fmt::format(",{}", target));
  }
  const auto at = text.rfind(kOutput);
  return text.insert(at == text.npos ? text.size() : at,
                     fmt::format("{}cpu,{}", kOption, target));
}

Status noCodeFor(const ArtifactReader &artifact, std::string_view device,
                 std::string_view target) {
  if (std::ranges::find(artifact::kDeviceKinds, target) ==
      std::end(artifact::kDeviceKinds))
    return Status::error("unknown device '{}': code is compiled for {}", device,
                         fmt::join(artifact::kDeviceKinds, ", "));
  return Status::error(
      "{}: no code for the device '{}': the artifact has {}; compile it for "
      "that too: {}",
      artifact.path(), device, artifact.deviceKinds(),
      withTarget(artifact::toView(artifact.root().rebuild_command()), target));
}

Status checkDeviceName(std::string_view name) {
  const std::string_view wanted = name.substr(0, name.find(':'));
  std::string known;
  for (const Kind &kind : kKinds) {
    if (kind.name == wanted)
      return Status::success();
    known.append(known.empty() ? "" : ", ").append(kind.name);
  }
  return Status::error("unknown device '{}': this runtime has {}", name, known);
}

Status checkDevice(std::string_view name) {
  TESSERA_RETURN_IF_ERROR(checkDeviceName(name));
  if (name.substr(0, name.find(':')) != "cuda")
    return Status::success();
  name.remove_prefix(std::min(name.size(), std::string_view("cuda:").size()));
  return checkCudaDevice(name);
}

StatusOr<std::unique_ptr<Device>> createDevice(std::string_view name,
                                               const DeviceOptions &options) {
  const std::string_view wanted = name.substr(0, name.find(':'));
  for (const Kind &kind : kKinds)
    if (kind.name == wanted)
      return kind.create(name.substr(std::min(wanted.size() + 1, name.size())),
                         options);
  return checkDeviceName(name);
}

} // namespace tessera::hal
