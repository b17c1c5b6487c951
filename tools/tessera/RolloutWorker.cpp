// tessera rollout-worker: samples for a learner (`tessera rl`). On another
// machine it is started by hand and needs nothing but this program: the learner
// sends what to compile. `tessera rl --rollout-workers` starts it with an
// artifact.
#include "compiler/api/rl/RemoteWorker.h"
#include "tools/tessera/CacheOptions.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/Note.h"
#include "tools/tessera/RolloutSecretOption.h"
#include <CLI/CLI.hpp>
#include <memory>

using namespace tessera;

namespace {
struct WorkerArguments {
  RemoteWorkerOptions worker;
  std::string artifact; ///< of the learner that started it
  uint64_t cacheGib = kCacheGib;
};
} // namespace

static Status runWorker(WorkerArguments &arguments) {
  RemoteWorkerOptions &worker = arguments.worker;
  worker.cacheBytes = arguments.cacheGib << 30;
  worker.note = note;
  if (!worker.connect.empty() && arguments.artifact.empty())
    return workForLearner(worker);
  if (worker.connect.empty() && !arguments.artifact.empty())
    return workForParent(arguments.artifact, worker.device, worker.threads);
  return Status::error("name the learner: --connect HOST:PORT, as its tessera "
                       "rl --rollout-listen says");
}

void tessera::addRolloutWorkerCommand(CLI::App &app, Invocation &invocation) {
  auto arguments = std::make_shared<WorkerArguments>();
  RemoteWorkerOptions *worker = &arguments->worker;
  CLI::App *command = app.add_subcommand(
      "rollout-worker",
      "Sample completions for a 'tessera rl' on another machine, which sends "
      "the model. Ends with that run");
  // Of `tessera rl --rollout-workers`, so it is in no help.
  command->add_option("--artifact", arguments->artifact)->group("");
  command
      ->add_option("--connect", worker->connect,
                   "where tessera rl --rollout-listen listens; it need not do "
                   "so yet")
      ->type_name("HOST:PORT");
  command
      ->add_option("--reconnect", worker->reconnect,
                   "seconds to try for if the learner cannot be reached, also "
                   "in the midst of a run, which it may resume")
      ->type_name("SECONDS")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  addRolloutSecretOption(*command, worker->secretFile);
  addCacheOptions(*command, worker->cache, arguments->cacheGib);
  command
      ->add_option("--device", worker->device,
                   "device to sample on: cpu, cuda:0, cuda-emu; not "
                   "necessarily that of the learner")
      ->type_name("NAME")
      ->envname("TESSERA_DEVICE")
      ->capture_default_str();
  command->add_option("--threads", worker->threads, "processors; 0: all")
      ->envname("TESSERA_THREADS")
      ->capture_default_str();
  command->callback([arguments, &invocation] {
    if (Status status = runWorker(*arguments); !status.ok())
      invocation.fail(status.message().c_str());
  });
}
