// Buffers of devices that run in the host's memory.
#pragma once
#include "runtime/hal/Device.h"
#include "runtime/hal/host/Commands.h"
#include "runtime/hal/host/HostMemory.h"

#include <string>

namespace tessera::hal {

class HostBuffer : public Buffer {
public:
  HostBuffer(HostMemory memory, std::string_view what)
      : memory(std::move(memory)), what(what) {}
  /// `what` names the buffer in errors.
  static StatusOr<std::unique_ptr<Buffer>> allocate(std::uint64_t bytes,
                                                    std::string_view what);
  std::uint64_t bytes() const override { return memory.size(); }
  std::byte *host() override { return memory.data(); }
  Status write(std::uint64_t offset, std::span<const std::byte> from) override;
  Status read(std::uint64_t offset, std::span<std::byte> to) const override;

private:
  HostMemory memory;
  std::string what;
};

/// A device that runs in the host's memory.
class HostDevice : public Device {
public:
  StatusOr<std::unique_ptr<Buffer>> allocate(std::uint64_t bytes,
                                             std::string_view what) final {
    return HostBuffer::allocate(bytes, what);
  }
};

/// Addresses of the spaces, which are host buffers.
SpaceAddresses hostAddresses(const Bindings &bindings);

} // namespace tessera::hal
