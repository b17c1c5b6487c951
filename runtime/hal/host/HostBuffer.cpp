#include "runtime/hal/host/HostBuffer.h"

#include <cstring>

namespace tessera::hal {

StatusOr<std::unique_ptr<Buffer>> HostBuffer::allocate(std::uint64_t bytes,
                                                       std::string_view what) {
  auto memory = HostMemory::allocate(bytes, what);
  if (!memory.ok())
    return memory.status();
  return std::unique_ptr<Buffer>(
      std::make_unique<HostBuffer>(memory.take(), what));
}

Status HostBuffer::write(std::uint64_t offset,
                         std::span<const std::byte> from) {
  TESSERA_RETURN_IF_ERROR(checkRange(offset, from.size(), memory.size(), what));
  if (!from.empty())
    std::memcpy(memory.data() + offset, from.data(), from.size());
  return Status::success();
}

Status HostBuffer::read(std::uint64_t offset, std::span<std::byte> to) const {
  TESSERA_RETURN_IF_ERROR(checkRange(offset, to.size(), memory.size(), what));
  if (!to.empty())
    std::memcpy(to.data(), memory.data() + offset, to.size());
  return Status::success();
}

SpaceAddresses hostAddresses(const Bindings &bindings) {
  const auto host = [](Buffer *buffer) -> std::byte * {
    return buffer ? buffer->host() : nullptr;
  };
  return {host(bindings.state), host(bindings.arena), host(bindings.io)};
}

} // namespace tessera::hal
