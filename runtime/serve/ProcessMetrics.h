// What /metrics says of the process: which build it is, how much memory it
// has, and whether it compiles.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace tessera::serve {

/// `compiledBefore`: kernels that had been compiled when the server was ready.
std::string processMetrics(const std::string &version,
                           std::uint64_t compiledBefore);

/// Answers by their status.
std::string answerMetrics(const std::map<int, std::uint64_t> &answers);

} // namespace tessera::serve
