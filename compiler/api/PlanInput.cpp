#include "compiler/api/PlanInput.h"
#include "compiler/api/ProgramMemory.h"
#include "hardware/Quantity.h"
#include "models/HfConfig.h"
#include "parallelism/planner/MeshChoice.h"
#include "parallelism/planner/PlanFile.h"
#include "runtime/support/Text.h"
#include <cmath>
#include <fmt/format.h>

using namespace tessera;
using namespace tessera::planner;

// A program's memory differs by less from what the plan says if the compiler
// and the recipe are those of the plan.
static constexpr double kRemarkable = 0.01;

static Status checkModel(const std::string &path, const PlanFile &plan,
                         const CompileRequest &request) {
  StatusOr<models::LoadedConfig> config = models::loadHfConfig(request.spec);
  if (!config.ok())
    return config.status();
  const int64_t own = shapeOf(config->spec).parameters();
  if (own == plan.parameters)
    return Status::success();
  return Status::error("--plan {}: is for {} of {} parameters, {} has {}", path,
                       oneLine(plan.model), plan.parameters, request.spec, own);
}

// A --set that says something else than the plan.
static Status checkKeys(const std::string &path,
                        const std::vector<std::string> &keys,
                        const CompileRequest &request) {
  for (const std::string &given : request.set)
    for (const std::string &planned : keys) {
      const std::string key = planned.substr(0, planned.find('=') + 1);
      if (given.starts_with(key) && given != planned)
        return Status::error("--set {} contradicts --plan {}, which says {}; "
                             "omit one of them",
                             given, path, planned);
    }
  return Status::success();
}

static llvm::Error compareMemory(const Prediction &predicted,
                                 const RankMemory &memory,
                                 const CompileRequest &request) {
  const double said =
      static_cast<double>(predicted.stateBytes + predicted.arenaBytes);
  const double needed = static_cast<double>(memory.state + memory.arena);
  if (said > 0 && std::abs(needed - said) > kRemarkable * said &&
      request.warning)
    request.warning(fmt::format(
        "the program needs {} for state and arena, the plan says {}",
        formatBytes(needed), formatBytes(said)));
  return llvm::Error::success();
}

Status tessera::applyPlan(const std::string &path, const MeshDevices &devices,
                          CompileRequest &request) {
  const std::pair<const char *, bool> others[] = {
      {"--mesh", !request.mesh.empty()},
      {"--world", request.world > 0},
      {"--cluster", !devices.cluster.empty()},
      {"--device-memory", !devices.memory.empty()},
      {"--from", !request.from.empty()},
      {"--mode infer", request.infer}};
  for (auto [option, isGiven] : others)
    if (isGiven)
      return Status::error("--plan {}: decides what {} would; omit one of them",
                           path, option);
  StatusOr<PlanFile> plan = loadPlanFile(path);
  if (!plan.ok())
    return plan.status();
  TESSERA_RETURN_IF_ERROR(checkModel(path, *plan, request));
  const std::vector<std::string> keys = recipeKeys(plan->plan);
  TESSERA_RETURN_IF_ERROR(checkKeys(path, keys, request));
  request.set.insert(request.set.end(), keys.begin(), keys.end());
  request.mesh = meshText(plan->plan);
  if (request.targets.empty())
    request.targets = {plan->target};
  if (request.targets != std::vector<std::string>{plan->target}) {
    // Memory and costs may differ.
    if (request.warning)
      request.warning(fmt::format("--plan {}: is for {}; other targets are "
                                  "compiled without the costs of its cluster",
                                  path, plan->target));
    return Status::success();
  }
  request.cluster = plan->cluster;
  request.accept = [predicted = plan->predicted,
                    &request](llvm::ArrayRef<RankMemory> all) {
    return compareMemory(predicted, fullestRank(all), request);
  };
  return Status::success();
}
