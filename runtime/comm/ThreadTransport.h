// Ranks that are threads of one process: for tests, and for a job of one rank.
#pragma once
#include "runtime/comm/Transport.h"

#include <memory>
#include <vector>

namespace tessera::comm {

struct ThreadTransportOptions {
  /// Longer messages complete only when they are received, as with an MPI
  /// beyond some length.
  std::size_t eagerBytes = 4096;
};

class ThreadTransport {
public:
  /// One transport for each of `size` ranks.
  static std::vector<std::unique_ptr<Transport>>
  create(int size, const ThreadTransportOptions &options);
};

} // namespace tessera::comm
