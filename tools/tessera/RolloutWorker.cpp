// tessera rollout-worker: a process of `tessera rl --rollout-workers` that
// samples. Not for users, so it is in no help.
#include "runtime/rl/RolloutWorker.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/RlPrograms.h"
#include <CLI/CLI.hpp>
#include <memory>
#include <sys/stat.h>

using namespace tessera;

namespace {
struct WorkerArguments {
  std::string artifact, device = "cpu";
  unsigned threads = 0;
};
} // namespace

static Status runWorker(const WorkerArguments &arguments) {
  struct stat info{};
  if (::fstat(kWorkerDescriptor, &info) != 0 || !S_ISSOCK(info.st_mode))
    return Status::error("tessera rollout-worker is started by tessera rl "
                         "--rollout-workers");
  rl::Connection learner{comm::Socket(kWorkerDescriptor)};
  DecodingModel model;
  TESSERA_RETURN_IF_ERROR(model.open(arguments.artifact, arguments.device,
                                     {arguments.threads, {}}));
  return rl::runRolloutWorker(learner, *model.programs, *model.model);
}

void tessera::addRolloutWorkerCommand(CLI::App &app, Invocation &invocation) {
  auto arguments = std::make_shared<WorkerArguments>();
  CLI::App *command =
      app.add_subcommand("rollout-worker", "sample for tessera rl")->group("");
  command->add_option("ARTIFACT", arguments->artifact)->required();
  command->add_option("--device", arguments->device);
  command->add_option("--threads", arguments->threads);
  command->callback([arguments, &invocation] {
    if (Status status = runWorker(*arguments); !status.ok())
      invocation.fail(status.message().c_str());
  });
}
