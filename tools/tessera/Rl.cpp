// tessera rl: reinforcement learning of a model directory. The learner is in
// this process or on the ranks of a mesh, the engine in this process unless
// there are rollout workers.
#include "compiler/api/rl/RlRun.h"
#include "compiler/api/rl/RlSetup.h"
#include "runtime/support/ProcessMemory.h"
#include "runtime/support/StopSignals.h"
#include "tools/tessera/CacheOptions.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/MeshOptions.h"
#include "tools/tessera/RolloutSecretOption.h"
#include <CLI/CLI.hpp>
#include <memory>

using namespace tessera;

namespace {

struct RlSettings {
  RlArguments run;
  MeshSettings mesh;
  uint64_t cacheGib = kCacheGib;
};

} // namespace

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
  auto settings = std::make_shared<RlSettings>();
  RlArguments *arguments = &settings->run;
  CLI::App *command = app.add_subcommand(
      "rl", "Train a model by reinforcement learning: it completes prompts, a "
            "program of yours rewards the completions, and a policy gradient "
            "(GRPO, DAPO, GSPO, PPO) learns from them");
  addTaskOptions(*command, *arguments);
  addRunOptions(*command, arguments->train);
  addCacheOptions(*command, arguments->cache, settings->cacheGib);
  command
      ->add_option("--device", arguments->device,
                   "device to run on: cpu, cuda:0, cuda-emu")
      ->type_name("NAME")
      ->envname("TESSERA_DEVICE")
      ->capture_default_str();
  addWorkerOptions(*command, *arguments);
  addMeshOptions(*command, settings->mesh,
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
  command->callback([settings, &invocation] {
    settings->run.mesh = settings->mesh.mesh;
    settings->run.cacheBytes = settings->cacheGib << 30;
    runOnRanks(settings->mesh, invocation, [&](InferenceRanks *ranks) {
      return runRl(settings->run, ranks);
    });
  });
}
