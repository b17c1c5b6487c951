// A launch as its kernel's code sees it (runtime/device/Launch.cuh).
#pragma once
#include <unordered_map>

#include "compiler/target/cuda/sass/Thread.h"
#include "runtime/artifact/Artifact_generated.h"

namespace tessera::sass {

struct Parameters {
  std::vector<std::uint64_t> words; ///< of struct Launch
  /// Its table of the instances but the first.
  std::unordered_map<std::uint64_t, std::uint32_t> memory;
  std::uint32_t blocks = 0; ///< of the grid
};

/// Buffers have addresses that are aligned as theirs are, in ranges of their
/// own. `blocks` of a variant, which launches one instance; 0: the launch's.
Parameters parametersOf(const artifact::Kernel &kernel,
                        const artifact::Launch &launch, std::uint64_t blocks);

/// Where parameters start in constant bank 0. Undocumented; the same in every
/// cubin for the target (EIATTR_PARAM_CBANK).
std::uint32_t parameterOffset(std::string_view target);

} // namespace tessera::sass
