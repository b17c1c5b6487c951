#include "runtime/support/ProcessMemory.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>

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

} // namespace tessera
