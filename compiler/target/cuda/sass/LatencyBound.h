// The least time of a kernel by its machine code: how long a block waits for
// memory, how many blocks an SM has at once, and how many instructions it
// issues. The roofline knows none of these.
#pragma once
#include <optional>

#include "compiler/target/cuda/sass/Trace.h"
#include "hardware/Gpus.h"
#include "runtime/artifact/Artifact_generated.h"

namespace tessera::sass {

/// What limits a kernel, the largest of its bounds.
enum class Limit : std::uint8_t {
  bandwidth,  ///< roofline: bytes
  arithmetic, ///< roofline: FLOPs
  chain,      ///< round trips to memory, one after the other
  inFlight,   ///< the same, of more blocks than fit at once
  issue,      ///< instructions
  functions,  ///< special functions (MUFU)
  tail        ///< FLOPs of the SM that has the most blocks
};
std::string_view nameOf(Limit limit);

struct KernelBound {
  std::string unknown;              ///< why it cannot be bounded; empty: it is
  double roofline = 0, latency = 0; ///< seconds of one launch
  Limit limit = Limit::bandwidth;
  std::int64_t blocks = 0, concurrent = 0; ///< of the grid, of an SM at once
  double waits = 0;         ///< for memory, of a block's slowest warp
  double bytesInFlight = 0; ///< of an SM, on average
  double instructions = 0;  ///< of a block, all warps
  bool isAssumed = false;   ///< a branch depends on values in memory
  WarpTrace slowest;        ///< of the first block
};

/// How a kernel's blocks fit on an SM.
std::int64_t concurrentBlocks(const artifact::GpuKernel &kernel,
                              const hardware::Multiprocessors &sm);

/// Accesses that could be to any memory: LD, ST.
std::uint64_t countGeneric(const Function &function);

/// The bound of `launch` of `kernel`, whose code is `function`, on `chip`,
/// which has multiprocessors. Five blocks are followed. `blocks`: as of
/// parametersOf.
KernelBound boundOf(const artifact::Kernel &kernel,
                    const artifact::Launch &launch, std::uint64_t blocks,
                    const Function &function, const hardware::Chip &chip);

/// The bound and the executed loops, a line each.
std::string describe(const Function &function, const KernelBound &bound);

} // namespace tessera::sass
