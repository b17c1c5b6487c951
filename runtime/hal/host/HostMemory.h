// Anonymous memory for a program's spaces.
#pragma once
#include "runtime/support/Status.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera::hal {

/// A zeroed region of its own mapping, 2 MiB aligned and backed by huge pages
/// where the system grants them. Pages count as resident once touched.
class HostMemory {
public:
  HostMemory() = default;
  /// `what` names the region in the error.
  static StatusOr<HostMemory> allocate(std::uint64_t bytes,
                                       std::string_view what);
  HostMemory(HostMemory &&other) noexcept;
  HostMemory &operator=(HostMemory &&other) noexcept;
  ~HostMemory();

  std::byte *data() const { return start; }
  std::uint64_t size() const { return length; }

private:
  std::byte *start = nullptr;
  std::uint64_t length = 0; // as asked for
  std::uint64_t mapped = 0; // rounded up to whole pages
};

} // namespace tessera::hal
