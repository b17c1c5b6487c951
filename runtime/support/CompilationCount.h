// How often this process made machine code. The compiler counts each kernel
// that it emits; a server proves with it that nothing is compiled while
// requests come.
#pragma once
#include <atomic>
#include <cstdint>

namespace tessera {

inline std::atomic<std::uint64_t> compilationCount = 0;

} // namespace tessera
