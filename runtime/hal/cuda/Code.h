// The code of an artifact for one GPU: which fits, and its kernels, loaded.
#pragma once
#include "runtime/artifact/ArtifactReader.h"
#include "runtime/hal/cuda/Gpu.h"
#include "runtime/hal/cuda/Library.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::hal::cuda {

/// "sm_90a" or "compute_80": a compute capability times ten, and a letter where
/// code uses what later chips need not have.
struct Architecture {
  unsigned capability = 0;
  char letter = 0; ///< 'a': that chip alone; 'f': its family
  bool operator==(const Architecture &) const = default;
};

/// `text` after `prefix`; nothing if it does not have that form.
std::optional<Architecture> parseArchitecture(std::string_view text,
                                              std::string_view prefix);

/// How well code of the target "cuda:sm_90a" (machine code) or "ptx:compute_80"
/// (compiled by the driver) fits a GPU of that compute capability times ten: 0
/// if it does not run, otherwise more is better. Machine code runs on later
/// chips of its major version, PTX on all later chips.
unsigned fitness(std::string_view target, unsigned capability);

/// The part of the artifact whose code fits best. An error says what there is,
/// what the GPU is, and how to compile for it.
StatusOr<const artifact::DeviceCode *>
chooseCode(const ArtifactReader &artifact, const Gpu &gpu);

/// A kernel that can be launched.
struct LoadedKernel {
  Kernel function = nullptr;
  unsigned threads = 0, sharedBytes = 0; ///< of a block; dynamic shared memory
  /// Set if the library computes it, with algorithm `way`; otherwise null.
  const Product *product = nullptr;
  std::size_t way = 0;
  std::string label = {}; ///< then what profiles and errors call it
  /// The variant that is launched instead; otherwise null. In the artifact.
  const artifact::Variant *variant = nullptr;
};

struct LoadedModules {
  std::string_view target; ///< in the artifact
  std::vector<Owned<Module>> modules;
  std::vector<LoadedKernel> kernels; ///< as DeviceCode.kernels
};

/// Loads the code objects of `code` that fit best, and checks that the GPU can
/// run each kernel as the artifact says.
StatusOr<LoadedModules> loadCode(const ArtifactReader &artifact,
                                 const artifact::DeviceCode &code,
                                 const std::shared_ptr<Gpu> &gpu);

} // namespace tessera::hal::cuda
