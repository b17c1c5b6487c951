// The order of the phase.
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "passes/inference/Inference.h"

using namespace mlir;

void tessera::buildInferencePipeline(OpPassManager &pipeline,
                                     const InferenceOptions &options) {
  if (options.narrow)
    pipeline.addPass(createNarrowState());
  if (options.logSums)
    pipeline.addPass(createAddLogSums());
  if (options.quantize)
    pipeline.addPass(createQuantizeWeights(*options.quantize));
  pipeline.addPass(createCanonicalizerPass());
}
