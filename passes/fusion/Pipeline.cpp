// The order of the fusion phase.
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "passes/fusion/Fusion.h"

using namespace mlir;

void tessera::buildFusionPipeline(OpPassManager &pipeline) {
  //===--- primitives, while a layer is still one function ----------------===//
  OpPassManager &functions = pipeline.nest<func::FuncOp>();
  // The loops over chunks exist before their bodies are decomposed.
  functions.addPass(createExpandLinearCrossEntropy());
  functions.addPass(createDecomposeComposites());
  // Gradients contain reductions that no skeleton has.
  functions.addPass(createNormalizeReductions());
  functions.addPass(createCanonicalizerPass());
  // Within a block only: across them it would undo recomputation.
  functions.addPass(createCSEPass());

  //===--- one flat program -----------------------------------------------===//
  // Producers and consumers fuse only if they are in one function.
  pipeline.addPass(createInlineBlocks());
  // While ops still have the marks of their calls. Fusion keeps the order.
  pipeline.addNestedPass<func::FuncOp>(createInterleavePairs());
  pipeline.addNestedPass<func::FuncOp>(createCanonicalizerPass());
  // Microbatches and chunks of the head are now nested.
  pipeline.addNestedPass<func::FuncOp>(createSinkAccumulators());
  pipeline.addNestedPass<func::FuncOp>(createMaterializeInductionVariables());
  // All layers are now in one function, each with its own table of angles.
  pipeline.addNestedPass<func::FuncOp>(createHoistInputInvariants());

  //===--- clusters -------------------------------------------------------===//
  pipeline.addNestedPass<func::FuncOp>(createFuse());
}
