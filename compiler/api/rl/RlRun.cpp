#include "compiler/api/rl/RlRun.h"
#include "compiler/api/rl/RlSetup.h"
#include "compiler/api/rl/RlWorkers.h"
#include "runtime/rl/EngineSampler.h"
#include "runtime/rl/RankBatches.h"
#include "runtime/rl/RolloutBatches.h"
#include "runtime/rl/RolloutTokenizer.h"
#include "runtime/support/ProcessMemory.h"
#include "runtime/support/StopSignals.h"
#include "runtime/train/Ranks.h"
#include "runtime/weights/ImportWeights.h"
#include <algorithm>
#include <filesystem>
#include <memory>

using namespace tessera;

static std::optional<rl::LearnedAdapter> adapterOf(const recipe::Recipe &recipe,
                                                   const ModelSource &source) {
  if (recipe.adapter.kind == recipe::AdapterKind::None)
    return std::nullopt;
  return rl::LearnedAdapter{recipe.adapter,
                            source.spec.family == models::Family::Gpt2};
}

/// Whether the learner's base is codes with scales, also by its config.json.
static bool hasQuantizedBase(const ModelState &learner) {
  return std::ranges::any_of(learner.state(), [](const StateTensor &tensor) {
    return tensor.quantized.has_value();
  });
}

namespace {

/// What samples completions and rewards them.
class RolloutSide {
public:
  RolloutSide(const RlArguments &arguments, const recipe::Recipe &recipe,
              const ModelSource &source, const RlThreads &threads)
      : arguments(arguments), recipe(recipe), source(source), threads(threads) {
  }

  /// Reads the prompts, starts the reward, and compiles: the learner's program
  /// goes to `learner`.
  Status prepare(const std::string &learner);
  /// Starts what samples, and what compares if the learner's loss does. The
  /// reward program is looked at again.
  Status open(const ModelState &learner);
  rl::RolloutBatches batches();
  /// The models of this process, for the plan of its memory.
  void listModels(std::vector<OtherModel> &models) const;

private:
  Status readPrompts();
  Status openReward();
  Status beginReward();
  Status openSampler();
  Status openReference();
  bool comparesWithReference() const { return recipe.policy.kl.beta > 0; }

  const RlArguments &arguments;
  const recipe::Recipe &recipe;
  const ModelSource &source;
  const RlThreads &threads;
  rl::RolloutTokenizer tokenizer;
  std::vector<rl::Prompt> prompts, evalPrompts;
  int64_t longest = 0; ///< of the prompts, in tokens
  std::unique_ptr<rl::Reward> reward;
  TemporaryFile decoder;
  DecodingModel model, reference;
  std::unique_ptr<rl::WorkerSampler> workers; ///< until it is `sampler`
  std::unique_ptr<rl::Sampler> sampler;
  bool hasCodes = false; ///< the learner's base is quantized
};

Status RolloutSide::readPrompts() {
  TESSERA_RETURN_IF_ERROR(tokenizer.read(source.files));
  const int64_t room = recipe.batch.sequence - recipe.rollout.maxTokens;
  for (const auto &[path, to] :
       {std::pair(arguments.prompts, &prompts),
        std::pair(arguments.evalPrompts, &evalPrompts)}) {
    if (path.empty())
      continue;
    auto read = rl::readPrompts(path, tokenizer.promptEncoder(), room);
    if (!read.ok())
      return read.status();
    *to = read.take();
    for (const rl::Prompt &prompt : *to)
      longest = std::max(longest, int64_t(prompt.tokens.size()));
  }
  return rl::checkBatch(recipe, longest);
}

Status RolloutSide::openReward() {
  const std::string &given = arguments.reward;
  const int64_t seconds = recipe.rollout.rewardTimeout;
  if (given.starts_with(kRewardModel)) {
    auto opened = openModelReward(arguments, recipe, prompts, evalPrompts);
    if (!opened.ok())
      return opened.status();
    reward = opened.take();
  } else if (given.starts_with("http://") || given.starts_with("https://")) {
    auto opened = rl::rewardServer(given, seconds);
    if (!opened.ok())
      return opened.status();
    reward = opened.take();
  } else {
    std::error_code error;
    if (std::filesystem::is_directory(given, error))
      return Status::error("--reward: '{0}' is a directory; write model:{0} if "
                           "it is a reward model's",
                           given);
    reward = rl::rewardProgram(given, seconds);
  }
  return beginReward();
}

Status RolloutSide::beginReward() {
  Status begun = reward->begin();
  return begun.ok() ? begun : Status::error("--reward: {}", begun.message());
}

/// The workers, or an engine in this process.
Status RolloutSide::openSampler() {
  if (workers) {
    TESSERA_RETURN_IF_ERROR(
        startWorkers(arguments, decoder.name(), threads.ofWorker, *workers));
    sampler = std::move(workers);
  } else {
    TESSERA_RETURN_IF_ERROR(
        model.open(decoder.name(), arguments.device, threads.sampler));
    sampler =
        std::make_unique<rl::EngineSampler>(*model.programs, *model.model);
  }
  return rl::checkContext(recipe, longest, sampler->context());
}

Status RolloutSide::prepare(const std::string &learner) {
  TESSERA_RETURN_IF_ERROR(readPrompts());
  TESSERA_RETURN_IF_ERROR(openReward());
  auto prepared = prepareWorkers(arguments, source, longest);
  if (!prepared.ok())
    return prepared.status();
  workers = prepared.take();
  if (llvm::Error error = decoder.create())
    return Status::error("{}", llvm::toString(std::move(error)));
  TESSERA_RETURN_IF_ERROR(compileLearner(arguments, learner));
  if (workers && arguments.workers == 0 && !comparesWithReference())
    return Status::success();
  return compileSampler(arguments, recipe, longest, decoder.name());
}

/// With a quantized base it gets its weights from the learner, later.
Status RolloutSide::openReference() {
  TESSERA_RETURN_IF_ERROR(
      reference.open(decoder.name(), arguments.device, threads.reference));
  if (!hasCodes)
    return importAllWeights(arguments.place, *reference.model);
  if (!recipe.adapter.modulesToSave.empty())
    return Status::error("policy.kl.beta: the reference model is the quantized "
                         "base, and adapter.modules_to_save are trained of it; "
                         "leave one of them out");
  return Status::success();
}

/// A reward program that cannot work has ended by now. If failures are allowed
/// it is started again, as after any other.
Status RolloutSide::open(const ModelState &learner) {
  TESSERA_RETURN_IF_ERROR(openSampler());
  hasCodes = hasQuantizedBase(learner);
  if (comparesWithReference())
    TESSERA_RETURN_IF_ERROR(openReference());
  Status begun = beginReward();
  if (begun.ok() ||
      recipe.rollout.onRewardFailure == recipe::RewardFailure::Stop)
    return begun;
  arguments.note(begun.message());
  return Status::success();
}

rl::RolloutBatches RolloutSide::batches() {
  rl::RolloutOptions rollouts;
  rollouts.settings = recipe.rollout;
  rollouts.seed = uint64_t(recipe.seed);
  rollouts.lastStep = lastStepOf(arguments, recipe) /
                      uint64_t(recipe.rollout.steps()); // batches
  rollouts.stopTokens = tokenizer.stopTokens();
  rollouts.decode = [this](std::span<const int32_t> tokens) {
    return tokenizer.decode(tokens);
  };
  rollouts.note = arguments.note;
  return {*sampler,
          reference.programs.get(),
          prompts,
          *reward,
          rollouts,
          {arguments.train.out, arguments.reward,
           source.files.place() + "/" + kTokenizerFile, source.files.place(),
           recipe.policy.documents, adapterOf(recipe, source),
           hasCodes ? reference.model.get() : nullptr, evalPrompts,
           uint64_t(recipe.eval.every)}};
}

void RolloutSide::listModels(std::vector<OtherModel> &models) const {
  for (const auto &[what, own] : {std::pair("rollout engine", &model),
                                  std::pair("reference model", &reference)})
    if (own->model)
      models.push_back({what, own->model.get()});
}

/// The program that learns, of which a rank has a part.
class Learner {
public:
  Learner(RlArguments &arguments, const recipe::Recipe &recipe,
          const RlThreads &threads, InferenceRanks *ranks)
      : arguments(arguments), recipe(recipe), threads(threads), ranks(ranks) {}

  Status createFile();
  std::string file() const { return program.name(); }
  Status open();
  TrainModel &model() {
    return whole ? *whole : static_cast<TrainModel &>(*own);
  }
  /// Of all ranks, for batches alone.
  StatusOr<comm::Channel *> channel() {
    return ranks->world().open(ranks->context().firstChannel,
                               comm::Group::world(ranks->started().size));
  }
  StatusOr<TrainSummary> run(BatchSource &source);

private:
  RlArguments &arguments;
  const recipe::Recipe &recipe;
  const RlThreads &threads;
  InferenceRanks *ranks;
  TemporaryFile program;
  std::unique_ptr<SessionModel> own;
  std::unique_ptr<MeshModel> whole; ///< of ranks; it has `own` then
};

Status Learner::createFile() {
  llvm::Error error = program.create();
  return error ? Status::error("{}", llvm::toString(std::move(error)))
               : Status::success();
}

Status Learner::open() {
  std::vector<std::string> programs = {"init", "train_step"};
  if (recipe.policy.advantages == recipe::Advantages::Gae)
    programs.push_back("eval_step"); // which gives values of tokens
  hal::MeshContext mesh;
  if (ranks) {
    mesh = ranks->context();
    ++mesh.firstChannel; // channel() has the first one
  }
  auto opened = openProgram(file(), arguments.device, threads.learner,
                            std::move(programs), mesh);
  if (!opened.ok())
    return opened.status();
  own = opened.take();
  if (!ranks)
    return Status::success();
  auto joined = MeshModel::create(std::move(own), ranks->world());
  if (!joined.ok())
    return joined.status();
  whole = joined.take();
  return Status::success();
}

StatusOr<TrainSummary> Learner::run(BatchSource &source) {
  TrainOptions &options = arguments.train;
  options.source = &source;
  options.program = file();
  options.threads = threads.learner.count;
  resetPeakResident();
  return ranks ? runTrainingOnRanks(*whole, ranks->started(), options)
               : runTraining(*own, options);
}

} // namespace

/// What all ranks return. An error that the others do not know ends them: it
/// names its rank.
static Status agreeOnOutcome(InferenceRanks &ranks,
                             const StatusOr<TrainSummary> &summary,
                             const std::function<bool()> &settle) {
  const Status outcome = outcomeOf(summary);
  if (!summary.ok() && !settle())
    return Status::error("rank {}: {}", ranks.started().rank,
                         summary.message());
  const Status agreed = ranks.agree(outcome);
  return outcome.ok() || ranks.hasAgreedError() ? agreed : outcome;
}

Status tessera::learnByRollouts(RlArguments &arguments,
                                const recipe::Recipe &recipe,
                                const ModelSource &source,
                                InferenceRanks *ranks) {
  const RlThreads threads = threadsOf(arguments, recipe, ranks);
  RolloutSide rollouts(arguments, recipe, source, threads);
  Learner learner(arguments, recipe, threads, ranks);
  TESSERA_RETURN_IF_ERROR(learner.createFile());
  const auto prepare = [&] { return rollouts.prepare(learner.file()); };
  TESSERA_RETURN_IF_ERROR(ranks ? ranks->broadcastFile(prepare, learner.file())
                                : prepare());
  const auto open = [&] {
    TESSERA_RETURN_IF_ERROR(learner.open());
    return rollouts.open(learner.model());
  };
  TESSERA_RETURN_IF_ERROR(ranks ? ranks->agree(ranks->work(open)) : open());
  rl::RolloutBatches batches = rollouts.batches();
  rollouts.listModels(arguments.train.others);
  if (!ranks)
    return outcomeOf(learner.run(batches));
  auto channel = learner.channel();
  if (!channel.ok())
    return channel.status();
  rl::LeaderBatches leader(batches, **channel, ranks->heartbeatInterval(),
                           stopRequested);
  const StatusOr<TrainSummary> summary = learner.run(leader);
  return agreeOnOutcome(*ranks, summary, [&] { return leader.settle(); });
}

Status tessera::followRollouts(RlArguments &arguments,
                               const recipe::Recipe &recipe,
                               InferenceRanks &ranks) {
  const RlThreads threads = threadsOf(arguments, recipe, &ranks);
  Learner learner(arguments, recipe, threads, &ranks);
  TESSERA_RETURN_IF_ERROR(learner.createFile());
  TESSERA_RETURN_IF_ERROR(ranks.broadcastFile({}, learner.file()));
  TESSERA_RETURN_IF_ERROR(ranks.agree(learner.open()));
  auto channel = learner.channel();
  if (!channel.ok())
    return channel.status();
  rl::FollowerBatches follower(**channel);
  const StatusOr<TrainSummary> summary = learner.run(follower);
  return agreeOnOutcome(ranks, summary, [&] { return follower.settle(); });
}
