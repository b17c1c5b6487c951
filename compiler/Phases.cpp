#include "compiler/Phases.h"
#include "compiler/InitAll.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "models/Recipe.h"
#include "passes/autodiff/Autodiff.h"
#include "passes/folding/Folding.h"
#include "passes/fusion/Fusion.h"
#include "passes/inference/Inference.h"
#include "passes/kernels/Passes.h"
#include "passes/overlap/Overlap.h"
#include "passes/planning/Planning.h"
#include "passes/precision/Precision.h"
#include "passes/sharding/Sharding.h"
#include "passes/stages/Stages.h"
#include "runtime/recipe/BaseLayout.h"
#include "llvm/Support/FormatVariadic.h"

using namespace tessera;
using mlir::OpPassManager;

static void noPasses(OpPassManager &, const PhaseOptions &) {}

static std::unique_ptr<mlir::Pass> deduplicate(const PhaseOptions &options) {
  DeduplicateLayersOptions pass;
  pass.keepEnds = !options.mesh.axes.empty();
  return createDeduplicateLayers(pass);
}

// Costs are those of all layers. But each has a pipeline stage of its own, so
// they are restored before stages are assigned.
static void sharding(OpPassManager &pipeline, const PhaseOptions &options) {
  bool hasMesh = !options.mesh.axes.empty();
  if (hasMesh && options.fold)
    pipeline.addPass(deduplicate(options));
  buildShardingPipeline(pipeline, options.mesh);
  if (hasMesh && options.mesh.hasPipe())
    pipeline.addPass(createRestoreLayers());
  buildStagesPipeline(pipeline, options.mesh);
  pipeline.addPass(createVerifyShardings());
}

static void verifyPartition(OpPassManager &pipeline,
                            const PhaseOptions &options) {
  pipeline.addPass(createVerifyPartition({options.device}));
}

static bool isOfCpus(llvm::ArrayRef<std::string> targets) {
  return llvm::all_of(targets, [](llvm::StringRef target) {
    return target.starts_with("cpu");
  });
}

// Shards of a table in a layout are those of its matmul.
bool tessera::gathersAsStored(llvm::ArrayRef<std::string> targets,
                              const MeshRequest &mesh) {
  return isOfCpus(targets) && mesh.axes.empty();
}

// A GPU's program has its collectives in a graph: the host may not have to read
// how many rows go where.
static void partition(OpPassManager &pipeline, const PhaseOptions &options) {
  buildPartitionPipeline(pipeline, options.device, !isOfCpus(options.targets));
  buildSplitPipeline(pipeline, options.device);
  verifyPartition(pipeline, options);
}

// What is decided for one layer holds for all that are like it.
static void precision(OpPassManager &pipeline, const PhaseOptions &options) {
  if (options.fold)
    pipeline.addPass(deduplicate(options));
  // What learns from samples gives them the probabilities of the sampler.
  buildPrecisionPipeline(pipeline, options.recipe.compute,
                         options.recipe.task == recipe::Task::Policy);
}

static void verifyPrecision(OpPassManager &pipeline,
                            const PhaseOptions &options) {
  pipeline.addPass(createVerifyPrecision({options.recipe.compute}));
}

static void verifyPrograms(OpPassManager &pipeline,
                           const PhaseOptions &options) {
  pipeline.addPass(
      createVerifyStepProgram({options.mode == models::Mode::Train}));
}

// Whole programs of training, in f64 if the recipe says so.
static void autodiff(OpPassManager &pipeline, const PhaseOptions &options) {
  AutodiffOptions autodiff = AutodiffOptions::fromRecipe(options.recipe);
  // A pipeline computes several microbatches at a time.
  autodiff.step.alwaysLoop = options.mesh.hasPipe();
  if (options.mesh.hasPipe())
    autodiff.eval.microbatches = options.recipe.batch.accumulate;
  // Before gradients, so that these read the dequantized matrices too.
  if (auto layout = recipe::baseLayout(options.recipe))
    pipeline.addPass(createQuantizeWeights({.bits = layout->bits,
                                            .group = layout->group,
                                            .zeros = layout->zeros,
                                            .floats = layout->floats,
                                            .frozen = true}));
  buildAutodiffPipeline(pipeline, autodiff);
  if (options.recipe.compute == models::Precision::Fp64) {
    buildF64Pipeline(pipeline);
    verifyPrograms(pipeline, options);
  }
}

// Inference programs have nothing to differentiate, and nothing updates their
// weights.
static void inference(OpPassManager &pipeline, const PhaseOptions &options) {
  const models::Recipe::Inference &from = options.recipe.inference;
  bool isBf16 = options.recipe.compute == models::Precision::Bf16;
  InferenceOptions inference;
  inference.narrow = isBf16;
  inference.logSums = from.numerics == recipe::Numerics::Training;
  if (from.quant != models::Quant::None)
    inference.quantize = {.bits = from.quant == models::Quant::Int4 ? 4 : 8,
                          .group = from.group,
                          .zeros = from.zeros == recipe::ZeroPoints::Groups,
                          .floats = from.quant == models::Quant::Fp8};
  else if (from.layout == recipe::WeightLayout::Packed && isBf16)
    inference.quantize = {.bits = 16, .group = kQuantBlock};
  else
    inference.quantize = {.bits = 0};
  inference.quantize->tables = from.quant == models::Quant::None &&
                               gathersAsStored(options.targets, options.mesh);
  buildInferencePipeline(pipeline, inference);
  verifyPrograms(pipeline, options);
}

// Equal layers are fused alike. Collectives of all layers are ordered at once,
// so programs with collectives have all layers afterwards.
static void fusion(OpPassManager &pipeline, const PhaseOptions &) {
  pipeline.addPass(createRestoreLayers({/*keepEqual=*/true}));
  buildFusionPipeline(pipeline);
  pipeline.addPass(
      createRestoreLayers({/*keepEqual=*/false, /*keepLocal=*/true}));
  pipeline.addNestedPass<mlir::func::FuncOp>(createAccumulateEarly());
  pipeline.addPass(createVerifyFused());
}

static void overlap(OpPassManager &pipeline, const PhaseOptions &) {
  buildOverlapPipeline(pipeline);
}

static void selection(OpPassManager &pipeline, const PhaseOptions &options) {
  buildSelectionPipeline(pipeline, options.targets,
                         options.mode == models::Mode::Infer &&
                             options.recipe.inference.activations ==
                                 recipe::Activations::Int8);
}

static void kernels(OpPassManager &pipeline, const PhaseOptions &options) {
  buildKernelsPipeline(pipeline, options.targets);
}

static void planning(OpPassManager &pipeline, const PhaseOptions &) {
  buildPlanningPipeline(pipeline);
}

// The verifier pass that ends a phase, as the phase's `verify`.
template <std::unique_ptr<mlir::Pass> (*create)()>
static void verifyWith(OpPassManager &pipeline, const PhaseOptions &) {
  pipeline.addPass(create());
}

static constexpr llvm::StringLiteral kImportKeys[] = {"batch.", "dropout.",
                                                      "inference."},
                                     kPrecisionKeys[] = {"precision."},
                                     kAutodiffKeys[] = {"recompute",
                                                        "optimizer.name",
                                                        "lr_schedule.name"};

static constexpr Phase
    kImport = {.name = "import",
               .description = "the model as its spec defines it: @loss, "
                              "@logits and @init over one block for each kind "
                              "of layer",
               .build = noPasses,
               .recipeKeys = kImportKeys},
    kPrecision = {.name = "precision",
                  .description = "every tensor has the element type in which "
                                 "it is computed; master weights stay f32",
                  .build = precision,
                  .verify = verifyPrecision,
                  .recipeKeys = kPrecisionKeys},
    kAutodiff = {.name = "autodiff",
                 .description = "complete training programs: one step is one "
                                "function, with gradients, accumulation and "
                                "optimizer",
                 .build = autodiff,
                 .verify = verifyPrograms,
                 .recipeKeys = kAutodiffKeys},
    kInference = {.name = "inference",
                  .description = "complete inference programs: weights and "
                                 "caches have the types and layouts in which "
                                 "they are stored",
                  .build = inference,
                  .verify = verifyPrograms},
    kShard = {.name = "shard",
              .description = "on a mesh: every tensor has a sharding, and "
                             "reshards move data between different ones",
              .build = sharding,
              .verify = verifyWith<createVerifyShardings>},
    kPartition = {.name = "partition",
                  .description = "on a mesh: the program of one device, over "
                                 "its shards, with collectives",
                  .build = partition,
                  .verify = verifyPartition,
                  .forEachShare = true},
    kFusion = {.name = "fusion",
               .description = "fusion clusters, each of which becomes one "
                              "kernel",
               .build = fusion,
               .verify = verifyWith<createVerifyFused>,
               .forEachShare = true},
    kOverlap = {.name = "overlap",
                .description = "on a mesh: collectives start early, are waited "
                               "for late, and small ones are bucketed",
                .build = overlap,
                .verify = verifyWith<createVerifyOverlap>,
                .forEachShare = true,
                .agree = orderCollectives},
    kSelection = {.name = "selection",
                  .description =
                      "the kernel of each contraction and attention, "
                      "for each target: engine, operands, tile",
                  .build = selection,
                  .verify = selection,
                  .forEachShare = true,
                  .forEachKind = true},
    kKernels = {.name = "kernels",
                .description = "launches, and the kernels that they run, for "
                               "each target",
                .build = kernels,
                .verify = verifyWith<createVerifyTiled>,
                .forEachShare = true,
                .forEachKind = true},
    kPlanning = {.name = "planning",
                 .description =
                     "the execution plan: steps over one arena, with "
                     "every offset known",
                 .build = planning,
                 .verify = verifyWith<createVerifyPlan>,
                 .forEachShare = true,
                 .forEachKind = true};

// Both lists have a phase of whole programs at the same position, and are equal
// elsewhere.
static constexpr Phase kTrainingPhases[] = {
    kImport, kPrecision, kAutodiff,  kShard,   kPartition,
    kFusion, kOverlap,   kSelection, kKernels, kPlanning};
static constexpr Phase kInferencePhases[] = {
    kImport, kPrecision, kInference, kShard,   kPartition,
    kFusion, kOverlap,   kSelection, kKernels, kPlanning};

llvm::ArrayRef<Phase> tessera::phases(models::Mode mode) {
  if (mode == models::Mode::Train)
    return kTrainingPhases;
  return kInferencePhases;
}

std::optional<size_t> tessera::findPhase(models::Mode mode,
                                         llvm::StringRef name) {
  for (auto [i, phase] : llvm::enumerate(phases(mode)))
    if (phase.name == name)
      return i;
  return std::nullopt;
}

std::string tessera::dumpName(models::Mode mode, size_t phase,
                              llvm::StringRef suffix) {
  return llvm::formatv("{0,0+2}-{1}{2}.mlir", phase, phases(mode)[phase].name,
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

// One row of the table of phases, and the section with its passes.
static void describePhase(models::Mode mode, size_t i,
                          const PhaseOptions &options, std::string &table,
                          std::string &sections) {
  const Phase &phase = phases(mode)[i];
  table += llvm::formatv("| [{0}](#{0}) | `{1}` | {2} |\n", phase.name,
                         dumpName(mode, i), phase.description)
               .str();
  sections += llvm::formatv("\n## {0}\n\n", phase.name).str();
  OpPassManager pipeline("builtin.module");
  phase.build(pipeline, options);
  std::vector<std::string> names = passNames(pipeline);
  if (names.empty())
    sections += "No passes: `models/` builds the module.\n";
  else
    sections += "| pass | what it does |\n|---|---|\n";
  for (const std::string &name : names) {
    const mlir::PassInfo *pass = mlir::PassInfo::lookup(name);
    sections += llvm::formatv("| `{0}` | {1} |\n", name,
                              pass ? pass->getPassDescription() : "")
                    .str();
  }
}

std::string tessera::phasesAsMarkdown() {
  registerAllPasses();
  models::Recipe recipe;
  recipe.compute = models::Precision::Bf16; // to have all passes listed
  recipe.inference.quant = models::Quant::Int8;
  recipe.inference.numerics = recipe::Numerics::Training;
  PhaseOptions training{recipe, {}}, inference{recipe, {}};
  training.mesh.axes = "data=2";
  training.mesh.zero = 1;
  inference.mode = models::Mode::Infer;
  std::string table = "| phase | dump | what holds afterwards |\n"
                      "|---|---|---|\n",
              sections;
  for (size_t i = 0; i < phases(models::Mode::Train).size(); ++i) {
    describePhase(models::Mode::Train, i, training, table, sections);
    if (phases(models::Mode::Infer)[i].name !=
        phases(models::Mode::Train)[i].name)
      describePhase(models::Mode::Infer, i, inference, table, sections);
  }
  return "# Pipeline\n"
         "\n"
         "Printed by `tessera compile --list-phases`. A dump is the module "
         "after its phase; `--from=PHASE\n"
         "DUMP` continues from it. `--mode train` runs `autodiff`, `--mode "
         "infer` runs `inference` in its\n"
         "place; the other phases are the same. The tables list the passes of "
         "a bf16 recipe on a mesh with\n"
         "`zero=1`. With fp64, `autodiff` also runs `convert-programs-to-f64`; "
         "with the mesh axis\n"
         "`pipe`, `shard` runs `restore-layers` before `assign-stages`.\n"
         "\n"
         "From `partition` on there is a module for each group of devices with "
         "shards of equal shapes. All but\n"
         "the first have dumps with names such as "
         "`04-partition.device-3.mlir`. `selection`, `kernels` and\n"
         "`planning` run once for each kind of device: all CPU variants are "
         "one kind, each CUDA target is one.\n"
         "With several kinds the dumps of CUDA targets are named "
         "`08-kernels.cuda-sm_80.mlir`. After the last\n"
         "phase, `compiler/target/` lowers each kernel to machine code by "
         "passes of its own, and\n"
         "`compiler/artifact/` writes the file. `tessera-opt --fusion-phase` "
         "runs the passes of a phase on any\n"
         "module.\n"
         "\n" +
         table + sections;
}
