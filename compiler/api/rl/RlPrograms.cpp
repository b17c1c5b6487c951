#include "compiler/api/rl/RlPrograms.h"
#include "compiler/api/LocalTargets.h"
#include "compiler/api/RewardProgram.h"
#include "compiler/api/Shell.h"
#include "models/HfConfig.h"
#include "runtime/hal/cpu/ThreadPool.h"
#include "runtime/rl/AnswerScorer.h"
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

using namespace tessera;

static Status statusOf(llvm::Error error) {
  if (!error)
    return Status::success();
  return Status::error("{}", llvm::toString(std::move(error)));
}

static CompileRequest requestOf(const RlArguments &arguments,
                                const std::string &output) {
  CompileRequest request;
  request.spec = arguments.place;
  request.configText = arguments.config;
  request.recipe = arguments.recipe;
  request.set = arguments.set;
  request.targets = localTargets(arguments.device);
  request.emulate = arguments.device.starts_with("cuda-emu");
  request.executable = false;
  request.output = output;
  request.cache = arguments.cache;
  request.cacheBytes = arguments.cacheBytes;
  request.note = request.warning = arguments.note;
  request.rebuildCommand = "tessera rl " + shellQuoted(arguments.place);
  return request;
}

RlThreads tessera::threadsOf(const RlArguments &arguments,
                             const recipe::Recipe &recipe,
                             const InferenceRanks *ranks) {
  const unsigned all = arguments.threads > 0 ? arguments.threads
                       : ranks               ? ranks->threads()
                                             : hal::availableProcessors();
  RlThreads threads{{all, {}}, {all, {}}, {all, {}}, all};
  if (ranks && !ranks->leads())
    return threads;
  const unsigned half = std::max(all / 2, 1U);
  const bool samplesHere = arguments.listen.empty() || arguments.workers > 0;
  if (recipe.rollout.staleness > 0 && samplesHere &&
      arguments.device.starts_with("cpu")) {
    auto share = std::make_shared<hal::ProcessorShare>(3);
    threads.learner.processors = {share, 0, std::max(all - half, 1U)};
    threads.sampler.processors = {share, 1, half};
    threads.reference.processors = {share, 2, half};
    threads.ofWorker = half;
    if (arguments.workers > 0) { // which share nothing with this process
      threads.learner = {std::max(all - half, 1U), {}};
      threads.reference = {half, {}};
    }
  } else if (recipe.rollout.staleness > 0 &&
             arguments.device.starts_with("cpu")) {
    auto share = std::make_shared<hal::ProcessorShare>(2);
    threads.learner.processors = {share, 0, std::max(all - half, 1U)};
    threads.reference.processors = {share, 1, half};
  }
  if (ranks && recipe.rollout.staleness == 0 && arguments.threads == 0)
    threads.sampler.count = threads.reference.count = threads.ofWorker =
        std::max(all, hal::availableProcessors());
  if (arguments.workers > 0)
    threads.ofWorker =
        std::max(threads.ofWorker / unsigned(arguments.workers), 1U);
  return threads;
}

Status tessera::compileLearner(const RlArguments &arguments,
                               const std::string &output) {
  CompileRequest request = requestOf(arguments, output);
  request.mesh = arguments.mesh;
  return statusOf(compile(request).takeError());
}

StatusOr<std::unique_ptr<SessionModel>>
tessera::openProgram(const std::string &artifact, const std::string &device,
                     const ProgramThreads &threads,
                     std::vector<std::string> programs,
                     const hal::MeshContext &mesh) {
  auto reader = ArtifactReader::open(artifact);
  if (!reader.ok())
    return reader.status();
  hal::SessionOptions session;
  session.device = device;
  session.deviceOptions.threads = threads.count;
  session.deviceOptions.processors = threads.processors;
  session.programs = std::move(programs);
  session.mesh = mesh;
  if (mesh.world && !std::getenv("TESSERA_TUNE"))
    session.deviceOptions.tune = "off"; // as trainInWorld() of TrainCommand.cpp
  return SessionModel::open(*reader, session);
}

/// A rollout worker has config.json from the learner; others read it from
/// `request.spec`.
static StatusOr<models::LoadedConfig> configOf(const CompileRequest &request) {
  if (request.configText.empty())
    return models::loadHfConfig(request.spec);
  return models::loadedConfig(request.configText, request.spec);
}

/// Whether an inference program would keep some matrices as they are stored,
/// which it does not where it quantizes.
static StatusOr<bool> keepsStored(const CompileRequest &request,
                                  const recipe::Recipe &recipe) {
  if (recipe.inference.quant != recipe::Quant::None)
    return false;
  StatusOr<models::LoadedConfig> loaded = configOf(request);
  if (!loaded.ok())
    return loaded.status();
  return !loaded->layouts.empty();
}

/// Of a program that gets its weights from a learner, which has a quantized
/// base, or weights that a checkpoint stores in 4 bits.
static Status leaveQuantizationOut(CompileRequest &request) {
  std::erase_if(request.set, [](const std::string &assignment) {
    const llvm::StringRef key =
        llvm::StringRef(assignment).split('=').first.trim();
    return key == "inference.group" || key == "inference.zeros";
  });
  StatusOr<models::LoadedConfig> loaded = configOf(request);
  if (!loaded.ok())
    return loaded.status();
  request.configText = models::withoutQuantization(loaded->text);
  return Status::success();
}

Status tessera::compileSampler(const RlArguments &arguments,
                               const recipe::Recipe &recipe, int64_t longest,
                               const std::string &output) {
  CompileRequest request = requestOf(arguments, output);
  request.infer = true;
  const StatusOr<bool> isStored = keepsStored(request, recipe);
  if (!isStored.ok())
    return isStored.status();
  const bool hasAdapter = recipe.adapter.kind != recipe::AdapterKind::None;
  if (*isStored || hasAdapter)
    TESSERA_RETURN_IF_ERROR(leaveQuantizationOut(request));
  if (hasAdapter) { // its weights have the adapter in them
    const recipe::Recipe::Adapter none;
    request.set.insert(
        request.set.end(),
        {"adapter.kind=none", "adapter.base=auto",
         fmt::format("adapter.rank={}", none.rank),
         fmt::format("adapter.alpha={}", none.alpha), "adapter.scaling=rank",
         "adapter.ranks=[]", "adapter.dropout=0", "adapter.modules_to_save=[]",
         fmt::format("adapter.target=[{}]", fmt::join(none.target, ", "))});
  }
  constexpr int64_t kChunkStep = 16;
  const recipe::Recipe::Inference usual;
  std::vector<std::string> sizes; // before the user's, which may override them
  if (recipe.inference.batch == usual.batch)
    sizes.push_back(fmt::format(
        "inference.batch={}",
        std::min<int64_t>(recipe.rollout.prompts * recipe.rollout.group, 64)));
  const int64_t whole = (longest + kChunkStep - 1) / kChunkStep * kChunkStep;
  if (recipe.inference.chunk == usual.chunk)
    sizes.push_back(
        fmt::format("inference.chunk={}",
                    recipe.attention.prompts == recipe::Prompts::Bidirectional
                        ? whole
                        : std::min(usual.chunk, whole)));
  if (recipe.inference.context == usual.context)
    sizes.push_back(fmt::format("inference.context={}", recipe.batch.sequence));
  StatusOr<models::LoadedConfig> config = configOf(request);
  if (!config.ok())
    return config.status();
  // What excludes the learner's numerics comes before them.
  const bool canAgree = arguments.device == "cpu" && !config->spec.stateSpace &&
                        recipe.inference.kv == usual.kv &&
                        recipe.inference.quant == usual.quant &&
                        recipe.inference.activations == usual.activations &&
                        recipe.inference.page == usual.page;
  if (recipe.inference.numerics == usual.numerics && canAgree)
    sizes.push_back(
        fmt::format("inference.numerics={}", name(recipe::Numerics::Training)));
  request.set.insert(request.set.begin(), sizes.begin(), sizes.end());
  return statusOf(compile(request).takeError());
}

Status DecodingModel::open(const std::string &artifact,
                           const std::string &device,
                           const ProgramThreads &threads) {
  auto opened = openProgram(artifact, device, threads, {});
  if (!opened.ok())
    return opened.status();
  model = opened.take();
  auto created = DecodePrograms::create(model->get());
  if (!created.ok())
    return created.status();
  programs = created.take();
  return Status::success();
}

//===--- reward models ----------------------------------------------------===//

namespace {
/// Keeps the model that the scores come from.
class OwnedRewardModel final : public rl::Reward {
public:
  OwnedRewardModel(std::unique_ptr<OpenedRewardModel> opened,
                   const chat::ChatEncoderOptions &encoding,
                   const std::string &advice)
      : opened(std::move(opened)),
        scores(rl::rewardModel(std::make_unique<rl::AnswerScorer>(
            *this->opened->programs, this->opened->format, encoding, advice))) {
  }
  StatusOr<double> score(const rl::RewardQuestion &question) override {
    return scores->score(question);
  }

private:
  std::unique_ptr<OpenedRewardModel> opened;
  std::unique_ptr<rl::Reward> scores;
};
} // namespace

/// What to do about a sequence that is too long for the reward model.
static std::string lengthAdvice(const ModelSource &source,
                                const recipe::Recipe &recipe) {
  if (source.packaged)
    return "shorten it, lower rollout.max_tokens, or compile the reward model "
           "with a larger inference.context (tessera compile --set "
           "inference.context=N)";
  if (2 * recipe.batch.sequence < source.spec.maxPositions)
    return "shorten it, lower rollout.max_tokens, or raise batch.sequence, of "
           "which the reward model takes twice as many";
  return "shorten it, lower rollout.max_tokens, or choose a reward model of "
         "more positions";
}

StatusOr<std::unique_ptr<rl::Reward>>
tessera::openModelReward(const RlArguments &arguments,
                         const recipe::Recipe &recipe,
                         std::span<const rl::Prompt> prompts,
                         std::span<const rl::Prompt> evalPrompts) {
  const std::string place = arguments.reward.substr(kRewardModel.size());
  auto source = findModel(place);
  if (!source.ok())
    return Status::error("--reward: {}", source.message());
  if (!*source)
    return Status::error("--reward: '{}' is not a model directory: it has no "
                         "config.json",
                         place);
  ProgramOptions programs;
  const int64_t context =
      std::min(2 * recipe.batch.sequence, (*source)->spec.maxPositions);
  if (!(*source)->packaged) {
    programs.decoder.batch = 1; // completions are scored one by one
    programs.set = {fmt::format("inference.context={}", context)};
  }
  programs.decoder.device = arguments.device;
  programs.decoder.cache = arguments.cache;
  programs.decoder.cacheBytes = arguments.cacheBytes;
  programs.decoder.command = "score";
  programs.decoder.note = arguments.note;
  TemporaryFile program;
  TESSERA_RETURN_IF_ERROR(statusOf(program.create()));
  GenerateOptions options;
  options.program = program.name();
  options.device = arguments.device;
  options.threads = arguments.threads;
  chat::ChatEncoderOptions encoding;
  encoding.rendering.now = std::time(nullptr);
  const std::string advice = lengthAdvice(**source, recipe);
  const auto check = [&](const chat::ChatFormat &format, int64_t most) {
    for (const auto &each : {prompts, evalPrompts})
      TESSERA_RETURN_IF_ERROR(
          rl::checkPrompts(format, encoding, each, most, advice));
    return Status::success();
  };
  const bool isPackaged = (*source)->packaged.has_value();
  auto opened = openRewardModel(
      **source, programs, options, [&](const chat::ChatFormat &format) {
        return isPackaged ? Status::success() : check(format, context);
      });
  if (!opened.ok())
    return Status::error("--reward: {}", opened.message());
  if (isPackaged) // how many tokens it takes is known now
    if (Status status =
            check((*opened)->format, (*opened)->programs->shape().context);
        !status.ok())
      return Status::error("--reward: {}", status.message());
  return std::unique_ptr<rl::Reward>(
      std::make_unique<OwnedRewardModel>(opened.take(), encoding, advice));
}
