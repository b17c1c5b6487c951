// The passes about stages, at the ends of two phases.
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "passes/stages/Stages.h"

using namespace mlir;
using namespace tessera;

void tessera::buildStagesPipeline(OpPassManager &pipeline,
                                  const MeshRequest &request) {
  AssignStagesOptions options;
  options.schedule = request.schedule;
  options.chunks = request.chunks;
  pipeline.addPass(createAssignStages(options));
}

void tessera::buildSplitPipeline(OpPassManager &pipeline, int64_t device) {
  SplitStagesOptions options;
  options.device = device;
  pipeline.addPass(createSplitStages(options));
  // Blocks of other stages, and updates of their parameters.
  pipeline.addPass(createSymbolDCEPass());
  // Ops that microbatches share were emitted for each of them.
  pipeline.addPass(createCanonicalizerPass());
  pipeline.addPass(createCSEPass());
}
