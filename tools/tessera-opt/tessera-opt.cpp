// Reads MLIR with all our dialects, runs the passes that are asked for, and
// prints what comes out. Any dump of `tessera compile --dump-ir` goes in here.
#include "compiler/InitAll.h"
#include "compiler/Phases.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/CommandLine.h"

// The linked libraries bring hundreds of options of code generators, which a
// reader of --help must not wade through. MLIR's own come later, in its main.
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
                        "runs passes on MLIR text\n\n"
                        "  tessera-opt FILE --fuse "
                        "--verify-fused\n"
                        "  tessera-opt FILE "
                        "--pass-pipeline='builtin.module(func."
                        "func(fuse),verify-fused)'\n",
                        registry));
}
