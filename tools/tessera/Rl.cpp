// tessera rl: reinforcement learning of a model directory. The learner is in
// this process, the engine too unless there are rollout workers.
#include "compiler/api/ModelSource.h"
#include "compiler/api/Shell.h"
#include "runtime/rl/EngineSampler.h"
#include "runtime/rl/RolloutBatches.h"
#include "runtime/support/ProcessMemory.h"
#include "runtime/support/StopSignals.h"
#include "runtime/weights/ImportWeights.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/RlPrograms.h"
#include "tools/tessera/RlTokenizer.h"
#include "tools/tessera/RlWorkers.h"
#include "tools/tessera/RolloutSecret.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

using namespace tessera;

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

/// A run without checkpoints, also one that resumes, begins with the weights of
/// the model directory.
static Status chooseWeights(const std::string &place, TrainOptions &options) {
  namespace fs = std::filesystem;
  if (fs::exists(options.out + "/config.json"))
    return Status::error("'{}' is a model directory; choose another --out for "
                         "the run",
                         options.out);
  if (options.initFrom.empty() && !fs::exists(place + "/model.safetensors") &&
      !fs::exists(place + "/model.safetensors.index.json"))
    return Status::error("'{}' has no weights; write a trained model with: "
                         "tessera export RUN -o DIR, or name weights with "
                         "--init-from",
                         place);
  auto present = listCheckpoints(options.out);
  if (!present.ok())
    return present.status();
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

static std::optional<rl::LearnedAdapter> adapterOf(const recipe::Recipe &recipe,
                                                   const ModelSource &source) {
  if (recipe.adapter.kind == recipe::AdapterKind::None)
    return std::nullopt;
  return rl::LearnedAdapter{recipe.adapter,
                            source.spec.family == models::Family::Gpt2};
}

static StatusOr<std::unique_ptr<rl::Reward>>
openReward(const RlArguments &arguments, const recipe::Recipe &recipe,
           const std::vector<rl::Prompt> &prompts,
           const std::vector<rl::Prompt> &evalPrompts) {
  const std::string &given = arguments.reward;
  const int64_t seconds = recipe.rollout.rewardTimeout;
  if (given.starts_with(kRewardModel))
    return openModelReward(arguments, recipe, prompts, evalPrompts);
  if (given.starts_with("http://") || given.starts_with("https://"))
    return rl::rewardServer(given, seconds);
  std::error_code error;
  if (std::filesystem::is_directory(given, error))
    return Status::error("--reward: '{0}' is a directory; write model:{0} if "
                         "it is a reward model's",
                         given);
  return rl::rewardProgram(given, seconds);
}

/// Starts the reward program before the others are compiled.
static Status beginReward(rl::Reward &reward) {
  Status begun = reward.begin();
  return begun.ok() ? begun : Status::error("--reward: {}", begun.message());
}

/// After compilation: a program that cannot work has ended by now. If failures
/// are allowed it is started again, as after any other.
static Status checkReward(rl::Reward &reward, const RlArguments &arguments,
                          const recipe::Recipe &recipe) {
  Status begun = beginReward(reward);
  if (begun.ok() ||
      recipe.rollout.onRewardFailure == recipe::RewardFailure::Stop)
    return begun;
  arguments.note(begun.message());
  return Status::success();
}

/// The workers, or an engine in this process by `model`.
static StatusOr<std::unique_ptr<rl::Sampler>>
openSampler(const RlArguments &arguments, const RlThreads &threads,
            const std::string &artifact,
            std::unique_ptr<rl::WorkerSampler> workers, DecodingModel &model) {
  if (workers) {
    TESSERA_RETURN_IF_ERROR(
        startWorkers(arguments, artifact, threads.ofWorker, *workers));
    return std::unique_ptr<rl::Sampler>(std::move(workers));
  }
  TESSERA_RETURN_IF_ERROR(
      model.open(artifact, arguments.device, threads.sampler));
  return std::unique_ptr<rl::Sampler>(
      std::make_unique<rl::EngineSampler>(*model.programs, *model.model));
}

/// Whether the learner's base is codes with scales, also by its config.json.
static bool hasQuantizedBase(const ModelState &learner) {
  return std::ranges::any_of(learner.state(), [](const StateTensor &tensor) {
    return tensor.quantized.has_value();
  });
}

static uint64_t lastStepOf(const RlArguments &arguments,
                           const recipe::Recipe &recipe) {
  return arguments.train.steps.value_or(uint64_t(recipe.schedule.total));
}

/// With a quantized base it gets its weights from the learner, later.
static Status openReference(const RlArguments &arguments,
                            const recipe::Recipe &recipe,
                            const ProgramThreads &threads,
                            const std::string &artifact, bool hasCodes,
                            DecodingModel &reference) {
  TESSERA_RETURN_IF_ERROR(reference.open(artifact, arguments.device, threads));
  if (!hasCodes)
    return importAllWeights(arguments.place, *reference.model);
  if (!recipe.adapter.modulesToSave.empty())
    return Status::error("policy.kl.beta: the reference model is the quantized "
                         "base, and adapter.modules_to_save are trained of it; "
                         "leave one of them out");
  return Status::success();
}

static Status learn(RlArguments &arguments, const recipe::Recipe &recipe,
                    RlTokenizer &tokenizer, const ModelSource &source,
                    const std::vector<rl::Prompt> &prompts,
                    const std::vector<rl::Prompt> &evalPrompts) {
  int64_t longest = 0;
  for (const auto *each : {&prompts, &evalPrompts})
    for (const rl::Prompt &prompt : *each)
      longest = std::max(longest, int64_t(prompt.tokens.size()));
  TESSERA_RETURN_IF_ERROR(rl::checkBatch(recipe, longest));
  auto reward = openReward(arguments, recipe, prompts, evalPrompts);
  if (!reward.ok())
    return reward.status();
  TESSERA_RETURN_IF_ERROR(beginReward(**reward));
  auto workers = prepareWorkers(arguments, source, longest);
  if (!workers.ok())
    return workers.status();
  TemporaryFile trainer, decoder;
  for (TemporaryFile *file : {&trainer, &decoder})
    if (llvm::Error error = file->create())
      return Status::error("{}", llvm::toString(std::move(error)));
  TESSERA_RETURN_IF_ERROR(compileLearner(arguments, trainer.name()));
  const bool comparesWithReference = recipe.policy.kl.beta > 0;
  if (!*workers || arguments.workers > 0 || comparesWithReference)
    TESSERA_RETURN_IF_ERROR(
        compileSampler(arguments, recipe, longest, decoder.name()));
  std::vector<std::string> programs = {"init", "train_step"};
  if (recipe.policy.advantages == recipe::Advantages::Gae)
    programs.push_back("eval_step"); // which gives values of tokens
  const RlThreads threads = threadsOf(arguments, recipe);
  auto learner = openProgram(trainer.name(), arguments.device, threads.learner,
                             std::move(programs));
  if (!learner.ok())
    return learner.status();
  DecodingModel model, reference;
  auto sampler =
      openSampler(arguments, threads, decoder.name(), workers.take(), model);
  if (!sampler.ok())
    return sampler.status();
  TESSERA_RETURN_IF_ERROR(
      rl::checkContext(recipe, longest, (*sampler)->context()));
  const bool hasCodes = hasQuantizedBase(**learner);
  if (comparesWithReference)
    TESSERA_RETURN_IF_ERROR(openReference(arguments, recipe, threads.reference,
                                          decoder.name(), hasCodes, reference));
  TESSERA_RETURN_IF_ERROR(checkReward(**reward, arguments, recipe));
  rl::RolloutOptions rollouts;
  rollouts.settings = recipe.rollout;
  rollouts.seed = uint64_t(recipe.seed);
  rollouts.lastStep = lastStepOf(arguments, recipe) /
                      uint64_t(recipe.rollout.steps()); // batches
  rollouts.stopTokens = tokenizer.stopTokens();
  rollouts.decode = [&](std::span<const int32_t> tokens) {
    return tokenizer.decode(tokens);
  };
  rollouts.note = arguments.note;
  TrainOptions &options = arguments.train;
  rl::RolloutBatches batches(
      **sampler, reference.programs.get(), prompts, **reward, rollouts,
      {options.out, arguments.reward,
       source.files.place() + "/" + kTokenizerFile, source.files.place(),
       recipe.policy.documents, adapterOf(recipe, source),
       hasCodes ? reference.model.get() : nullptr, evalPrompts,
       uint64_t(recipe.eval.every)});
  options.source = &batches;
  resetPeakResident();
  for (const auto &[what, own] : {std::pair("rollout engine", &model),
                                  std::pair("reference model", &reference)})
    if (own->model)
      options.others.push_back({what, own->model.get()});
  options.program = trainer.name();
  options.threads = threads.learner.count;
  return outcomeOf(runTraining(**learner, options));
}

static Status runRl(RlArguments &arguments) {
  TESSERA_RETURN_IF_ERROR(catchStopSignals());
  arguments.note = [quiet = arguments.train.quiet](std::string_view line) {
    if (!quiet)
      fmt::print(stderr, "tessera: {}\n", line);
  };
  if (auto memory = readProcessMemory(); memory.ok())
    arguments.train.baseBytes = memory->residentBytes;
  auto source = findModel(arguments.place);
  if (!source.ok())
    return source.status();
  if (!*source || (*source)->packaged)
    return Status::error("'{}' is not a model directory with config.json; "
                         "write one of a run with: tessera export RUN -o DIR",
                         arguments.place);
  arguments.place = (*source)->files.place();
  if (arguments.recipe.empty())
    arguments.set.insert(arguments.set.begin(),
                         {"task=policy", "data.documents=separate"});
  auto recipe = recipe::loadRecipe(arguments.recipe, arguments.set);
  if (!recipe.ok())
    return recipe.status();
  TESSERA_RETURN_IF_ERROR(checkRecipe(*recipe));
  if (arguments.listen.empty() && !arguments.secretFile.empty())
    return Status::error("--rollout-secret-file is for workers on other "
                         "machines; name where they join: --rollout-listen "
                         "HOST:PORT");
  TESSERA_RETURN_IF_ERROR(rl::checkEpochs(
      *recipe, lastStepOf(arguments, *recipe), !arguments.evalPrompts.empty()));
  TESSERA_RETURN_IF_ERROR(hal::checkDevice(arguments.device));
  TESSERA_RETURN_IF_ERROR(chooseWeights(arguments.place, arguments.train));
  RlTokenizer tokenizer;
  TESSERA_RETURN_IF_ERROR(tokenizer.read(**source));
  const int64_t room = recipe->batch.sequence - recipe->rollout.maxTokens;
  auto prompts =
      rl::readPrompts(arguments.prompts, tokenizer.promptEncoder(), room);
  if (!prompts.ok())
    return prompts.status();
  std::vector<rl::Prompt> evalPrompts;
  if (!arguments.evalPrompts.empty()) {
    auto read =
        rl::readPrompts(arguments.evalPrompts, tokenizer.promptEncoder(), room);
    if (!read.ok())
      return read.status();
    evalPrompts = read.take();
  }
  return learn(arguments, *recipe, tokenizer, **source, *prompts, evalPrompts);
}

static void addRunOptions(CLI::App &command, TrainOptions &options) {
  command.add_option("--out", options.out, "run directory")
      ->type_name("DIR")
      ->capture_default_str();
  command
      .add_option("--steps", options.steps,
                  "last step, counted from the run's beginning (default: the "
                  "recipe's lr_schedule.total)")
      ->check(CLI::Range(0, 1 << 24));
  command.add_flag("--resume", options.resume,
                   "continue from the newest intact checkpoint in --out, with "
                   "the completions that its journal has");
  command
      .add_option("--init-from", options.initFrom,
                  "Hugging Face safetensors to start from (default: DIR)")
      ->type_name("DIR");
  command
      .add_option("--log-every", options.logEvery,
                  "steps between progress lines when standard error is not a "
                  "terminal")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  command.add_flag("--json", options.json,
                   "print every metrics record on standard output");
  command.add_flag("--dump-metrics", options.dumpMetrics,
                   "print loss, gradient norm and rate of every step as "
                   "hexadecimal floats on standard output");
  command.add_flag("--quiet", options.quiet, "print only errors");
}

static void addTaskOptions(CLI::App &command, RlArguments &arguments) {
  command
      .add_option("DIR", arguments.place,
                  "Hugging Face directory with config.json, weights and "
                  "tokenizer.json")
      ->required();
  command
      .add_option("--recipe", arguments.recipe,
                  "recipe.yaml with task: policy (default: GRPO)")
      ->type_name("FILE.yaml");
  command
      .add_option("--set", arguments.set,
                  "change a key of the recipe: --set rollout.group=16; "
                  "repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command
      .add_option("--prompts", arguments.prompts,
                  "lines of JSON with 'prompt', a text, or 'messages'; other "
                  "members are for the reward")
      ->required()
      ->type_name("FILE.jsonl");
  command
      .add_option("--eval-prompts", arguments.evalPrompts,
                  "held-out prompts: the mean reward of their greedy "
                  "completions is measured every eval.every steps")
      ->type_name("FILE.jsonl");
  command
      .add_option("--reward", arguments.reward,
                  "shell command of a program that reads a line of JSON for "
                  "each completion and answers it with a number; the URL of a "
                  "server that is sent the line; or model:DIR, a reward "
                  "model's directory or packaged model, whose score is the "
                  "reward")
      ->required()
      ->type_name("COMMAND|http://HOST[:PORT]/PATH|model:DIR");
}

static void addWorkerOptions(CLI::App &command, RlArguments &arguments) {
  command
      .add_option("--rollout-workers", arguments.workers,
                  "sample in so many processes of their own; one that ends "
                  "is started again (default: sample in this process, or "
                  "with --rollout-listen only on other machines)")
      ->check(CLI::Range(0, 256))
      ->type_name("N");
  command
      .add_option("--rollout-listen", arguments.listen,
                  "sample on other machines: let 'tessera rollout-worker "
                  "--connect HOST:PORT' join, at any time. Unless HOST is a "
                  "loopback address, it must know a secret")
      ->type_name("HOST:PORT");
  addRolloutSecretOption(command, arguments.secretFile);
}

void tessera::addRlCommand(CLI::App &app, Invocation &invocation) {
  auto arguments = std::make_shared<RlArguments>();
  CLI::App *command = app.add_subcommand(
      "rl", "Train a model by reinforcement learning: it completes prompts, a "
            "program of yours rewards the completions, and a policy gradient "
            "(GRPO, DAPO, GSPO, PPO) learns from them");
  addTaskOptions(*command, *arguments);
  addRunOptions(*command, arguments->train);
  addCacheOptions(*command, arguments->cache, arguments->cacheGib);
  command
      ->add_option("--device", arguments->device,
                   "device to run on: cpu, cuda:0, cuda-emu")
      ->type_name("NAME")
      ->envname("TESSERA_DEVICE")
      ->capture_default_str();
  addWorkerOptions(*command, *arguments);
  command
      ->add_option("--threads", arguments->threads,
                   "processors; 0: all. With rollout.staleness half of them "
                   "sample while the others learn; rollout workers share "
                   "that half")
      ->envname("TESSERA_THREADS")
      ->capture_default_str();
  command->callback([arguments, &invocation] {
    if (Status status = runRl(*arguments); !status.ok())
      invocation.fail(status.message().c_str());
  });
}
