#include "compiler/api/rl/RemoteWorker.h"
#include "compiler/api/rl/RlWorkers.h"
#include "compiler/api/rl/RolloutSecret.h"
#include "runtime/hal/cpu/ThreadPool.h"
#include "runtime/rl/RolloutWorker.h"
#include "runtime/support/Text.h"
#include <chrono>
#include <fmt/format.h>
#include <fstream>
#include <optional>
#include <sys/stat.h>
#include <thread>

using namespace tessera;
using comm::SocketClock;

namespace {
/// The model that samples, compiled for what a learner asks for.
class CompiledJob {
public:
  explicit CompiledJob(const RemoteWorkerOptions &options) : options(options) {}

  /// Does nothing if the last job was the same.
  Status prepare(const rl::WorkerJob &job);
  DecodingModel &model() { return decoding; }

private:
  const RemoteWorkerOptions &options;
  std::optional<rl::WorkerJob> prepared;
  DecodingModel decoding;
};
} // namespace

//===--- started by the learner -------------------------------------------===//

Status tessera::workForParent(const std::string &artifact,
                              const std::string &device, unsigned threads) {
  struct stat info{};
  if (::fstat(kWorkerDescriptor, &info) != 0 || !S_ISSOCK(info.st_mode))
    return Status::error("--artifact is for tessera rl --rollout-workers");
  rl::Connection learner{comm::Socket(kWorkerDescriptor)};
  DecodingModel model;
  TESSERA_RETURN_IF_ERROR(model.open(artifact, device, {threads, {}}));
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
  request.device = options.device;
  request.cache = options.cache;
  request.cacheBytes = options.cacheBytes;
  request.note = options.note;
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
  TESSERA_RETURN_IF_ERROR(
      decoding.open(artifact.name(), options.device, {options.threads, {}}));
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
                                    const RemoteWorkerOptions &options) {
  const int64_t seconds = options.reconnect;
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
      options.note(fmt::format("{}; trying again for {} s", cause, seconds));
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

Status tessera::workForLearner(RemoteWorkerOptions options) {
  auto address = comm::TcpAddress::parse(options.connect);
  if (!address.ok())
    return Status::error("--connect: {}", address.message());
  if (address->port == 0)
    return Status::error("--connect: port 0 is none; name the port that the "
                         "learner's --rollout-listen says");
  auto secret = readRolloutSecret(options.secretFile);
  if (!secret.ok())
    return secret.status();
  TESSERA_RETURN_IF_ERROR(hal::checkDevice(options.device));
  if (options.threads == 0)
    options.threads = hal::availableProcessors();
  CompiledJob compiled(options);
  for (;;) {
    auto socket = reach(*address, *secret, options);
    if (!socket.ok())
      return socket.status();
    auto end = workOnce(socket.take(), compiled);
    if (!end.ok())
      return end.status();
    if (*end == rl::WorkerEnd::over) {
      options.note("the learner has ended the run");
      return Status::success();
    }
    options.note(
        fmt::format("the learner at {} has gone; trying to reach it again "
                    "for {} s",
                    address->text(), options.reconnect));
  }
}
