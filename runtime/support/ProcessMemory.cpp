#include "runtime/support/ProcessMemory.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace tessera {

StatusOr<ProcessMemory> readProcessMemory() {
  constexpr const char *path = "/proc/self/status";
  std::unique_ptr<std::FILE, int (*)(std::FILE *)> file(std::fopen(path, "re"),
                                                        std::fclose);
  if (!file)
    return Status::error("{}: cannot open: {}", path, std::strerror(errno));
  ProcessMemory memory;
  int found = 0;
  char line[256];
  while (std::fgets(line, sizeof(line), file.get())) {
    std::uint64_t kibibytes = 0;
    if (std::sscanf(line, "VmRSS: %" SCNu64 " kB", &kibibytes) == 1)
      memory.residentBytes = kibibytes * 1024, ++found;
    else if (std::sscanf(line, "VmHWM: %" SCNu64 " kB", &kibibytes) == 1)
      memory.peakResidentBytes = kibibytes * 1024, ++found;
  }
  if (found != 2)
    return Status::error("{}: no VmRSS and VmHWM lines", path);
  return memory;
}

// proc(5): 5 in clear_refs resets the peak.
void resetPeakResident() {
  if (std::FILE *file = std::fopen("/proc/self/clear_refs", "we")) {
    std::fputs("5", file);
    std::fclose(file);
  }
}

StatusOr<std::uint64_t> residentBytes(std::span<const std::byte> region) {
  // A byte a page is asked for; in pieces, for regions of many GiB.
  constexpr std::size_t kPiecePages = std::size_t(1) << 14;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> present(kPiecePages);
  std::uint64_t pages = 0;
  while (!region.empty()) {
    std::size_t bytes = std::min(region.size(), kPiecePages * page);
    auto *begin = const_cast<std::byte *>(region.data());
    if (::mincore(begin, bytes, present.data()) != 0)
      return Status::error("mincore: {}", std::strerror(errno));
    for (std::size_t i = 0; i < (bytes + page - 1) / page; ++i)
      pages += present[i] & 1;
    region = region.subspan(bytes);
  }
  return pages * page;
}

} // namespace tessera
