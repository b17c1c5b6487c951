// Who does the work of each kernel of an executable: the kernel itself, one of
// its variants, or, where it is a product of matrices, a library.
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
  /// For each kernel of `code` that is a product or has variants: leaves it as
  /// it is or takes a variant, by LoadedKernel.variant, or the library's
  /// product, by LoadedKernel.product. Times them if nothing is known from an
  /// earlier start, and leaves out what computes anything else than the kernel
  /// itself. Every product that is chosen has run once, so capturing it loads
  /// nothing. What fails is said in describe(), and that kernel stays as it is:
  /// no start fails by this.
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
