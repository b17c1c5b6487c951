// From kernels to machine code: the CPU target's front door.
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
  std::string elf; ///< shared object, one symbol a kernel, no dependencies
  llvm::StringMap<uint64_t> scratchBytes; ///< by kernel: per thread
};

struct CompileOptions {
  unsigned threads = 0;         ///< 0: as many as the machine has
  KernelCache *cache = nullptr; ///< null: compile everything
  /// Called once a kernel, from the thread that compiled it, one at a time.
  std::function<void(llvm::StringRef kernel, llvm::StringRef target,
                     double seconds, bool cached)>
      progress;
};

/// What translation to LLVM needs registered in the context. To be called
/// before the context is used by several threads.
void registerCpuTarget(mlir::DialectRegistry &registry);

/// Compiles all kernels of all modules, which must share one context with the
/// dialects of registerCpuTarget; returns one code object for each module, in
/// order. The modules are not changed. Errors name kernel and op.
llvm::Expected<std::vector<CodeObject>>
compileKernels(llvm::ArrayRef<KernelModule> modules,
               const CompileOptions &options);

/// The features that a processor must have to run the target's code, as
/// /proc/cpuinfo spells them; empty for an unknown target.
std::vector<std::string> requiredFeatures(llvm::StringRef target);
/// Those of them that the running processor lacks, " avx512f avx512bw"; empty
/// where it can run the target's code.
std::string missingFeatures(llvm::StringRef target);

} // namespace tessera::cpu
