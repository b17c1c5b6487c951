// The order of the phase.
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "passes/autodiff/Autodiff.h"
#include "passes/precision/Precision.h"

using namespace mlir;
using namespace tessera;

void tessera::buildAutodiffPipeline(OpPassManager &pipeline,
                                    const AutodiffOptions &options) {
  //===--- gradients ------------------------------------------------------===//
  // Before differentiation, which adds the loops of gradients itself.
  pipeline.addPass(createAddOverflowRounds());
  pipeline.addPass(createDifferentiate({options.recompute}));
  // While the results of @gradients are the roots and nothing reads them yet.
  pipeline.addPass(createF32WeightGradients());

  //===--- programs -------------------------------------------------------===//
  pipeline.addPass(createBuildTrainStep(options.step));
  // Now that the sums over microbatches are there to scatter onto.
  pipeline.addPass(createSimplifyGradientSums());
  // Takes @loss away, so it comes after everything that needs it.
  pipeline.addPass(createBuildEvalStep(options.eval));
  // Blocks that only @loss called.
  pipeline.addPass(createSymbolDCEPass());
  // Removes sums of one term and round-trip conversions. No CSE: in programs it
  // would merge forward and recomputed ops, and keep the forward values alive.
  pipeline.addPass(createCanonicalizerPass());

  pipeline.addPass(createVerifyStepProgram());
}

AutodiffOptions AutodiffOptions::fromRecipe(const models::Recipe &recipe) {
  AutodiffOptions result;
  result.recompute = recipe.recompute;
  BuildTrainStepOptions &step = result.step;
  step.optimizer = recipe.optimizer.name;
  step.schedule = recipe.schedule.name;
  step.accumulate = recipe.batch.accumulate;
  step.lr = recipe.optimizer.lr;
  step.beta1 = recipe.optimizer.betas[0];
  step.beta2 = recipe.optimizer.betas[1];
  step.eps = recipe.optimizer.eps;
  step.weightDecay = recipe.optimizer.weightDecay;
  step.clip = recipe.optimizer.clip;
  step.momentum = recipe.optimizer.momentum;
  step.warmup = recipe.schedule.warmup;
  step.total = recipe.schedule.total;
  step.minRatio = recipe.schedule.minRatio;
  step.separate = recipe.optimizer.update == recipe::OptimizerUpdate::Separate;
  return result;
}
