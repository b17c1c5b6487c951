// Kernels compute what the graph says, within the error that their arithmetic
// may make.
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "test/metamorphic/CheckPasses.h"

namespace mlir {
class DialectRegistry;
}

namespace tessera::metamorphic {

/// What the context of modules that become kernels must be made with.
void registerKernelDialects(mlir::DialectRegistry &registry);

/// Functions that become the kernels of one module: code generation costs
/// least where many come at once, and functions then share kernels.
class KernelBatch {
public:
  /// Takes `module` through the passes before tiling. A failure of those is
  /// given back, and the module is left out.
  std::optional<Failure> add(mlir::ModuleOp module);

  /// Tiles and compiles for "cpu:avx512bf16" and the like, and runs every
  /// function as a whole, and again block by block and in place, which must
  /// give equal bits. Returns one entry a module, in the order of add.
  std::vector<std::optional<Failure>> run(llvm::StringRef target,
                                          Counts &counts);

private:
  struct Case {
    mlir::OwningOpRef<mlir::ModuleOp> fused;
    interpreter::Tensors inputs;
    std::vector<Bounded> expected;
    std::string text; // of the module as it was given
  };

  std::optional<std::vector<std::optional<Failure>>>
  runTogether(llvm::ArrayRef<Case *> cases, llvm::StringRef target,
              Counts &counts, Failure &error);

  std::vector<Case> cases;
};

} // namespace tessera::metamorphic
