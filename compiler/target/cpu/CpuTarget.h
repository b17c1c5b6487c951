// The entry of the CPU target: kernels to machine code.
#pragma once
#include "compiler/cache/KernelCache.h"
#include "hardware/Targets.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace mlir {
class DialectRegistry;
}

namespace tessera::cpu {

/// The kernels (tile.kernel, directly inside `module`) made for one target.
struct KernelModule {
  mlir::ModuleOp module;
  TileTarget target;
};

/// Machine code of the kernels of one target.
struct CodeObject {
  std::string elf; ///< shared object, a symbol for each kernel, no dependencies
  llvm::StringMap<uint64_t> scratchBytes; ///< by kernel: per thread
};

struct CompileOptions {
  unsigned threads = 0;         ///< 0: one for each core
  KernelCache *cache = nullptr; ///< null: compile everything
  /// Called once for each kernel, from the thread that compiled it, never
  /// concurrently.
  std::function<void(llvm::StringRef kernel, llvm::StringRef target,
                     double seconds, bool cached)>
      progress;
};

/// Registers the translations to LLVM in the context. Call it before several
/// threads use the context.
void registerCpuTarget(mlir::DialectRegistry &registry);

/// Compiles all kernels of all modules, which must share one context with the
/// dialects of registerCpuTarget; returns one code object for each module, in
/// order. The modules are not changed. Errors name kernel and op.
llvm::Expected<std::vector<CodeObject>>
compileKernels(llvm::ArrayRef<KernelModule> modules,
               const CompileOptions &options);

/// TileTarget::features; empty for an unknown target.
std::vector<std::string> requiredFeatures(llvm::StringRef target);
/// The required features that the running processor lacks, such as " avx512f
/// avx512bw"; empty if it can run the target's code.
std::string missingFeatures(llvm::StringRef target);
/// The target whose code the runtime would choose on this processor among all
/// (runtime/hal/cpu/CpuDevice.cpp); TESSERA_CPU names another. Empty if the
/// processor supports none.
std::string nativeTarget();

} // namespace tessera::cpu
