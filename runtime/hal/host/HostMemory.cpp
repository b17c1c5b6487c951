#include "runtime/hal/host/HostMemory.h"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace tessera::hal {
namespace {
constexpr std::uint64_t kHugePage = std::uint64_t(2) << 20;
} // namespace

StatusOr<HostMemory> HostMemory::allocate(std::uint64_t bytes,
                                          std::string_view what) {
  HostMemory memory;
  if (bytes == 0)
    return memory;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::uint64_t mapped, reserved;
  if (__builtin_add_overflow(bytes, page - 1, &mapped) ||
      __builtin_add_overflow(mapped, kHugePage, &reserved))
    return Status::error("cannot allocate {} bytes for {}: too many", bytes,
                         what);
  mapped -= mapped % page;
  void *raw = ::mmap(nullptr, reserved, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED)
    return Status::error("cannot allocate {} bytes for {}: {}", bytes, what,
                         std::strerror(errno));
  // Reserve too much, keep the aligned middle, give the two ends back.
  auto *begin = static_cast<std::byte *>(raw);
  const std::uint64_t head =
      (kHugePage - reinterpret_cast<std::uintptr_t>(raw) % kHugePage) %
      kHugePage;
  if (head)
    ::munmap(begin, head);
  if (head < kHugePage)
    ::munmap(begin + head + mapped, kHugePage - head);
  memory.start = begin + head;
  memory.length = bytes;
  memory.mapped = mapped;
  // Advice only: a kernel without huge pages answers with an error that changes
  // nothing but speed. Small regions would waste most of a huge page.
  if (mapped >= kHugePage)
    (void)::madvise(memory.start, mapped, MADV_HUGEPAGE);
  return memory;
}

HostMemory::HostMemory(HostMemory &&other) noexcept {
  *this = std::move(other);
}

HostMemory &HostMemory::operator=(HostMemory &&other) noexcept {
  std::swap(start, other.start);
  std::swap(length, other.length);
  std::swap(mapped, other.mapped);
  return *this;
}

HostMemory::~HostMemory() {
  if (start)
    ::munmap(start, mapped);
}

} // namespace tessera::hal
