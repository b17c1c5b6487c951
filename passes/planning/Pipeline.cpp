// The order of the planning phase.
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "passes/planning/Planning.h"

using namespace mlir;

void tessera::buildPlanningPipeline(OpPassManager &pipeline) {
  // Copies of launches, which all phases before had once.
  pipeline.addNestedPass<func::FuncOp>(createUnrollLoops());
  // Assigns bytes to every tensor; afterwards no tensor values remain.
  pipeline.addPass(createPlanBuffers());
  // Now that all addresses are known.
  pipeline.addPass(createMarkAligned());
  pipeline.addPass(createMarkUnwritten());
  // The verifier shares no code with the planner.
  pipeline.addPass(createVerifyPlan());
}
