// tessera rollout-worker: samples for a learner (`tessera rl`). On another
// machine it is started by hand and needs nothing but this program: the learner
// sends what to compile. `tessera rl --rollout-workers` starts it with an
// artifact.
#include "runtime/rl/RolloutWorker.h"
#include "compiler/api/rl/RlWorkers.h"
#include "compiler/api/rl/RolloutSecret.h"
#include "runtime/hal/cpu/ThreadPool.h"
#include "runtime/support/Text.h"
#include "tools/tessera/CacheOptions.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/Note.h"
#include "tools/tessera/RolloutSecretOption.h"
#include <CLI/CLI.hpp>
#include <fstream>
#include <memory>
#include <sys/stat.h>
#include <thread>

using namespace tessera;
using comm::SocketClock;

namespace {
struct WorkerArguments {
  std::string artifact, connect, secretFile, device = "cpu", cache = "on";
  unsigned threads = 0;
  uint64_t cacheGib = kCacheGib;
  int64_t reconnect = 600; ///< seconds
};

/// The model that samples, compiled for what a learner asks for.
class CompiledJob {
public:
  explicit CompiledJob(const WorkerArguments &arguments)
      : arguments(arguments) {}

  /// Does nothing if the last job was the same.
  Status prepare(const rl::WorkerJob &job);
  DecodingModel &model() { return decoding; }

private:
  const WorkerArguments &arguments;
  std::optional<rl::WorkerJob> prepared;
  DecodingModel decoding;
};
} // namespace

//===--- started by the learner -------------------------------------------===//

static Status workForParent(const WorkerArguments &arguments) {
  struct stat info{};
  if (::fstat(kWorkerDescriptor, &info) != 0 || !S_ISSOCK(info.st_mode))
    return Status::error("--artifact is for tessera rl --rollout-workers");
  rl::Connection learner{comm::Socket(kWorkerDescriptor)};
  DecodingModel model;
  TESSERA_RETURN_IF_ERROR(model.open(arguments.artifact, arguments.device,
                                     {arguments.threads, {}}));
  return rl::runRolloutWorker(learner, *model.programs, *model.model).status();
}

//===--- on another machine -----------------------------------------------===//

Status CompiledJob::prepare(const rl::WorkerJob &job) {
  if (prepared && *prepared == job)
    return Status::success();
  prepared.reset();
  decoding = DecodingModel();
  TemporaryFile recipeFile, artifact;
  for (TemporaryFile *file : {&recipeFile, &artifact})
    if (llvm::Error error = file->create())
      return Status::error("{}", llvm::toString(std::move(error)));
  RlArguments request;
  request.place = "config.json of the learner";
  request.config = job.config;
  request.set = job.set;
  request.device = arguments.device;
  request.cache = arguments.cache;
  request.cacheBytes = arguments.cacheGib << 30;
  request.note = note;
  if (!job.recipe.empty()) {
    request.recipe = recipeFile.name();
    if (!(std::ofstream(request.recipe) << job.recipe).flush())
      return Status::error("cannot write the learner's recipe to {}",
                           request.recipe);
  }
  auto recipe = recipe::loadRecipe(request.recipe, request.set);
  if (!recipe.ok())
    return recipe.status();
  TESSERA_RETURN_IF_ERROR(
      compileSampler(request, *recipe, job.longestPrompt, artifact.name()));
  TESSERA_RETURN_IF_ERROR(decoding.open(artifact.name(), arguments.device,
                                        {arguments.threads, {}}));
  prepared = job;
  return Status::success();
}

static bool isLoopbackPeer(int socket) {
  auto peer = comm::peerAddress(socket);
  return peer.ok() && comm::isLoopback(*peer);
}

/// A connection to a learner that has the secret, too; tries again for
/// --reconnect seconds.
static StatusOr<comm::Socket> reach(const comm::TcpAddress &address,
                                    const rl::SharedSecret &secret,
                                    int64_t seconds) {
  constexpr std::chrono::seconds kGreeting{10};
  constexpr std::chrono::milliseconds kRetry{500};
  const auto deadline = SocketClock::now() + std::chrono::seconds(seconds);
  for (bool isFirst = true;; isFirst = false) {
    auto socket = comm::connectTo(address);
    std::string cause = socket.message();
    if (socket.ok()) {
      // It decides what is compiled and run here.
      if (secret.text.empty() && !isLoopbackPeer(socket->get()))
        return Status::error("--connect {}: without a secret the learner must "
                             "be on this machine; give the learner's in {}",
                             address.text(), kRolloutSecret);
      const rl::Refusal refusal = rl::greetLearner(
          socket->get(), secret, SocketClock::now() + kGreeting);
      if (refusal.status.ok())
        return socket;
      cause = fmt::format("{} {}", address.text(), refusal.status.message());
      if (refusal.isFinal)
        return Status::error("{}", cause);
    }
    if (SocketClock::now() + kRetry > deadline)
      return Status::error("no learner within {} s: {}", seconds, cause);
    if (isFirst)
      note(fmt::format("{}; trying again for {} s", cause, seconds));
    std::this_thread::sleep_for(kRetry);
  }
}

static StatusOr<rl::WorkerEnd> workOnce(comm::Socket socket,
                                        CompiledJob &compiled) {
  constexpr uint64_t kMostJob = uint64_t(1) << 26;
  comm::detectLoss(socket.get(), rl::kUnreachable);
  rl::Connection learner(std::move(socket));
  const rl::Heartbeat heartbeat(learner, rl::kHeartbeat);
  auto message = learner.receive(kMostJob);
  if (!message.ok())
    return Status::error("the learner {}", message.message());
  if (!*message)
    return rl::WorkerEnd::lost;
  auto job = rl::unpackJob((*message)->payload);
  if (!job.ok() || (*message)->kind != rl::MessageKind::job)
    return Status::error("the learner did not say what to sample with");
  TESSERA_RETURN_IF_ERROR(compiled.prepare(*job));
  return rl::runRolloutWorker(learner, *compiled.model().programs,
                              *compiled.model().model);
}

static Status workForLearner(WorkerArguments &arguments) {
  auto address = comm::TcpAddress::parse(arguments.connect);
  if (!address.ok())
    return Status::error("--connect: {}", address.message());
  if (address->port == 0)
    return Status::error("--connect: port 0 is none; name the port that the "
                         "learner's --rollout-listen says");
  auto secret = readRolloutSecret(arguments.secretFile);
  if (!secret.ok())
    return secret.status();
  TESSERA_RETURN_IF_ERROR(hal::checkDevice(arguments.device));
  if (arguments.threads == 0)
    arguments.threads = hal::availableProcessors();
  CompiledJob compiled(arguments);
  for (;;) {
    auto socket = reach(*address, *secret, arguments.reconnect);
    if (!socket.ok())
      return socket.status();
    auto end = workOnce(socket.take(), compiled);
    if (!end.ok())
      return end.status();
    if (*end == rl::WorkerEnd::over) {
      note("the learner has ended the run");
      return Status::success();
    }
    note(fmt::format("the learner at {} has gone; trying to reach it again "
                     "for {} s",
                     address->text(), arguments.reconnect));
  }
}

static Status runWorker(WorkerArguments &arguments) {
  if (!arguments.connect.empty() && arguments.artifact.empty())
    return workForLearner(arguments);
  if (arguments.connect.empty() && !arguments.artifact.empty())
    return workForParent(arguments);
  return Status::error("name the learner: --connect HOST:PORT, as its tessera "
                       "rl --rollout-listen says");
}

void tessera::addRolloutWorkerCommand(CLI::App &app, Invocation &invocation) {
  auto arguments = std::make_shared<WorkerArguments>();
  CLI::App *command = app.add_subcommand(
      "rollout-worker",
      "Sample completions for a 'tessera rl' on another machine, which sends "
      "the model. Ends with that run");
  // Of `tessera rl --rollout-workers`, so it is in no help.
  command->add_option("--artifact", arguments->artifact)->group("");
  command
      ->add_option("--connect", arguments->connect,
                   "where tessera rl --rollout-listen listens; it need not do "
                   "so yet")
      ->type_name("HOST:PORT");
  command
      ->add_option("--reconnect", arguments->reconnect,
                   "seconds to try for if the learner cannot be reached, also "
                   "in the midst of a run, which it may resume")
      ->type_name("SECONDS")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  addRolloutSecretOption(*command, arguments->secretFile);
  addCacheOptions(*command, arguments->cache, arguments->cacheGib);
  command
      ->add_option("--device", arguments->device,
                   "device to sample on: cpu, cuda:0, cuda-emu; not "
                   "necessarily that of the learner")
      ->type_name("NAME")
      ->envname("TESSERA_DEVICE")
      ->capture_default_str();
  command->add_option("--threads", arguments->threads, "processors; 0: all")
      ->envname("TESSERA_THREADS")
      ->capture_default_str();
  command->callback([arguments, &invocation] {
    if (Status status = runWorker(*arguments); !status.ok())
      invocation.fail(status.message().c_str());
  });
}
