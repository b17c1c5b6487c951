// What a WorkerSampler does with what comes from its workers, on a thread for
// each, and when one ends.
#include "runtime/rl/WorkerSampler.h"
#include "runtime/support/Text.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tessera::rl {

namespace {
constexpr uint64_t kMostAnswer = uint64_t(1) << 28;
/// Workers on other machines that cannot sample a request before it fails.
constexpr int kMostFailures = 2;
} // namespace

//===--- from the workers -------------------------------------------------===//

/// Its model has no weights yet, or old ones.
void WorkerSampler::makeReady(Worker &worker) {
  Lock lock(mutex);
  changed.wait(lock, [&] { return isOver || !isStaging; });
  if (isOver)
    return worker.started.connection->shutDown();
  worker.isReady = true;
  if (version) {
    std::vector<uint32_t> all(staged->state().size());
    std::iota(all.begin(), all.end(), 0);
    queueWeights(worker, std::move(all));
  }
  dispatch();
}

void WorkerSampler::serve(Worker &worker) {
  for (;;) {
    makeReady(worker);
    const Status status = receive(worker);
    std::string how(worker.started.connection->ending());
    if (!status.ok())
      how = status.message();
    else if (worker.started.process.isRunning())
      how = worker.started.process.ending();
    leave(worker);
    const Status restarted = restart(worker, how);
    if (!restarted.ok())
      fail(restarted);
    std::lock_guard lock(mutex);
    worker.isGone = isOver || !restarted.ok();
    changed.notify_all();
    if (worker.isGone)
      return;
  }
}

void WorkerSampler::serveGuest(Worker &worker) {
  Connection &connection = *worker.started.connection;
  Status status = meet(worker, connection);
  if (status.ok()) {
    note(fmt::format("{} joins; it samples {} completions at once", worker.name,
                     worker.sequences));
    makeReady(worker);
    status = receive(worker);
  }
  const std::size_t unsent = leave(worker);
  std::string line = fmt::format("{} {}", worker.name,
                                 status.ok() ? std::string(connection.ending())
                                             : status.message());
  bool isSaid = false;
  {
    std::lock_guard lock(mutex);
    if (std::ranges::none_of(workers,
                             [](const auto &each) { return each->isReady; }))
      line += "; none is left, and the run waits for one";
    else if (unsent > 0)
      line += "; others sample again what it had not sent";
    worker.isGone = true;
    isSaid = !isOver;
  }
  changed.notify_all();
  if (isSaid)
    note(line);
}

/// Success: the worker has closed its end.
Status WorkerSampler::receive(Worker &worker) {
  for (;;) {
    auto message = worker.started.connection->receive(kMostAnswer);
    if (!message.ok())
      return message.status();
    if (!*message)
      return Status::success();
    TESSERA_RETURN_IF_ERROR(take(worker, **message));
  }
}

Status WorkerSampler::take(Worker &worker, const Message &message) {
  switch (message.kind) {
  case MessageKind::samples:
    return takeSamples(worker, message);
  case MessageKind::alive:
    return Status::success();
  case MessageKind::updated: {
    auto updated = unpackUpdated(message.payload);
    if (!updated.ok())
      return updated.status();
    std::lock_guard lock(mutex);
    takeUpdated(worker, updated->version);
    return Status::success();
  }
  case MessageKind::failure:
    return takeFailure(worker, message);
  default:
    return Status::error("sent a message of a learner");
  }
}

/// One worker on another machine is given up: others may be able to sample what
/// it cannot. If a second one cannot either, it is the request that fails.
Status WorkerSampler::takeFailure(Worker &worker, const Message &message) {
  auto failed = unpackFailure(message.payload);
  if (!failed.ok())
    return failed.status();
  bool isLast = worker.isOurs;
  {
    std::lock_guard lock(mutex);
    auto found = worker.unfinished.find(failed->id);
    if (found != worker.unfinished.end())
      isLast |= ++found->second.failures >= kMostFailures;
  }
  if (!isLast)
    return Status::error("cannot sample: {}", oneLine(failed->text, 300));
  if (auto pending = finish(worker, failed->id))
    pending->done(Status::error("{}", oneLine(failed->text, 300)));
  return Status::success();
}

/// Whether they are completions of the request. Their tokens are inputs of the
/// learner.
Status WorkerSampler::checkSamples(const Pending &pending,
                                   const std::vector<Sample> &samples) const {
  const SampleRequest &request = pending.request;
  if (samples.size() != request.seeds.size())
    return Status::error("sent {} completions for {}", samples.size(),
                         request.seeds.size());
  for (const Sample &sample : samples) {
    if (int64_t(sample.tokens.size()) > request.maxTokens)
      return Status::error("sent a completion of {} tokens, and asked for were "
                           "{} at most",
                           sample.tokens.size(), request.maxTokens);
    const auto isToken = [&](int32_t token) {
      return token >= 0 && token < vocabulary;
    };
    const auto isVersion = [&](uint32_t each) {
      return version && each <= *version;
    };
    if (!std::ranges::all_of(sample.tokens, isToken) ||
        !std::ranges::all_of(sample.versions, isVersion))
      return Status::error("sent tokens that the vocabulary lacks, or that are "
                           "of later weights");
    if (!std::ranges::all_of(sample.logProbs,
                             [](float each) { return std::isfinite(each); }))
      return Status::error("sent log-probabilities that are not finite");
  }
  return Status::success();
}

Status WorkerSampler::takeSamples(Worker &worker, const Message &message) {
  auto samples = unpackSamples(message.payload);
  if (!samples.ok())
    return samples.status();
  {
    std::lock_guard lock(mutex);
    auto found = worker.unfinished.find(samples->id);
    if (isOver || found == worker.unfinished.end())
      return Status::success();
    TESSERA_RETURN_IF_ERROR(checkSamples(found->second, samples->samples));
  }
  if (auto pending = finish(worker, samples->id))
    pending->done(std::move(samples->samples));
  return Status::success();
}

std::optional<WorkerSampler::Pending> WorkerSampler::finish(Worker &worker,
                                                            uint64_t id) {
  std::lock_guard lock(mutex);
  auto found = worker.unfinished.extract(id);
  if (isOver || found.empty())
    return std::nullopt;
  worker.hasSampled = true;
  worker.inFlight -= int64_t(found.mapped().request.seeds.size());
  dispatch();
  return std::move(found.mapped());
}

//===--- workers go -------------------------------------------------------===//

/// Others may sample what the worker had not sent: so many requests.
std::size_t WorkerSampler::leave(Worker &worker) {
  Lock lock(mutex);
  worker.isReady = false;
  worker.outgoing.clear();
  worker.started.connection->shutDown(); // a sender that waits gives up
  changed.wait(lock, [&] { return !worker.isSending; });
  worker.unsentWeights = 0;
  worker.inFlight = 0;
  const std::size_t unsent = worker.unfinished.size();
  if (!isOver)
    queue.merge(worker.unfinished);
  if (!updates.empty())
    takeUpdated(worker, updates.back().version);
  dispatch();
  return unsent;
}

Status WorkerSampler::restart(Worker &worker, const std::string &how) {
  {
    std::lock_guard lock(mutex);
    if (isOver)
      return Status::success();
    if (!worker.hasSampled)
      return Status::error("{} {} before it had sampled anything", worker.name,
                           how);
    worker.hasSampled = false;
  }
  note(fmt::format("{} {}; another one samples again what it had not sent",
                   worker.name, how));
  StatusOr<StartedWorker> started = startOne(worker);
  if (!started.ok())
    return started.status();
  std::lock_guard lock(mutex);
  worker.started = started.take();
  return Status::success();
}

void WorkerSampler::fail(const Status &status) {
  std::map<uint64_t, Pending> unfinished;
  {
    std::lock_guard lock(mutex);
    failure = status;
    if (!isOver) {
      unfinished.swap(queue);
      for (const auto &worker : workers)
        unfinished.merge(worker->unfinished);
    }
  }
  changed.notify_all();
  for (auto &[id, pending] : unfinished)
    pending.done(status);
}

} // namespace tessera::rl
