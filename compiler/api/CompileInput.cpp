#include "compiler/api/CompileInput.h"
#include "compiler/DeviceKinds.h"
#include "compiler/Phases.h"
#include "compiler/api/PlanInput.h"
#include "compiler/api/Shell.h"
#include "hardware/Targets.h"
#include "models/gguf/GgufModel.h"
#include "llvm/ADT/StringExtras.h"
#include <algorithm>
#include <utility>

using namespace tessera;

// A dump with kernels has targets of its own.
static bool continuesWithKernels(const CompileRequest &request) {
  const models::Mode mode =
      request.infer ? models::Mode::Infer : models::Mode::Train;
  std::optional<size_t> phase = findPhase(mode, request.from);
  return !request.from.empty() && phase && phases(mode)[*phase].forEachKind;
}

// Names that mean the same on every machine: "cpu" for all CPU variants, not
// "cpu:native".
static std::string targetsText(const CompileRequest &request) {
  if (request.targets.empty() && continuesWithKernels(request))
    return "cpu";
  auto named = resolveTargets(request.chosenTargets());
  if (!named) {
    llvm::consumeError(named.takeError());
    return llvm::join(request.chosenTargets(), ",");
  }
  const std::vector<std::string> all = cpuTargetNames();
  if (!std::ranges::all_of(all, [&](const std::string &name) {
        return llvm::is_contained(*named, name);
      }))
    return llvm::join(*named, ",");
  std::vector<std::string> shorter = {"cpu"};
  for (const std::string &name : *named)
    if (!llvm::is_contained(all, name))
      shorter.push_back(name);
  return llvm::join(shorter, ",");
}

static Status readDefaultTargets(const CompileChoice &choice,
                                 CompileRequest &request) {
  if (choice.defaultTargets.empty() || !request.targets.empty())
    return Status::success();
  llvm::SmallVector<llvm::StringRef> names;
  llvm::StringRef(choice.defaultTargets).split(names, ',');
  request.defaultTargets.clear();
  for (llvm::StringRef name : names)
    request.defaultTargets.push_back(name.trim().str());
  if (auto targets = resolveTargets(request.defaultTargets); !targets)
    return Status::error("TESSERA_TARGET in the environment: {}",
                         llvm::toString(targets.takeError()));
  return Status::success();
}

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
  if (std::string targets = targetsText(request); targets != "cpu")
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
    return Status::error("compile requires SPEC, a directory with config.json "
                         "or, with --mode infer, a GGUF file");
  if (!request.infer && models::isGguf(request.spec))
    return Status::error("'{}' is a GGUF file, which only inference reads; "
                         "convert it first: tessera import {} -o DIR",
                         request.spec, request.spec);
  if (!request.from.empty())
    std::swap(request.input, request.spec);
  if (!choice.plan.empty())
    TESSERA_RETURN_IF_ERROR(applyPlan(choice.plan, choice.devices, request));
  TESSERA_RETURN_IF_ERROR(readDefaultTargets(choice, request));
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
