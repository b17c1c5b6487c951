// Reduces a module while it still shows a defect: tessera-reduce FILE
// --reduction-tree='traversal-mode=0 test=SCRIPT', where SCRIPT exits with 1 if
// its argument still shows the defect.
#include "compiler/InitAll.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Reducer/Passes.h"
#include "mlir/Tools/mlir-reduce/MlirReduceMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  tessera::registerAllDialects(registry);
  tessera::registerAllPasses();
  mlir::registerReducerPasses();
  mlir::MLIRContext context(registry);
  return mlir::failed(mlir::mlirReduceMain(argc, argv, context));
}
