// The order of the planning phase.
#include "mlir/Pass/PassManager.h"
#include "passes/planning/Planning.h"

using namespace mlir;

void tessera::buildPlanningPipeline(OpPassManager &pipeline) {
  // Bytes for every tensor: from here on nothing is a value any more.
  pipeline.addPass(createPlanBuffers());
  // The proof that it is right does not share code with what it proves.
  pipeline.addPass(createVerifyPlan());
}
