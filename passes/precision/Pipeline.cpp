// The order of the phase.
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "passes/precision/Precision.h"

using namespace mlir;

void tessera::buildPrecisionPipeline(OpPassManager &pipeline,
                                     recipe::Precision compute,
                                     bool roundRows) {
  pipeline.addPass(createApplyPrecision({compute, roundRows}));
  // Constants take their new type, conversions there and back go, before the
  // gradients of either are made.
  pipeline.addPass(createCanonicalizerPass());
  pipeline.addPass(createVerifyPrecision({compute}));
}

void tessera::buildF64Pipeline(OpPassManager &pipeline) {
  pipeline.addPass(createConvertProgramsToF64());
  pipeline.addPass(createCanonicalizerPass());
}
