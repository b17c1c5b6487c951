#include "compiler/api/rl/RlWorkers.h"
#include "compiler/api/rl/RolloutSecret.h"
#include "runtime/support/StopSignals.h"
#include "runtime/support/Text.h"
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

using namespace tessera;

/// The bounds of what a worker is sent; the same files were read before.
static constexpr int64_t kMostConfig = int64_t(1) << 24;

static StatusOr<rl::WorkerJob> jobOf(const RlArguments &arguments,
                                     const ModelSource &source,
                                     int64_t longest) {
  auto config = source.files.read("config.json", kMostConfig);
  if (!config.ok())
    return config.status();
  rl::WorkerJob job{config.take(), {}, arguments.set, longest};
  if (!arguments.recipe.empty()) {
    auto recipe = readTextFile(arguments.recipe, kMostConfig);
    if (!recipe.ok())
      return recipe.status();
    job.recipe = recipe.take();
  }
  return job;
}

static StatusOr<comm::TcpAddress> listenFor(const RlArguments &arguments,
                                            const ModelSource &source,
                                            int64_t longest,
                                            rl::WorkerSampler &workers) {
  auto address = comm::TcpAddress::parse(arguments.listen);
  if (!address.ok())
    return address.status();
  auto secret = readRolloutSecret(arguments.secretFile);
  if (!secret.ok())
    return secret.status();
  auto job = jobOf(arguments, source, longest);
  if (!job.ok())
    return job.status();
  rl::ListenOptions options;
  options.address = address.take();
  options.secret = secret.take();
  options.job = job.take();
  options.note = arguments.note;
  return workers.listen(std::move(options));
}

/// An address that other machines may know: the host's name, if it listens on
/// all of its addresses.
static comm::TcpAddress reachable(comm::TcpAddress bound) {
  char name[256];
  if ((bound.host == "0.0.0.0" || bound.host == "::") &&
      ::gethostname(name, sizeof name) == 0) {
    name[sizeof name - 1] = 0;
    bound.host = name;
  }
  return bound;
}

StatusOr<std::unique_ptr<rl::WorkerSampler>>
tessera::prepareWorkers(const RlArguments &arguments, const ModelSource &source,
                        int64_t longest) {
  std::unique_ptr<rl::WorkerSampler> workers;
  if (arguments.workers == 0 && arguments.listen.empty())
    return workers;
  // Eight bytes, of f64, at most.
  workers = std::make_unique<rl::WorkerSampler>(
      source.spec.vocab, 8 * uint64_t(models::parameterCount(source.spec)),
      arguments.note);
  if (arguments.listen.empty())
    return workers;
  auto bound = listenFor(arguments, source, longest, *workers);
  if (!bound.ok())
    return Status::error("--rollout-listen: {}", bound.message());
  arguments.note(fmt::format("rollout workers may join: tessera rollout-worker "
                             "--connect {}",
                             reachable(*bound).text()));
  return workers;
}

static StatusOr<rl::StartedWorker>
startWorker(const std::vector<std::string> &words) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return Status::error("cannot create a socket: {}", std::strerror(errno));
  comm::Socket ours(ends[0]), theirs(ends[1]);
  const ChildProcess::Descriptor descriptors[] = {
      {theirs.get(), kWorkerDescriptor}};
  auto process = ChildProcess::start(words, descriptors);
  if (!process.ok())
    return process.status();
  return rl::StartedWorker{std::make_unique<rl::Connection>(std::move(ours)),
                           process.take()};
}

Status tessera::startWorkers(const RlArguments &arguments,
                             const std::string &artifact, unsigned threads,
                             rl::WorkerSampler &workers) {
  // Also works if the file has been replaced since this process started.
  const std::string self = "/proc/self/exe";
  // A file without a name is this process's by its descriptor.
  std::string path = artifact;
  constexpr std::string_view kOurs = "/proc/self/";
  if (path.starts_with(kOurs))
    path.replace(0, kOurs.size(), fmt::format("/proc/{}/", ::getpid()));
  std::vector<std::string> words = {
      self,       "rollout-worker", "--artifact", path,
      "--device", arguments.device, "--threads",  std::to_string(threads)};
  TESSERA_RETURN_IF_ERROR(
      workers.start(arguments.workers, [words] { return startWorker(words); }));
  bool isSaid = false;
  auto came = workers.awaitWorker([&] { // called if none has come yet
    if (!std::exchange(isSaid, true))
      arguments.note("waiting for a rollout worker");
    return stopRequested();
  });
  if (!came.ok())
    return came.status();
  return *came ? Status::success()
               : Status::error("stopped before a rollout worker came");
}
