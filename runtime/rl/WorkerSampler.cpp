#include "runtime/rl/WorkerSampler.h"

#include <algorithm>
#include <numeric>

namespace tessera::rl {
namespace {

constexpr uint64_t kMostHello = uint64_t(1) << 28;
constexpr uint64_t kMostAnswer = uint64_t(1) << 30;

bool isSame(const Hello &hello, const HostWeights &weights, int64_t context) {
  const auto areEqual = [](const StateTensor &a, const StateTensor &b) {
    return a.name == b.name && a.type == b.type && a.shape == b.shape;
  };
  return hello.context == context &&
         std::ranges::equal(hello.parameters, weights.state(), areEqual);
}

StatusOr<Hello> receiveHello(Connection &connection) {
  auto message = connection.receive(kMostHello);
  if (!message.ok())
    return message.status();
  if (!*message)
    return Status::error("ended before it was ready");
  if ((*message)->kind != MessageKind::hello)
    return Status::error("did not say what it samples with");
  return unpackHello((*message)->payload);
}

} // namespace

StatusOr<std::unique_ptr<WorkerSampler>>
WorkerSampler::create(int count, Start start, Note note) {
  std::unique_ptr<WorkerSampler> sampler(
      new WorkerSampler(std::move(start), std::move(note)));
  for (int i = 1; i <= count; ++i) {
    auto started = sampler->startOne(i);
    if (!started.ok())
      return started.status();
    auto worker = std::make_unique<Worker>();
    worker->number = i;
    worker->started = started.take();
    sampler->workers.push_back(std::move(worker));
  }
  for (const auto &worker : sampler->workers)
    worker->thread = std::thread(
        [raw = sampler.get(), each = worker.get()] { raw->serve(*each); });
  return sampler;
}

WorkerSampler::~WorkerSampler() { stop(); }

/// A worker that has said what it samples with. The first one decides what
/// that is.
StatusOr<StartedWorker> WorkerSampler::startOne(int number) {
  StatusOr<StartedWorker> started = start();
  if (!started.ok())
    return Status::error("rollout worker {}: {}", number, started.message());
  StatusOr<Hello> hello = receiveHello(*started->connection);
  if (!hello.ok())
    return Status::error("rollout worker {} {}", number,
                         started->process.isRunning()
                             ? started->process.ending()
                             : hello.message());
  if (!staged) {
    modelContext = hello->context;
    staged = std::make_unique<HostWeights>(std::move(hello->parameters));
  } else if (!isSame(*hello, *staged, modelContext)) {
    return Status::error("rollout worker {} samples with another model",
                         number);
  }
  return started;
}

//===--- to the workers ---------------------------------------------------===//

/// With `staging` and `sending`. A worker that has gone is noticed by its
/// thread.
Status WorkerSampler::sendWeights(Worker &worker,
                                  std::span<const uint32_t> parameters) {
  std::vector<std::span<const std::byte>> bytes;
  for (uint32_t index : parameters)
    bytes.push_back(staged->bytesOf(index));
  return worker.started.connection->send(
      pack(WeightsHeader{*version, {parameters.begin(), parameters.end()}}),
      bytes);
}

Status WorkerSampler::updateWeights(uint32_t step,
                                    const std::function<Status()> &copy) {
  std::lock_guard lock(staging);
  TESSERA_RETURN_IF_ERROR(copy());
  version = step;
  const std::vector<uint32_t> written = staged->takeWritten();
  for (const auto &worker : workers) {
    std::lock_guard sendingLock(worker->sending);
    (void)sendWeights(*worker, written);
  }
  return Status::success();
}

void WorkerSampler::submit(SampleRequest request, Done done) {
  Worker *worker = nullptr;
  uint64_t id = 0;
  {
    std::lock_guard lock(mutex);
    worker = std::ranges::min_element(workers, {}, [](const auto &each) {
               return each->unfinished.size();
             })->get();
    id = nextId++;
  }
  const Message message = pack(NumberedRequest{id, request});
  // A restart sends again what is unfinished, so nothing comes in between.
  std::unique_lock sendingLock(worker->sending);
  Status failure = Status::success();
  {
    std::lock_guard lock(mutex);
    failure = worker->failure;
    if (failure.ok())
      worker->unfinished.emplace(id, Pending{std::move(request), done});
  }
  if (failure.ok()) {
    (void)worker->started.connection->send(message);
    return;
  }
  sendingLock.unlock();
  done(failure);
}

//===--- from the workers -------------------------------------------------===//

void WorkerSampler::serve(Worker &worker) {
  for (;;) {
    const Status status = receive(worker);
    {
      std::lock_guard lock(mutex);
      if (isOver)
        return;
    }
    std::string how = "closed its end";
    if (!status.ok())
      how = status.message();
    else if (worker.started.process.isRunning())
      how = worker.started.process.ending();
    if (Status restarted = restart(worker, how); !restarted.ok())
      return fail(worker, restarted);
  }
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

std::optional<WorkerSampler::Pending> WorkerSampler::finish(Worker &worker,
                                                            uint64_t id) {
  std::lock_guard lock(mutex);
  auto found = worker.unfinished.extract(id);
  if (isOver || found.empty())
    return std::nullopt;
  worker.hasSampled = true;
  return std::move(found.mapped());
}

Status WorkerSampler::take(Worker &worker, const Message &message) {
  if (message.kind == MessageKind::failure) {
    auto failure = unpackFailure(message.payload);
    if (!failure.ok())
      return failure.status();
    if (auto pending = finish(worker, failure->id))
      pending->done(Status::error("{}", failure->text));
    return Status::success();
  }
  if (message.kind != MessageKind::samples)
    return Status::error("sent a message of a learner");
  auto samples = unpackSamples(message.payload);
  if (!samples.ok())
    return samples.status();
  auto pending = finish(worker, samples->id);
  if (!pending)
    return Status::success();
  if (samples->samples.size() != pending->request.seeds.size())
    pending->done(Status::error("rollout worker {} sent {} completions for {}",
                                worker.number, samples->samples.size(),
                                pending->request.seeds.size()));
  else
    pending->done(std::move(samples->samples));
  return Status::success();
}

Status WorkerSampler::restart(Worker &worker, const std::string &how) {
  {
    std::lock_guard lock(mutex);
    if (!worker.hasSampled)
      return Status::error("rollout worker {} {} before it had sampled "
                           "anything",
                           worker.number, how);
    worker.hasSampled = false;
  }
  note(fmt::format("rollout worker {} {}; another one samples again what it "
                   "had not sent",
                   worker.number, how));
  StatusOr<StartedWorker> started = startOne(worker.number);
  if (!started.ok())
    return started.status();
  std::lock_guard stagingLock(staging);
  std::lock_guard sendingLock(worker.sending);
  worker.started = started.take();
  std::vector<Message> requests;
  {
    std::lock_guard lock(mutex);
    if (isOver)
      worker.started.connection->shutDown();
    for (const auto &[id, pending] : worker.unfinished)
      requests.push_back(pack(NumberedRequest{id, pending.request}));
  }
  if (version) {
    std::vector<uint32_t> all(staged->state().size());
    std::iota(all.begin(), all.end(), 0);
    (void)sendWeights(worker, all);
  }
  for (const Message &request : requests)
    (void)worker.started.connection->send(request);
  return Status::success();
}

void WorkerSampler::fail(Worker &worker, const Status &status) {
  std::map<uint64_t, Pending> unfinished;
  {
    std::lock_guard lock(mutex);
    worker.failure = status;
    if (!isOver)
      unfinished.swap(worker.unfinished);
  }
  for (auto &[id, pending] : unfinished)
    pending.done(status);
}

void WorkerSampler::stop() {
  {
    std::lock_guard lock(mutex);
    isOver = true;
  }
  for (const auto &worker : workers) {
    std::lock_guard sendingLock(worker->sending);
    worker->started.connection->shutDown();
  }
  for (const auto &worker : workers)
    if (worker->thread.joinable())
      worker->thread.join();
}

} // namespace tessera::rl
