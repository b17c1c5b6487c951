#include "runtime/serve/ProcessMetrics.h"
#include "runtime/support/CompilationCount.h"
#include "runtime/support/ProcessMemory.h"

#include <iterator>

#include <fmt/format.h>

namespace tessera::serve {

std::string processMetrics(const std::string &version,
                           std::uint64_t compiledBefore) {
  std::string out;
  auto print = [&](std::string_view name, std::string_view type,
                   std::string_view help, std::string_view labels,
                   std::uint64_t value) {
    fmt::format_to(std::back_inserter(out),
                   "# HELP {0} {1}\n# TYPE {0} {2}\n{0}{3} {4}\n", name, help,
                   type, labels, value);
  };
  std::uint64_t compiled = compilationCount;
  print("tessera:build_info", "gauge", "The program.",
        fmt::format("{{version=\"{}\"}}", version), 1);
  print("tessera:compilations_total", "counter",
        "Kernels that this process compiled since it started.", "", compiled);
  print("tessera:compilations_after_ready_total", "counter",
        "Kernels compiled since the server was ready.", "",
        compiled - compiledBefore);
  auto memory = readProcessMemory();
  if (!memory.ok())
    return out; // unknown without /proc
  print("process_resident_memory_bytes", "gauge",
        "Memory of the process (RSS).", "", memory->residentBytes);
  return out;
}

std::string answerMetrics(const std::map<int, std::uint64_t> &answers) {
  std::string out = "# HELP tessera:http_responses_total Responses by status.\n"
                    "# TYPE tessera:http_responses_total counter\n";
  for (const auto &[status, count] : answers)
    out += fmt::format("tessera:http_responses_total{{code=\"{}\"}} {}\n",
                       status, count);
  return out;
}

} // namespace tessera::serve
