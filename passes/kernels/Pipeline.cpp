// The order of the selection and kernels phases.
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "passes/folding/Folding.h"
#include "passes/kernels/Passes.h"

using namespace mlir;

void tessera::buildSelectionPipeline(OpPassManager &pipeline,
                                     llvm::ArrayRef<std::string> targets,
                                     bool byteRows) {
  // Which kernels can read rows depends on how they are aligned.
  PadRowsOptions rows;
  rows.targets = targets;
  pipeline.addPass(createPadRows(std::move(rows)));

  PlanKernelsOptions plan;
  plan.targets = targets;
  plan.byteRows = byteRows;
  pipeline.addPass(createPlanKernels(std::move(plan)));
}

void tessera::buildKernelsPipeline(OpPassManager &pipeline,
                                   llvm::ArrayRef<std::string> targets,
                                   bool allVariants) {
  //===--- kernels --------------------------------------------------------===//
  EmitKernelsOptions options;
  options.targets = targets;
  options.allVariants = allVariants;
  pipeline.addPass(createEmitKernels(std::move(options)));

  // Skeletons emit unsimplified index arithmetic.
  pipeline.addPass(createCanonicalizerPass());
  pipeline.addPass(createCSEPass());

  //===--- barriers -------------------------------------------------------===//
  // When all loads and stores are in their final order.
  pipeline.addPass(createInsertBarriers());

  //===--- launches -------------------------------------------------------===//
  // Equal layers have the same kernels, but each has launches of its own.
  pipeline.addPass(createRestoreLayers());
  // All updates of an optimizer are one parallel region.
  pipeline.addNestedPass<func::FuncOp>(createGroupLaunches());

  pipeline.addPass(createVerifyTiled());
}
