// The order of the kernels phase.
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "passes/kernels/Passes.h"

using namespace mlir;

void tessera::buildKernelsPipeline(OpPassManager &pipeline,
                                   llvm::ArrayRef<std::string> targets,
                                   bool allVariants) {
  //===--- kernels --------------------------------------------------------===//
  EmitKernelsOptions options;
  options.targets = targets;
  options.allVariants = allVariants;
  pipeline.addPass(createEmitKernels(std::move(options)));

  //===--- launches -------------------------------------------------------===//
  // All updates of an optimizer are one parallel region.
  pipeline.addNestedPass<func::FuncOp>(createGroupLaunches());

  //===--- kernels that read well -----------------------------------------===//
  // Skeletons emit unsimplified index arithmetic.
  pipeline.addPass(createCanonicalizerPass());
  pipeline.addPass(createCSEPass());

  //===--- barriers -------------------------------------------------------===//
  // Last, when all loads and stores are in their final order.
  pipeline.addPass(createInsertBarriers());

  pipeline.addPass(createVerifyTiled());
}
