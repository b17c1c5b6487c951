#include "runtime/hal/Device.h"
#include "runtime/hal/cpu/CpuDevice.h"
#include "runtime/hal/null/NullDevice.h"

namespace tessera::hal {
namespace {

struct Kind {
  std::string_view name;
  StatusOr<std::unique_ptr<Device>> (*create)(const DeviceOptions &options);
};

constexpr Kind kKinds[] = {{"cpu", createCpuDevice},
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

Status checkBindings(const artifact::Artifact &artifact,
                     const artifact::Program &program,
                     const Bindings &bindings) {
  TESSERA_RETURN_IF_ERROR(
      checkBinding(bindings.state, artifact.state_bytes(), "state"));
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

StatusOr<std::unique_ptr<Device>> createDevice(std::string_view name,
                                               const DeviceOptions &options) {
  std::string known;
  for (const Kind &kind : kKinds) {
    if (kind.name == name)
      return kind.create(options);
    known.append(known.empty() ? "" : ", ").append(kind.name);
  }
  return Status::error("unknown device '{}': this runtime has {}", name, known);
}

} // namespace tessera::hal
