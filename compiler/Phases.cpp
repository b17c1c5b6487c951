#include "compiler/Phases.h"
#include "compiler/InitAll.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "models/Recipe.h"
#include "passes/autodiff/Autodiff.h"
#include "passes/folding/Folding.h"
#include "passes/fusion/Fusion.h"
#include "passes/stages/Stages.h"
#include "passes/planning/Planning.h"
#include "passes/precision/Precision.h"
#include "passes/overlap/Overlap.h"
#include "passes/sharding/Sharding.h"
#include "passes/kernels/Passes.h"
#include "runtime/support/QuantizedLayout.h"
#include "llvm/Support/FormatVariadic.h"

using namespace tessera;
using mlir::OpPassManager;

static void noPasses(OpPassManager &, const PhaseOptions &) {}

// What is decided for one layer holds for all that are like it, but for stages,
// of which each layer has its own.
static void sharding(OpPassManager &pipeline, const PhaseOptions &options) {
  bool hasMesh = !options.mesh.axes.empty();
  if (hasMesh && options.fold)
    pipeline.addPass(createFoldLayers());
  buildShardingPipeline(pipeline, options.mesh);
  if (hasMesh && options.mesh.hasPipe())
    pipeline.addPass(createUnfoldLayers());
  buildStagesPipeline(pipeline, options.mesh);
}

static void partition(OpPassManager &pipeline, const PhaseOptions &options) {
  buildPartitionPipeline(pipeline, options.device);
  buildSplitPipeline(pipeline, options.device);
}

static ComputePrecision computeOf(const models::Recipe &recipe) {
  switch (recipe.compute) {
  case models::Precision::Fp32:
    return ComputePrecision::fp32;
  case models::Precision::Bf16:
    return ComputePrecision::bf16;
  case models::Precision::Fp64:
    return ComputePrecision::fp64;
  }
  llvm_unreachable("unknown precision");
}

static void precision(OpPassManager &pipeline, const PhaseOptions &options) {
  buildPrecisionPipeline(pipeline, computeOf(options.recipe));
}

static void verifyPrecision(OpPassManager &pipeline,
                            const PhaseOptions &options) {
  pipeline.addPass(createVerifyPrecision({computeOf(options.recipe)}));
}

static void verifyPrograms(OpPassManager &pipeline,
                           const PhaseOptions &options) {
  pipeline.addPass(
      createVerifyStepProgram({options.mode == models::Mode::Train}));
}

// Programs that generate have nothing to differentiate, and nothing updates
// their weights.
static void programs(OpPassManager &pipeline, const PhaseOptions &options) {
  if (options.mode == models::Mode::Train) {
    AutodiffOptions autodiff = AutodiffOptions::fromRecipe(options.recipe);
    autodiff.step.alwaysLoop = options.mesh.hasPipe();
    buildAutodiffPipeline(pipeline, autodiff);
    if (options.recipe.compute == models::Precision::Fp64) {
      buildWideningPipeline(pipeline);
      verifyPrograms(pipeline, options);
    }
    return;
  }
  if (options.recipe.compute == models::Precision::Bf16)
    pipeline.addPass(createNarrowState());
  const models::Recipe::Inference &inference = options.recipe.inference;
  if (inference.quant != models::Quant::None)
    pipeline.addPass(createQuantizeWeights(
        {.bits = inference.quant == models::Quant::Int4 ? 4 : 8,
         .group = inference.group,
         .zeros = inference.zeros == recipe::ZeroPoints::Groups,
         .floats = inference.quant == models::Quant::Fp8}));
  else if (inference.layout == recipe::WeightLayout::Strips &&
           options.recipe.compute == models::Precision::Bf16)
    pipeline.addPass(
        createQuantizeWeights({.bits = 16, .group = QuantizedLayout::kBlock}));
  pipeline.addPass(mlir::createCanonicalizerPass());
  verifyPrograms(pipeline, options);
}

static void fusion(OpPassManager &pipeline, const PhaseOptions &) {
  pipeline.addPass(createUnfoldLayers());
  buildFusionPipeline(pipeline);
}

static void overlap(OpPassManager &pipeline, const PhaseOptions &) {
  buildOverlapPipeline(pipeline);
}

static void kernels(OpPassManager &pipeline, const PhaseOptions &options) {
  buildKernelsPipeline(pipeline, options.targets);
}

static void planning(OpPassManager &pipeline, const PhaseOptions &) {
  buildPlanningPipeline(pipeline);
}

static constexpr llvm::StringLiteral kImportKeys[] = {"batch.", "dropout.",
                                                      "inference."},
                                     kPrecisionKeys[] = {"precision."},
                                     kAutodiffKeys[] = {"recompute",
                                                        "optimizer.name",
                                                        "schedule.name"};

static constexpr Phase kPhases[] = {
    {"import",
     "the model as its spec says it: @loss, @logits and @init over blocks, one "
     "for each kind of layer",
     noPasses, nullptr, false, false, kImportKeys},
    {"precision",
     "every tensor has the element type in which it is computed; masters stay "
     "f32",
     precision, verifyPrecision, false, false, kPrecisionKeys},
    {"autodiff",
     "whole programs: one training step is one function, with gradients, "
     "accumulation and optimizer; what generates reads weights as they are "
     "kept",
     programs, verifyPrograms, false, false, kAutodiffKeys},
    {"shard",
     "on a mesh: where the elements of every tensor are, and what moves them",
     sharding,
     [](OpPassManager &pipeline, const PhaseOptions &) {
       pipeline.addPass(createVerifyShardings());
     }},
    {"partition",
     "on a mesh: one device's program, with its shares and its collectives",
     partition, nullptr, true},
    {"fusion", "clusters: each becomes one kernel", fusion,
     [](OpPassManager &pipeline, const PhaseOptions &) {
       pipeline.addPass(createVerifyFused());
     },
     true},
    {"overlap",
     "on a mesh: what is started is waited for later, small collectives are "
     "one",
     overlap,
     [](OpPassManager &pipeline, const PhaseOptions &) {
       pipeline.addPass(createVerifyOverlap());
     },
     true,
     false,
     {},
     orderCollectives},
    {"kernels", "launches, and for each target the kernels that they run",
     kernels,
     [](OpPassManager &pipeline, const PhaseOptions &) {
       pipeline.addPass(createVerifyTiled());
     },
     true, true},
    {"planning", "bytes: steps over one arena, with every offset known",
     planning,
     [](OpPassManager &pipeline, const PhaseOptions &) {
       pipeline.addPass(createVerifyPlan());
     },
     true, true},
};

llvm::ArrayRef<Phase> tessera::phases() { return kPhases; }

std::optional<size_t> tessera::findPhase(llvm::StringRef name) {
  for (auto [i, phase] : llvm::enumerate(phases()))
    if (phase.name == name)
      return i;
  return std::nullopt;
}

std::string tessera::dumpName(size_t phase, llvm::StringRef suffix) {
  return llvm::formatv("{0,0+2}-{1}{2}.mlir", phase, phases()[phase].name,
                       suffix)
      .str();
}

// The names in a textual pipeline such as
// "builtin.module(func.func(fuse),verify-fused{option=1})", without what
// anchors them.
static std::vector<std::string> passNames(const OpPassManager &pipeline) {
  std::string text;
  llvm::raw_string_ostream out(text);
  pipeline.printAsTextualPipeline(out);
  std::vector<std::string> names;
  std::string name;
  int braces = 0;
  for (char c : text) {
    braces += c == '{';
    braces -= c == '}';
    if (c == ',' || c == ')') {
      if (braces == 0 && !name.empty())
        names.push_back(std::exchange(name, {}));
    } else if (c == '(' && braces == 0) {
      name.clear();
    } else if (braces == 0 && c != '}') {
      name += c;
    }
  }
  return names;
}

std::string tessera::phasesAsMarkdown() {
  registerAllPasses();
  const models::Recipe recipe;
  PhaseOptions options{recipe, {}};
  options.mesh.axes = "data=2"; // to have the passes of a mesh listed
  std::string table = "| phase | dump | what holds afterwards |\n"
                      "|---|---|---|\n",
              sections;
  for (auto [i, phase] : llvm::enumerate(phases())) {
    table += llvm::formatv("| [{0}](#{0}) | `{1}` | {2} |\n", phase.name,
                           dumpName(i), phase.description)
                 .str();
    sections += llvm::formatv("\n## {0}\n\n", phase.name).str();
    OpPassManager pipeline("builtin.module");
    phase.build(pipeline, options);
    std::vector<std::string> names = passNames(pipeline);
    if (names.empty())
      sections += i ? "No passes.\n" : "No passes: `models/` builds it.\n";
    for (const std::string &name : names) {
      const mlir::PassInfo *pass = mlir::PassInfo::lookup(name);
      sections += llvm::formatv("- `{0}`: {1}\n", name,
                                pass ? pass->getPassDescription() : "")
                      .str();
    }
  }
  return "# Pipeline\n\n"
         "Printed by `tessera compile --list-phases`. A dump is the module "
         "after its phase; `--from=PHASE DUMP`\n"
         "goes on from there. tiling and planning run once for each kind of "
         "device: all CPU variants are one,\n"
         "each CUDA target is one, and where there are several the dumps of "
         "CUDA targets are called\n"
         "`07-kernels.cuda-sm_80.mlir`. After the last phase, "
         "`compiler/target/` turns each kernel into machine code by passes\n"
         "of its own, and `compiler/artifact/` writes the file.\n\n" +
         table + sections;
}
