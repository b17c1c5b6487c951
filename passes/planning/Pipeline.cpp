// The order of the planning phase.
#include "mlir/Pass/PassManager.h"
#include "passes/planning/Planning.h"

using namespace mlir;

void tessera::buildPlanningPipeline(OpPassManager &pipeline) {
  // Assigns bytes to every tensor; afterwards no tensor values remain.
  pipeline.addPass(createPlanBuffers());
  // The verifier shares no code with the planner.
  pipeline.addPass(createVerifyPlan());
}
