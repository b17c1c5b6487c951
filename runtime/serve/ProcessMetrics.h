// What /metrics says of the process: which build it is, how much memory it
// has, and whether it compiles.
#pragma once
#include <cstdint>
#include <string>

namespace tessera::serve {

/// `compiledBefore`: kernels that had been compiled when the server was ready.
std::string processMetrics(const std::string &version,
                           std::uint64_t compiledBefore);

} // namespace tessera::serve
