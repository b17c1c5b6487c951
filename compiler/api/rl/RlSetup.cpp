#include "compiler/api/rl/RlSetup.h"
#include "runtime/rl/RolloutBatches.h"
#include <filesystem>
#include <fmt/format.h>

using namespace tessera;

uint64_t tessera::lastStepOf(const RlArguments &arguments,
                             const recipe::Recipe &recipe) {
  return arguments.train.steps.value_or(uint64_t(recipe.schedule.total));
}

static Status checkRecipe(const recipe::Recipe &recipe) {
  if (recipe.task != recipe::Task::Policy)
    return Status::error("task: {}; tessera rl learns by task: policy",
                         name(recipe.task));
  if (recipe.data.train || recipe.data.eval)
    return Status::error("data.train and data.eval: tessera rl learns from "
                         "--prompts; leave them out");
  if (recipe.rollout.maxTokens >= recipe.batch.sequence)
    return Status::error("rollout.max_tokens = {} leaves no room for a prompt "
                         "in batch.sequence = {}",
                         recipe.rollout.maxTokens, recipe.batch.sequence);
  return Status::success();
}

/// A run without checkpoints begins with the weights of the model directory,
/// or, if it resumes, with those that it began with.
static Status chooseWeights(const std::string &place, TrainOptions &options) {
  namespace fs = std::filesystem;
  if (fs::exists(options.out + "/config.json"))
    return Status::error("'{}' is a model directory; choose another --out for "
                         "the run",
                         options.out);
  auto present = listCheckpoints(options.out);
  if (!present.ok())
    return present.status();
  if (options.resume && present->empty() && options.initFrom.empty()) {
    auto origin = readOrigin(options.out);
    if (!origin.ok())
      return origin.status();
    options.initFrom = origin.take();
  }
  if (options.initFrom.empty() && !fs::exists(place + "/model.safetensors") &&
      !fs::exists(place + "/model.safetensors.index.json"))
    return Status::error("'{}' has no weights; write a trained model with: "
                         "tessera export RUN -o DIR, or name weights with "
                         "--init-from",
                         place);
  if (present->empty() && options.initFrom.empty())
    options.initFrom = place;
  const std::string journal = options.out + "/" + rl::kJournalFile;
  if (!options.resume && present->empty() && fs::exists(journal))
    return Status::error("'{}' is there already; continue its run with "
                         "--resume, or choose another --out",
                         journal);
  if (!options.resume && !present->empty())
    return Status::error("'{}' already holds {}; continue it with --resume or "
                         "choose another --out",
                         options.out, present->front());
  return Status::success();
}

Status tessera::checkRun(RlArguments &arguments, const comm::Launch *launch,
                         std::optional<ModelSource> &source,
                         recipe::Recipe &recipe) {
  auto found = findModel(arguments.place);
  if (!found.ok())
    return found.status();
  if (*found && (*found)->isGguf())
    return Status::error("'{}' is a GGUF file; convert it first: tessera "
                         "import {} -o DIR",
                         arguments.place, arguments.place);
  if (!*found || !(*found)->isDirectory())
    return Status::error("'{}' is not a model directory with config.json; "
                         "write one of a run with: tessera export RUN -o DIR",
                         arguments.place);
  source = found.take();
  arguments.place = source->files.place();
  if (arguments.recipe.empty())
    arguments.set.insert(arguments.set.begin(),
                         {"task=policy", "data.documents=separate"});
  auto loaded = recipe::loadRecipe(arguments.recipe, arguments.set);
  if (!loaded.ok())
    return loaded.status();
  recipe = loaded.take();
  TESSERA_RETURN_IF_ERROR(checkRecipe(recipe));
  if (arguments.listen.empty() && !arguments.secretFile.empty())
    return Status::error("--rollout-secret-file is for workers on other "
                         "machines; name where they join: --rollout-listen "
                         "HOST:PORT");
  TESSERA_RETURN_IF_ERROR(rl::checkEpochs(recipe, lastStepOf(arguments, recipe),
                                          !arguments.evalPrompts.empty()));
  if (launch &&
      arguments.device == "cuda") // each rank of a machine has its own
    arguments.device = fmt::format("cuda:{}", launch->localRank);
  TESSERA_RETURN_IF_ERROR(hal::checkDevice(arguments.device));
  return chooseWeights(arguments.place, arguments.train);
}
