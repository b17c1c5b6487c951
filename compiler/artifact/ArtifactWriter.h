// From a plan and its machine code to the bytes of an artifact
// (runtime/artifact/Artifact.fbs). The only place where the compiler meets the
// runtime's schema.
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace tessera {

/// Machine code of all kernels for one target.
struct CodeObject {
  std::string target;                ///< "cpu:avx512bf16"
  std::vector<std::string> features; ///< cpuid names; all must be present
  std::string elf;                   ///< a shared object
  llvm::StringMap<int64_t> scratch;  ///< kernel → bytes a thread needs
};

/// What the artifact says about itself.
struct ArtifactInfo {
  std::string compilerVersion;
  std::string programHash;
  std::string modelConfig; ///< config.json as given
  std::string recipe;      ///< resolved, as YAML
  std::string rebuildCommand;
  std::vector<std::pair<std::string, std::string>>
      sources; ///< (file name, text)
};

/// Serializes the plan programs of `module`. Kernels are described by the
/// tile.kernel ops of any one target, which must still be in nested modules.
llvm::Expected<std::string> writeArtifact(mlir::ModuleOp module,
                                          llvm::ArrayRef<CodeObject> code,
                                          const ArtifactInfo &info);

} // namespace tessera
