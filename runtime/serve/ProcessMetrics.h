// Metrics of the process: its build, its memory, and the kernels that it
// compiled.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace tessera::serve {

/// `compiledBefore`: kernels that had been compiled when the server was ready.
std::string processMetrics(const std::string &version,
                           std::uint64_t compiledBefore);

/// Number of responses by status.
std::string answerMetrics(const std::map<int, std::uint64_t> &answers);

} // namespace tessera::serve
