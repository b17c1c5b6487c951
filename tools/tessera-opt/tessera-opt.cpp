// Reads MLIR with all of Tessera's dialects, runs passes, and prints the
// result. Dumps of `tessera compile --dump-ir` are valid input.
#include "compiler/InitAll.h"
#include "compiler/Phases.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/CommandLine.h"

// Hides the hundreds of code-generator options of the linked libraries from
// --help. MLIR's own options are added later, by MlirOptMain.
static void hideOptionsOfLibraries() {
  for (auto &[name, option] : llvm::cl::getRegisteredOptions())
    option->setHiddenFlag(llvm::cl::Hidden);
}

int main(int argc, char **argv) {
  hideOptionsOfLibraries();
  mlir::DialectRegistry registry;
  tessera::registerAllDialects(registry);
  tessera::registerAllPasses();
  tessera::registerPhasePipelines();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv,
                        "runs passes on a file of MLIR\n\n"
                        "  tessera-opt FILE --fuse "
                        "--verify-fused\n"
                        "  tessera-opt FILE "
                        "--pass-pipeline='builtin.module(func."
                        "func(fuse),verify-fused)'\n",
                        registry));
}
