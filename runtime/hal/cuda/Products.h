// Chooses the implementation of each kernel of an executable: the kernel
// itself, one of its variants, or, for a matmul, a library.
#pragma once
#include "runtime/hal/Device.h"
#include "runtime/hal/cuda/Code.h"
#include "runtime/hal/cuda/Trial.h"

#include <string>
#include <vector>

namespace tessera::hal::cuda {

/// How that is chosen.
struct Tuning {
  enum class Mode : std::uint8_t {
    timed,     ///< by time, as long as `seconds` last; then as fixed
    fixed,     ///< no variants; the library from kLibraryFlops on
    generated, ///< always the kernel itself
  };
  Mode mode = Mode::timed;
  double seconds = 2;
};

/// A product with fewer FLOPs, that an H200 has done in two microseconds, is
/// left to the generated kernel where nothing is timed.
inline constexpr std::uint64_t kLibraryFlops = std::uint64_t(1) << 30;

/// DeviceOptions.tune or TESSERA_TUNE.
StatusOr<Tuning> parseTuning(const DeviceOptions &options);

/// The matmuls that the library computes for an executable, and a summary of
/// the choices for display.
class Products {
public:
  /// For each kernel of `code` that is a matmul or has variants: keeps it, or
  /// sets LoadedKernel.variant, or, for the library's matmul,
  /// LoadedKernel.product. Times them if an earlier start has not, and excludes
  /// candidates whose results differ from the kernel's. Every chosen library
  /// matmul has run once, so capturing it loads nothing. Failures are reported
  /// by describe() and leave the kernel unchanged: no start fails by this.
  static Products choose(const ArtifactReader &artifact,
                         const artifact::DeviceCode &code,
                         LoadedModules &modules,
                         const std::shared_ptr<Gpu> &gpu, const Tuning &tuning);

  /// "cuBLASLt 13.1.0 computes 9 of 14 products; 2 kernels run as a variant
  /// that is faster here", and what failed; empty where there was no choice.
  const std::string &describe() const { return text; }
  std::uint64_t workspaceBytes() const {
    return library ? library->workspaceBytes() : 0;
  }

private:
  friend class ProductChooser;
  std::shared_ptr<Library> library; ///< null where it is not used
  std::vector<std::unique_ptr<Product>> used;
  std::string text;
};

} // namespace tessera::hal::cuda
