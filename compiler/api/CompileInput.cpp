#include "compiler/api/CompileInput.h"
#include "compiler/api/PlanInput.h"
#include "compiler/api/Shell.h"
#include <algorithm>
#include <utility>

using namespace tessera;

std::string tessera::rebuildCommand(const CompileRequest &request,
                                    const CompileChoice &choice) {
  std::string line = "tessera compile ";
  if (!request.from.empty())
    line += "--from " + shellQuoted(request.from) + " " +
            shellQuoted(request.input);
  else
    line += shellQuoted(request.spec);
  if (request.infer)
    line += " --mode infer";
  if (!request.recipe.empty())
    line += " --recipe " + shellQuoted(request.recipe);
  for (const std::string &each : request.set)
    line += " --set " + shellQuoted(each);
  if (!choice.plan.empty())
    line += " --plan " + shellQuoted(choice.plan);
  else if (!request.mesh.empty())
    line += " --mesh " + shellQuoted(request.mesh);
  if (request.world > 0)
    line += " --world " + std::to_string(request.world);
  if (!choice.devices.cluster.empty())
    line += " --cluster " + shellQuoted(choice.devices.cluster);
  std::string targets;
  for (const std::string &each : request.chosenTargets())
    targets += (targets.empty() ? "" : ",") + each;
  if (!targets.empty() && targets != "cpu")
    line += " --target " + shellQuoted(targets);
  if (choice.leavesWeights)
    line += " --no-weights";
  return line + (request.embedSources ? " --embed-sources" : "") + " -o FILE";
}

static Status addAdapterSlots(const AdapterSettings &adapters,
                              CompileRequest &request) {
  auto keys = adapters.keys();
  if (keys.ok())
    // Before the user's own keys, which may override them.
    request.set.insert(request.set.begin(), keys->begin(), keys->end());
  return keys.status();
}

StatusOr<std::optional<planner::MeshQuestion>>
tessera::prepareCompile(CompileRequest &request, const CompileChoice &choice) {
  if (request.spec.empty())
    return Status::error("compile requires SPEC, a directory with config.json");
  if (!request.from.empty())
    std::swap(request.input, request.spec);
  if (!choice.plan.empty())
    TESSERA_RETURN_IF_ERROR(applyPlan(choice.plan, choice.devices, request));
  auto question = meshQuestion(request, choice.devices);
  if (!question.ok())
    return question;
  if (*question && !choice.devices.cluster.empty())
    request.cluster = planner::ratesOf((*question)->cluster);
  else
    TESSERA_RETURN_IF_ERROR(applyCluster(choice.devices, request));
  TESSERA_RETURN_IF_ERROR(addAdapterSlots(choice.adapters, request));
  request.rebuildCommand = rebuildCommand(request, choice);
  if (request.output.empty() && request.to.empty())
    return Status::error("compile requires -o FILE");
  if (!request.infer && std::ranges::count(request.set, "inference.kv=int8"))
    request.warning("--kv int8 has no effect on training; tessera generate, "
                    "chat and serve use it for runs of this program");
  if (choice.leavesWeights && (!request.infer || !request.from.empty()))
    return Status::error("--no-weights requires --mode infer and a directory");
  return question;
}
