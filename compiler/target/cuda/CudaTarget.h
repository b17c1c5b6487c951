// The entry of the CUDA target: kernels to device code.
#pragma once
#include "compiler/cache/KernelCache.h"
#include "compiler/target/cuda/Cubin.h"
#include "compiler/target/cuda/CudaPrinter.h"
#include "mlir/IR/BuiltinOps.h"
#include <functional>

namespace tessera::cuda {

/// Code of some of a module's kernels.
struct KernelObject {
  std::string bytes;
  std::vector<std::string> kernels; ///< names
};

struct CompiledKernels {
  /// Shapes of all kernels, in the module's order, without the variants that
  /// fail a check.
  std::vector<KernelShape> shapes;
  std::vector<KernelResources> resources; ///< the same order; empty: no cubins
  std::vector<KernelObject> cubins;       ///< together all kernels, or none
  std::vector<KernelObject> ptx;      ///< of the same, if other chips accept it
  std::vector<KernelObject> emulated; ///< shared objects for the emulated GPU
};

struct CompileOptions {
  unsigned processes = 0;       ///< at once; 0: one for each core
  KernelCache *cache = nullptr; ///< null: compile everything
  bool cubins = true;           ///< needs nvcc
  bool emulated = true;         ///< needs a C++ compiler
  /// Called once for each object, from the thread that made it, never
  /// concurrently: `what` is "6 kernels" or the name of the only one.
  std::function<void(llvm::StringRef what, llvm::StringRef target,
                     double seconds, bool cached)>
      progress;
};

/// Prints and compiles all kernels (tile.kernel, directly inside `module`) for
/// `target`. Errors: an op without CUDA form, a missing compiler, its
/// diagnostics, a failed check (Cubin.h).
llvm::Expected<CompiledKernels> compileKernels(mlir::ModuleOp module,
                                               const TileTarget &target,
                                               const CompileOptions &options);

} // namespace tessera::cuda
