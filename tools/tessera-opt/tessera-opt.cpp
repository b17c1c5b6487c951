// Reads MLIR with all our dialects, runs the passes that are asked for, and
// prints what comes out. Any dump of `tessera compile --dump-ir` goes in here.
#include "compiler/InitAll.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  tessera::registerAllDialects(registry);
  tessera::registerAllPasses();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "Tessera's pass driver\n", registry));
}
