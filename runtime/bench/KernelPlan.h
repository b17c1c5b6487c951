// A program made over so that its kernels can be timed one by one: the same
// steps in the same order, but the first launch of each kernel happens many
// times, each after a fill that drives everything else out of the caches. What
// a kernel reads is therefore what the program's own earlier steps wrote.
#pragma once
#include "runtime/artifact/Artifact_generated.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <flatbuffers/flatbuffers.h>

namespace tessera::bench {

/// A kernel with one set of sizes: launches of other sizes are other problems.
struct Problem {
  const artifact::Kernel *kernel;
  std::string origin;         ///< of the first launch
  std::uint64_t launches = 0; ///< in one run of the program
  std::uint32_t step = 0;     ///< of the timed launch, in the made program
  std::uint64_t repeats = 0;  ///< of that launch in one run; 0: not timed
};

struct KernelPlanOptions {
  std::string_view filter;      ///< part of a kernel's name; empty: all
  std::uint64_t repeats = 1;    ///< of each problem, at least
  std::uint64_t flushBytes = 0; ///< written before each timed launch
};

struct KernelPlan {
  flatbuffers::DetachedBuffer bytes; ///< of `program`
  const artifact::Program *program = nullptr;
  std::vector<Problem> problems; ///< in the order of first launch
  std::uint64_t events = 0;      ///< steps in one run
  /// Where the flushed bytes begin in the made program's io, whose earlier part
  /// is the program's own.
  std::uint64_t flushOffset = 0;
};

KernelPlan planKernels(const artifact::DeviceCode &code,
                       const artifact::Program &program,
                       const KernelPlanOptions &options);

/// A program that copies `bytes` of its io `repeats` times: reads them at
/// offset 0 and writes them at offset `bytes`. Its only step is the copy.
KernelPlan planCopies(std::uint64_t bytes, std::uint64_t repeats);

} // namespace tessera::bench
