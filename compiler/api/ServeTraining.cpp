#include "compiler/api/ServeTraining.h"
#include "compiler/Driver.h"
#include "compiler/api/LocalTargets.h"
#include "compiler/api/Shell.h"
#include "models/HfConfig.h"
#include "runtime/data/NewDirectory.h"
#include "runtime/weights/ImportWeights.h"

#include <algorithm>
#include <filesystem>

using namespace tessera;

// Both programs have one recipe but for a few keys. The user's may change the
// first ones.
static std::vector<std::string> sharedKeys(const ModelChoice &choice) {
  std::vector<std::string> keys;
  if (choice.recipe.empty())
    keys = {"adapter.kind=lora", "data.documents=separate",
            "lr_schedule.name=constant", "optimizer.weight_decay=0"};
  keys.insert(keys.end(), choice.set.begin(), choice.set.end());
  return keys;
}

static std::vector<std::string> learnerKeys(const ModelChoice &choice) {
  std::vector<std::string> keys = sharedKeys(choice);
  keys.emplace_back("optimizer.update=separate");
  return keys;
}

static Status checkLearner(const recipe::Recipe &recipe) {
  const bool isOfTokens = recipe.task == recipe::Task::Sft ||
                          (recipe.task == recipe::Task::Policy &&
                           recipe.policy.advantages != recipe::Advantages::Gae);
  if (!isOfTokens)
    return Status::error("--train: task: {}{} is not trained over HTTP; choose "
                         "task: sft, or task: policy without a value head",
                         name(recipe.task),
                         recipe.task == recipe::Task::Policy
                             ? " with policy.advantages: gae"
                             : "");
  if (recipe.adapter.kind == recipe::AdapterKind::None)
    return Status::error("--train trains adapters; set adapter.kind to lora or "
                         "dora");
  if (isQuantized(recipe.adapter.base))
    return Status::error("--train: adapter.base: {}; the engine would sample "
                         "from another base than the adapters are trained "
                         "over; choose bf16",
                         name(recipe.adapter.base));
  if (recipe.inference.quant != recipe::Quant::None)
    return Status::error("--train: --quant: the engine would sample from "
                         "another base than the adapters are trained over; "
                         "leave it out");
  if (recipe.adapter.slots > 0)
    return Status::error("--train: adapter.slots is set by the number of "
                         "adapters; leave it out");
  if (!recipe.adapter.modulesToSave.empty())
    return Status::error("--train: adapter.modules_to_save: slots hold "
                         "factors, not whole modules; leave it out");
  if (recipe.data.documents != recipe::Documents::Separate)
    return Status::error("--train packs examples into sequences; set "
                         "data.documents: separate");
  return Status::success();
}

static StatusOr<recipe::Recipe> readRecipe(const ModelChoice &choice) {
  auto recipe = recipe::loadRecipe(choice.recipe, learnerKeys(choice));
  if (!recipe.ok())
    return recipe;
  TESSERA_RETURN_IF_ERROR(checkLearner(*recipe));
  return recipe;
}

/// The largest rank of a layer.
static int64_t rankOf(const recipe::AdapterRecipe &adapter) {
  int64_t most = adapter.rank;
  for (const std::string &entry : adapter.ranks)
    most = std::max(most, recipe::rankEntry(entry).second);
  return most;
}

Status tessera::prepareTraining(const TrainingSettings &settings,
                                ModelChoice &choice,
                                const std::optional<ModelSource> &source) {
  if (source && source->isGguf())
    return Status::error("--train: '{}' is a GGUF file; convert it first: "
                         "tessera import {} -o DIR",
                         choice.place, choice.place);
  if (!source || !source->isDirectory())
    return Status::error("--train: '{}' is not a model directory with "
                         "config.json and weights; write one of a run with: "
                         "tessera export RUN -o DIR",
                         choice.place);
  auto recipe = readRecipe(choice);
  if (!recipe.ok())
    return recipe.status();
  auto config = models::loadHfConfig(source->files.place());
  if (!config.ok())
    return config.status();
  if (config->stored)
    return Status::error("--train: the weights of '{}' are quantized, and the "
                         "engine quantizes their head, which the learner does "
                         "not; give the model in full precision",
                         choice.place);
  std::error_code error;
  if (!settings.directory.empty() &&
      !std::filesystem::is_directory(settings.directory, error))
    return Status::error("--train-directory: '{}' is not a directory; create "
                         "it first",
                         settings.directory);
  const recipe::AdapterRecipe &adapter = recipe->adapter;
  const recipe::AdapterRecipe none;
  choice.set = sharedKeys(choice);
  for (std::string key :
       {fmt::format("adapter.kind={}", adapter.kind == recipe::AdapterKind::Dora
                                           ? "dora"
                                           : "lora"),
        fmt::format("adapter.rank={}", rankOf(adapter)),
        fmt::format("adapter.target=[{}]", fmt::join(adapter.target, ", ")),
        fmt::format("adapter.slots={}", 2 * settings.adapters + 1),
        fmt::format("adapter.alpha={}", none.alpha),
        std::string("adapter.base=auto"), std::string("adapter.scaling=rank"),
        std::string("adapter.ranks=[]"), std::string("adapter.dropout=0")})
    choice.set.push_back(std::move(key));
  return Status::success();
}

static Status compileLearner(const ModelChoice &choice,
                             const std::string &output) {
  CompileRequest request;
  request.spec = choice.place;
  request.recipe = choice.recipe;
  request.set = learnerKeys(choice);
  request.targets = localTargets(choice.decoder.device);
  request.emulate = choice.decoder.device.starts_with("cuda-emu");
  request.executable = false;
  request.output = output;
  request.cache = choice.decoder.cache;
  request.cacheBytes = choice.decoder.cacheBytes;
  request.note = request.warning = choice.decoder.note;
  request.rebuildCommand =
      "tessera serve " + shellQuoted(choice.place) + " --train";
  // The engine reads fp8 as bf16.
  auto config = models::loadHfConfig(choice.place);
  auto recipe = readRecipe(choice);
  for (const Status *status : {&config.status(), &recipe.status()})
    if (!status->ok())
      return *status;
  if (config->floats && recipe->adapter.base == recipe::AdapterBase::Auto)
    request.set.push_back(recipe->compute == recipe::Precision::Bf16
                              ? "adapter.base=bf16"
                              : "adapter.base=fp32");
  if (llvm::Error error = compile(request).takeError())
    return Status::error("{}", llvm::toString(std::move(error)));
  return Status::success();
}

StatusOr<std::shared_ptr<tune::TrainingService>>
tessera::openTraining(const TrainingSettings &settings,
                      const ModelChoice &choice, const ModelSource &source) {
  ModelChoice own = choice;
  own.place = source.files.place();
  TemporaryFile program;
  if (llvm::Error error = program.create())
    return Status::error("{}", llvm::toString(std::move(error)));
  TESSERA_RETURN_IF_ERROR(compileLearner(own, program.name()));
  auto reader = ArtifactReader::open(program.name());
  if (!reader.ok())
    return reader.status();
  hal::SessionOptions session;
  session.device = own.decoder.device;
  session.deviceOptions.threads = own.threads;
  session.programs = {"init", "init_trained", "forward_backward",
                      "optimizer_step"};
  auto model = SessionModel::open(*reader, session);
  if (!model.ok())
    return model.status();
  TESSERA_RETURN_IF_ERROR((*model)->initialize(0));
  TESSERA_RETURN_IF_ERROR(importAllWeights(own.place, **model));
  auto service = tune::TrainingService::create(
      model.take(),
      {.directory = settings.directory, .adapters = settings.adapters});
  if (!service.ok())
    return service.status();
  return std::shared_ptr<tune::TrainingService>(service.take());
}
