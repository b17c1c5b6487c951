#include "compiler/api/DescribeHost.h"
#include "runtime/support/CpuFeatures.h"
#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <thread>
#include <unistd.h>

using namespace tessera;

static std::string firstWord(const std::string &path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

double tessera::lastLevelCache(const std::string &folder, int64_t cores) {
  std::map<std::string, double> instances; // by the processors that share it
  for (int64_t core = 0; core < cores; ++core) {
    const std::string cache =
        fmt::format("{}/cpu{}/cache/index3/", folder, core);
    const std::string size = firstWord(cache + "size"); // "32768K"
    if (size.ends_with('K'))
      instances[firstWord(cache + "shared_cpu_list")] =
          1024 * std::strtod(size.c_str(), nullptr);
  }
  double bytes = 0;
  for (const auto &[processors, size] : instances)
    bytes += size;
  return bytes;
}

planner::Host tessera::describeHost() {
  planner::Host host;
  host.processor = CpuFeatures::brand();
  host.cores = std::max(1U, std::thread::hardware_concurrency());
  host.memory = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
  // sysconf knows the socket's cache, and in a virtual machine that is more
  // than these processors can use.
  host.cache = lastLevelCache("/sys/devices/system/cpu", host.cores);
  if (host.cache == 0)
    host.cache = double(std::max(0L, sysconf(_SC_LEVEL3_CACHE_SIZE)));
  return host;
}
