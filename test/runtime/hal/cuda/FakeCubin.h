// What a cubin says of itself: enough to hold callers to it, though nothing
// here can run it.
#pragma once
#include "runtime/support/Status.h"

#include <cstddef>
#include <map>
#include <string>

namespace tessera::test {

struct CubinKernel {
  unsigned argumentBytes = 0;
  unsigned maxThreads = 0;        ///< of a block: __launch_bounds__
  unsigned staticSharedBytes = 0; ///< of a block
};

struct Cubin {
  unsigned capability = 0;                    ///< 90 for sm_90 and sm_90a
  std::map<std::string, CubinKernel> kernels; ///< by symbol
};

/// Whether the ELF that begins there is a cubin.
bool isCubin(const void *image);

/// Reads the ELF's own tables; `image` is as large as they say.
StatusOr<Cubin> readCubin(const void *image);

} // namespace tessera::test
