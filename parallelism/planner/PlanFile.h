// A plan as the compiler takes it: the file of `tessera plan -o` and
// `tessera compile --plan`.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallelism/planner/CostModel.h"
#include "runtime/recipe/Recipe.h"

namespace tessera::planner {

/// The mesh, and the keys of a recipe that a plan decides.
struct MeshPlan {
  int64_t pipe = 1, replicate = 1, data = 1, expert = 1, context = 1,
          tensor = 1;
  int64_t expertTensor = 0; ///< as of MeshRequest; 0: left out
  int64_t zero = 0;
  Schedule schedule = Schedule::OneF1B;
  int64_t chunks = 1;     ///< of layers per rank of a pipeline
  int64_t micro = 1;      ///< sequences of a microbatch, of all ranks
  int64_t accumulate = 1; ///< microbatches of a step
  int64_t sequence = 1;   ///< tokens
  recipe::Recompute recompute = recipe::Recompute::None;
  recipe::Precision precision = recipe::Precision::Bf16;

  int64_t devices() const {
    return pipe * replicate * data * expert * context * tensor;
  }
  bool operator==(const MeshPlan &) const = default;
};

/// What was said of a plan.
struct Prediction {
  double stepSeconds = 0;
  /// Of the fullest rank's compiled program; 0: it was not compiled.
  int64_t stateBytes = 0, arenaBytes = 0;
  bool operator==(const Prediction &) const = default;
};

struct PlanFile {
  std::string model;              ///< its name
  int64_t parameters = 0;         ///< by which another model is noticed
  hardware::ClusterRates cluster; ///< for which costs are estimated
  std::string target;             ///< "cuda:sm_80"
  MeshPlan plan;
  Prediction predicted;
  bool operator==(const PlanFile &) const = default;
};

/// What `recipe` says of a step, its batch included; what it leaves open is
/// Workload's default.
Workload workloadOf(const ModelShape &model, const recipe::Recipe &recipe);

/// The planner's name of it.
Recompute recomputeOf(recipe::Recompute recompute);

/// What of `plan` no mesh and recipe can say, and of `workload` the compiler
/// does not do; empty if it can be compiled. The search leaves such plans out.
std::string whyNotCompiled(const ModelShape &model, const Workload &workload,
                           const ParallelPlan &plan);

/// `plan`, for which whyNotCompiled is empty, as a mesh. The planner's data
/// ranks are replicate * data * expert of the mesh. Its expert ranks are those
/// of the axis expert, and those of tensor if expertTensor is 1.
MeshPlan meshPlanOf(const Workload &workload, const ParallelPlan &plan);

/// "pipe=2,data=2,schedule=interleaved,chunks=2,zero=1" for --mesh; empty: one
/// device.
std::string meshText(const MeshPlan &plan);

/// "batch.micro=64" and the like, for --set.
std::vector<std::string> recipeKeys(const MeshPlan &plan);

/// The text of a plan file; parsePlanFile of it gives `plan` again.
std::string printPlanFile(const PlanFile &plan);

/// Reads the text of a plan file (docs/planning.md has the keys). Errors are
/// one line: "FILE:LINE: key 'mesh': ...".
StatusOr<PlanFile> parsePlanFile(std::string_view text,
                                 const std::string &file);
StatusOr<PlanFile> loadPlanFile(const std::string &path);

} // namespace tessera::planner
