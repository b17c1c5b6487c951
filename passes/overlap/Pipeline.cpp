// The pass pipeline of the phase `overlap`.
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "passes/overlap/Overlap.h"

using namespace mlir;

void tessera::buildOverlapPipeline(OpPassManager &pipeline) {
  // What must be the same on all ranks is decided first, and only once.
  pipeline.addPass(createOrderCollectives());
  // Then collectives are merged, which changes their durations.
  pipeline.addNestedPass<func::FuncOp>(createBucketCollectives());
  // Within that order each program chooses its own positions for starts and
  // waits.
  pipeline.addNestedPass<func::FuncOp>(createOverlapCollectives());
  pipeline.addPass(createVerifyOverlap());
}
