// The phases as pipelines of tessera-opt.
#include "compiler/Phases.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace tessera;

namespace {

struct PhasePipelineOptions : mlir::PassPipelineOptions<PhasePipelineOptions> {
  Option<std::string> recipe{*this, "recipe",
                             llvm::cl::desc("Path of a recipe.yaml"),
                             llvm::cl::init("")};
  ListOption<std::string> set{
      *this, "set", llvm::cl::desc("Recipe overrides, as optimizer.name=sgd")};
  Option<std::string> mesh{*this, "mesh",
                           llvm::cl::desc("Axes and sizes, as data=2"),
                           llvm::cl::init("")};
  ListOption<std::string> targets{*this, "targets",
                                  llvm::cl::desc("Targets, as cpu:avx2")};
};

} // namespace

// Options are text of a command line; what is wrong with them ends it.
template <typename T> static T orExit(llvm::Expected<T> value) {
  if (!value)
    llvm::report_fatal_error(value.takeError(), /*gen_crash_diag=*/false);
  return std::move(*value);
}

static void addPhase(mlir::OpPassManager &pipeline, models::Mode mode,
                     const Phase &phase, const PhasePipelineOptions &given) {
  StatusOr<models::Recipe> recipe = models::loadRecipe(
      given.recipe,
      std::vector<std::string>(given.set.begin(), given.set.end()));
  if (!recipe.ok())
    llvm::report_fatal_error(llvm::Twine(recipe.message()),
                             /*gen_crash_diag=*/false);
  PhaseOptions options{*recipe, {given.targets.begin(), given.targets.end()}};
  options.mode = mode;
  options.mesh = orExit(parseMeshRequest(given.mesh, /*world=*/0));
  phase.build(pipeline, options);
}

void tessera::registerPhasePipelines() {
  // Registries keep references to names and descriptions.
  static std::vector<std::string> names;
  names.reserve(2 * phases(models::Mode::Train).size());
  for (models::Mode mode : {models::Mode::Train, models::Mode::Infer})
    for (const Phase &phase : phases(mode).drop_front()) {
      std::string name = llvm::formatv("{0}-phase", phase.name);
      if (llvm::is_contained(names, name))
        continue;
      names.push_back(std::move(name));
      mlir::PassPipelineRegistration<PhasePipelineOptions>(
          names.back(), phase.description,
          [mode, &phase](mlir::OpPassManager &pipeline,
                         const PhasePipelineOptions &options) {
            addPhase(pipeline, mode, phase, options);
          });
    }
}
