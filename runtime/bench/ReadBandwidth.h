// How fast this machine's threads read memory that no cache holds: what
// decoding is to be measured by, since each token reads every weight once.
#pragma once
#include "runtime/hal/cpu/ThreadPool.h"
#include "runtime/hal/host/HostMemory.h"
#include "runtime/support/Status.h"

#include <memory>

namespace tessera::bench {

class ReadBandwidth {
public:
  /// Takes a buffer of `bytes` in huge pages, several times the last cache.
  static StatusOr<ReadBandwidth>
  create(unsigned threads, std::uint64_t bytes = std::uint64_t(1) << 30);

  std::uint64_t bytes() const { return memory.size(); }
  /// One pass over the buffer, shared among the threads as they come free.
  void read();

private:
  ReadBandwidth(std::unique_ptr<hal::ThreadPool> pool, hal::HostMemory memory)
      : pool(std::move(pool)), memory(std::move(memory)) {}
  std::unique_ptr<hal::ThreadPool> pool;
  hal::HostMemory memory;
};

} // namespace tessera::bench
