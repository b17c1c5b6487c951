// tessera rl: reinforcement learning of a model directory. The learner is in
// this process or on the ranks of a mesh, the engine in this process unless
// there are rollout workers.
#include "compiler/api/ModelSource.h"
#include "runtime/rl/RolloutBatches.h"
#include "runtime/support/ProcessMemory.h"
#include "runtime/support/StopSignals.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/RlRun.h"
#include "tools/tessera/RolloutSecret.h"
#include <CLI/CLI.hpp>
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

/// What all ranks find in the arguments.
static Status checkRun(RlArguments &arguments, const comm::Launch *launch,
                       std::optional<ModelSource> &source,
                       recipe::Recipe &recipe) {
  auto found = findModel(arguments.place);
  if (!found.ok())
    return found.status();
  if (!*found || (*found)->packaged)
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

/// Several ranks without a mesh would each train a model.
static Status checkAlone() {
  StatusOr<comm::Launch> launch = comm::readLaunch();
  if (!launch.ok() || launch->size == 1)
    return Status::success();
  return Status::error("{} ranks were started; name their mesh, such as --mesh "
                       "data={}, or start one",
                       launch->size, launch->size);
}

static Status runRl(RlArguments &arguments, InferenceRanks *ranks) {
  TESSERA_RETURN_IF_ERROR(catchStopSignals());
  arguments.note = [quiet = arguments.train.quiet](std::string_view line) {
    if (!quiet)
      fmt::print(stderr, "tessera: {}\n", line);
  };
  if (auto memory = readProcessMemory(); memory.ok())
    arguments.train.baseBytes = memory->residentBytes;
  std::optional<ModelSource> source;
  recipe::Recipe recipe;
  if (!ranks)
    TESSERA_RETURN_IF_ERROR(checkAlone());
  const Status checked =
      checkRun(arguments, ranks ? &ranks->started() : nullptr, source, recipe);
  TESSERA_RETURN_IF_ERROR(ranks ? ranks->agree(checked) : checked);
  return ranks && !ranks->leads()
             ? followRollouts(arguments, recipe, *ranks)
             : learnByRollouts(arguments, recipe, *source, ranks);
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
  addMeshOptions(*command, arguments->mesh,
                 "train on ranks that mpirun or torchrun's variables started: "
                 "data=2, or any axes of tessera compile --mesh",
                 "with --mesh: seconds that a rank may take to join, to read "
                 "weights, or for a step, before all are ended; compiling, "
                 "sampling and rewards may take longer");
  command
      ->add_option("--threads", arguments->threads,
                   "processors, of each rank; 0: all, or a rank's part of its "
                   "machine's. With rollout.staleness half of them "
                   "sample while the others learn; rollout workers share "
                   "that half")
      ->envname("TESSERA_THREADS")
      ->capture_default_str();
  command->callback([arguments, &invocation] {
    runOnRanks(arguments->mesh, invocation,
               [&](InferenceRanks *ranks) { return runRl(*arguments, ranks); });
  });
}
