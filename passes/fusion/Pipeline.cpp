// The order of the fusion phase.
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "passes/fusion/Fusion.h"

using namespace mlir;

void tessera::buildFusionPipeline(OpPassManager &pipeline) {
  //===--- primitives, while a layer is still one function ----------------===//
  OpPassManager &functions = pipeline.nest<func::FuncOp>();
  // The loops that chunks need exist before what runs inside them is taken
  // apart.
  functions.addPass(createExpandLinearCrossEntropy());
  functions.addPass(createDecomposeComposites());
  // Gradients ask for shapes of reductions that no skeleton has.
  functions.addPass(createNormalizeReductions());
  functions.addPass(createCanonicalizerPass());
  // Within a block only: across them it would undo recomputation.
  functions.addPass(createCSEPass());

  //===--- one flat program -----------------------------------------------===//
  // Producers and consumers meet only when nothing stands between layers.
  pipeline.addPass(createInlineBlocks());
  pipeline.addNestedPass<func::FuncOp>(createCanonicalizerPass());
  // Microbatches and chunks of the head now stand inside each other.
  pipeline.addNestedPass<func::FuncOp>(createSinkAccumulators());
  pipeline.addNestedPass<func::FuncOp>(createMaterializeInductionVariables());
  // So do all layers, each with its own table of angles.
  pipeline.addNestedPass<func::FuncOp>(createHoistInputInvariants());

  //===--- clusters -------------------------------------------------------===//
  pipeline.addNestedPass<func::FuncOp>(createFuse());
  pipeline.addPass(createVerifyFused());
}
