#include "runtime/rl/WorkerSampler.h"
#include "runtime/support/Text.h"

#include <algorithm>

namespace tessera::rl {
namespace {

constexpr uint64_t kMostHello = uint64_t(1) << 24;
/// How often a thread that waits asks whether to stop.
constexpr std::chrono::milliseconds kSlice{100};
/// For workers on other machines to read that the run is over.
constexpr std::chrono::seconds kFarewell{5};

/// What a worker has otherwise than the first one, for a message that begins
/// with its name; empty: nothing.
std::string differenceOf(const Hello &hello, const HostWeights &weights,
                         int64_t context) {
  const std::vector<StateTensor> &ours = weights.state();
  if (hello.context != context)
    return fmt::format("samples sequences of up to {} tokens, and not of {}",
                       hello.context, context);
  if (hello.parameters.size() != ours.size())
    return fmt::format("samples with {} parameters, and not with {}",
                       hello.parameters.size(), ours.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const StateTensor &a = hello.parameters[i], &b = ours[i];
    if (a.name != b.name || a.type != b.type || a.shape != b.shape)
      return fmt::format("samples with {} as {} [{}], and not with {} as {} "
                         "[{}]",
                         quote(a.name), safetensorsName(a.type),
                         fmt::join(a.shape, ", "), quote(b.name),
                         safetensorsName(b.type), fmt::join(b.shape, ", "));
  }
  return {};
}

/// Whether all tensors together have at most that many bytes.
bool fits(const std::vector<StateTensor> &tensors, uint64_t most) {
  uint64_t sum = 0;
  for (const StateTensor &tensor : tensors)
    if (__builtin_add_overflow(sum, tensor.size, &sum) || sum > most)
      return false;
  return true;
}

StatusOr<Hello> receiveHello(Connection &connection) {
  for (;;) {
    auto message = connection.receive(kMostHello);
    if (!message.ok())
      return message.status();
    if (!*message)
      return Status::error("ended before it was ready");
    if ((*message)->kind == MessageKind::alive)
      continue;
    if ((*message)->kind != MessageKind::hello)
      return Status::error("did not say what it samples with");
    return unpackHello((*message)->payload);
  }
}

} // namespace

WorkerSampler::~WorkerSampler() { stop(); }

//===--- workers come -----------------------------------------------------===//

/// A worker that has said what it samples with.
StatusOr<StartedWorker> WorkerSampler::startOne(Worker &worker) {
  StatusOr<StartedWorker> started = startWorker();
  if (!started.ok())
    return Status::error("{}: {}", worker.name, started.message());
  if (Status met = meet(worker, *started->connection); !met.ok())
    return Status::error("{} {}", worker.name,
                         started->process.isRunning()
                             ? started->process.ending()
                             : met.message());
  return started;
}

/// Takes what a worker says that it samples with.
Status WorkerSampler::meet(Worker &worker, Connection &connection) {
  StatusOr<Hello> hello = receiveHello(connection);
  if (!hello.ok())
    return hello.status();
  std::string difference;
  {
    std::lock_guard lock(mutex);
    worker.sequences = hello->sequences;
    if (!fits(hello->parameters, mostWeights)) {
      difference = "samples with more weights than the model has";
    } else if (staged) {
      difference = differenceOf(*hello, *staged, modelContext);
    } else {
      modelContext = hello->context;
      staged = std::make_unique<HostWeights>(std::move(hello->parameters));
    }
  }
  if (difference.empty())
    return Status::success();
  (void)connection.send(pack(End{difference}));
  connection.finishSending();
  return Status::error("{}", difference);
}

Status WorkerSampler::start(int count, Start given) {
  startWorker = std::move(given);
  for (int i = 1; i <= count; ++i) {
    auto worker = std::make_unique<Worker>();
    worker->name = fmt::format("rollout worker {}", i);
    worker->isOurs = true;
    auto started = startOne(*worker);
    if (!started.ok())
      return started.status();
    worker->started = started.take();
    run(std::move(worker));
  }
  return Status::success();
}

StatusOr<comm::TcpAddress> WorkerSampler::listen(ListenOptions options) {
  auto opened = WorkerListener::open(
      std::move(options), [this](std::unique_ptr<Connection> connection,
                                 const std::string &address) {
        add(std::move(connection), fmt::format("rollout worker {}", address));
      });
  if (!opened.ok())
    return opened.status();
  listener = opened.take();
  return listener->address();
}

void WorkerSampler::add(std::unique_ptr<Connection> connection,
                        std::string name) {
  forgetGone();
  auto worker = std::make_unique<Worker>();
  worker->name = std::move(name);
  worker->started.connection = std::move(connection);
  run(std::move(worker));
}

void WorkerSampler::run(std::unique_ptr<Worker> given) {
  std::lock_guard lock(mutex);
  if (isOver)
    return;
  Worker &worker = *workers.emplace_back(std::move(given));
  worker.sender = std::thread([this, &worker] { send(worker); });
  worker.receiver = std::thread(
      [this, &worker] { worker.isOurs ? serve(worker) : serveGuest(worker); });
}

void WorkerSampler::forgetGone() {
  std::vector<std::unique_ptr<Worker>> gone;
  {
    std::lock_guard lock(mutex);
    for (std::unique_ptr<Worker> &worker : workers)
      if (worker->isGone)
        gone.push_back(std::move(worker));
    std::erase(workers, nullptr);
  }
  for (const auto &worker : gone) {
    worker->sender.join();
    worker->receiver.join();
  }
}

StatusOr<bool> WorkerSampler::awaitWorker(const std::function<bool()> &stop,
                                          int count) {
  Lock lock(mutex);
  while (!changed.wait_for(lock, kSlice, [&] {
    return !failure.ok() ||
           std::ranges::count_if(workers, [](const auto &worker) {
             return worker->isReady;
           }) >= count;
  }))
    if (stop())
      return false;
  if (!failure.ok())
    return failure;
  return true;
}

//===--- to the workers ---------------------------------------------------===//

void WorkerSampler::send(Worker &worker) {
  Lock lock(mutex);
  for (;;) {
    changed.wait(lock,
                 [&] { return worker.isGone || !worker.outgoing.empty(); });
    if (worker.isGone)
      return;
    const Outgoing next = std::move(worker.outgoing.front());
    worker.outgoing.pop_front();
    worker.isSending = true;
    lock.unlock();
    std::vector<std::span<const std::byte>> bytes;
    if (next.weights)
      for (uint32_t index : *next.weights)
        bytes.push_back(staged->bytesOf(index));
    Connection &connection = *worker.started.connection;
    if (!connection.send(next.message, bytes).ok())
      connection.shutDown(); // its receiver notices
    else if (next.message.kind == MessageKind::end)
      connection.finishSending();
    lock.lock();
    worker.isSending = false;
    worker.unsentWeights -= next.weights.has_value();
    changed.notify_all();
  }
}

void WorkerSampler::queueWeights(Worker &worker,
                                 std::vector<uint32_t> parameters) {
  Message message = pack(WeightsHeader{*version, parameters});
  worker.outgoing.push_back({std::move(message), std::move(parameters)});
  ++worker.unsentWeights;
}

bool WorkerSampler::isAnyUnsent() const {
  return std::ranges::any_of(
      workers, [](const auto &worker) { return worker->unsentWeights > 0; });
}

Status WorkerSampler::updateWeights(uint32_t step,
                                    const std::function<Status()> &copy) {
  Update update{step, comm::SocketClock::now(), {}};
  {
    Lock lock(mutex);
    changed.wait(lock, [&] { return !isAnyUnsent(); });
    isStaging = true;
  }
  const Status copied = copy();
  std::lock_guard lock(mutex);
  isStaging = false;
  changed.notify_all();
  TESSERA_RETURN_IF_ERROR(copied);
  version = step;
  const std::vector<uint32_t> written = staged->takeWritten();
  for (const auto &worker : workers)
    if (worker->isReady) {
      queueWeights(*worker, written);
      update.missing.insert(worker.get());
    }
  if (!update.missing.empty())
    updates.push_back(std::move(update));
  return Status::success();
}

/// The worker has the weights of version `newest`, so it needs no older ones.
void WorkerSampler::takeUpdated(const Worker &worker, uint32_t newest) {
  for (Update &update : updates)
    if (update.version <= newest)
      update.missing.erase(&worker);
  for (; !updates.empty() && updates.front().missing.empty();
       updates.pop_front())
    published = std::chrono::duration<double>(comm::SocketClock::now() -
                                              updates.front().begin)
                    .count();
}

double WorkerSampler::publishSeconds() const {
  std::lock_guard lock(mutex);
  return published;
}

void WorkerSampler::submit(SampleRequest request, Done done) {
  Lock lock(mutex);
  if (isOver)
    return;
  if (failure.ok()) {
    queue.emplace(nextId++, Pending{std::move(request), std::move(done)});
    return dispatch();
  }
  const Status why = failure;
  lock.unlock();
  done(why);
}

/// Gives what is queued to the workers that have the least to do for their
/// size.
void WorkerSampler::dispatch() {
  const auto load = [](const Worker &worker) {
    return double(worker.inFlight) / double(worker.sequences);
  };
  constexpr double kMostLoad = 2;
  while (!queue.empty()) {
    Worker *least = nullptr;
    for (const auto &worker : workers)
      if (worker->isReady && load(*worker) < kMostLoad &&
          (!least || load(*worker) < load(*least)))
        least = worker.get();
    if (!least)
      break;
    auto next = queue.extract(queue.begin());
    const SampleRequest &request = next.mapped().request;
    least->inFlight += int64_t(request.seeds.size());
    least->outgoing.push_back({pack(NumberedRequest{next.key(), request})});
    least->unfinished.insert(std::move(next));
  }
  changed.notify_all();
}

void WorkerSampler::stop() {
  listener.reset();
  {
    Lock lock(mutex);
    isOver = true;
    queue.clear();
    for (const auto &worker : workers) {
      worker->outgoing.clear();
      if (!worker->isOurs)
        worker->outgoing.push_back({pack(End{})});
      else if (worker->started.connection)
        worker->started.connection->shutDown();
    }
    changed.notify_all();
    changed.wait_for(lock, kFarewell, [&] {
      // Also those that are not ready yet.
      return std::ranges::none_of(workers, [](const auto &worker) {
        return !worker->isOurs && !worker->isGone &&
               (worker->isReady || worker->isSending ||
                !worker->outgoing.empty());
      });
    });
    for (const auto &worker : workers)
      worker->started.connection->shutDown();
  }
  for (const auto &worker : workers) {
    worker->receiver.join();
    worker->sender.join();
  }
  workers.clear();
}

} // namespace tessera::rl
