#include "runtime/rl/RolloutWorker.h"
#include "runtime/rl/EngineSampler.h"
#include "runtime/support/Text.h"

#include <algorithm>
#include <mutex>

namespace tessera::rl {
namespace {

class RolloutWorker {
public:
  RolloutWorker(Connection &learner, PagedModel &model, ModelState &state)
      : learner(learner), state(state), sequences(model.shape().buckets.back()),
        sampler(model, state) {}

  Status greet();
  /// Until the learner ends.
  StatusOr<WorkerEnd> run();

private:
  StatusOr<std::optional<WorkerEnd>> take(const Message &message);
  uint64_t mostBytes() const { return allBytes + kMostRequest; }
  Status takeWeights(std::span<const std::byte> payload);
  Status takeRequest(std::span<const std::byte> payload);

  static constexpr uint64_t kMostRequest = uint64_t(1) << 28;

  Connection &learner;
  ModelState &state;
  std::vector<const StateTensor *> parameters;
  const int64_t sequences;
  uint64_t allBytes = 0; ///< of the parameters
  std::mutex mutex;      ///< completions come from the engine's thread
  Status failure = Status::success(); ///< why it cannot sample
  EngineSampler sampler;              ///< last: its thread uses what is above
};

Status RolloutWorker::greet() {
  Hello hello;
  hello.context = sampler.context();
  hello.sequences = sequences;
  for (const StateTensor &tensor : state.state()) {
    if (tensor.role != StateRole::parameter)
      continue;
    if (tensor.quantized)
      return Status::error("'{}' is quantized; compile the model that samples "
                           "without inference.quant",
                           tensor.name);
    parameters.push_back(&tensor);
    hello.parameters.push_back(tensor);
    allBytes += tensor.size;
  }
  (void)learner.send(pack(hello)); // if it has gone, receiving says so
  return Status::success();
}

Status RolloutWorker::takeWeights(std::span<const std::byte> payload) {
  std::span<const std::byte> bytes;
  StatusOr<WeightsHeader> header = unpackWeights(payload, bytes);
  if (!header.ok())
    return header.status();
  uint64_t size = 0;
  for (uint32_t index : header->parameters) {
    if (index >= parameters.size())
      return Status::error("the learner sent weights of another model");
    size += parameters[index]->size;
  }
  if (size != bytes.size())
    return Status::error("the learner sent weights of another model");
  TESSERA_RETURN_IF_ERROR(sampler.updateWeights(header->version, [&] {
    for (uint32_t index : header->parameters) {
      const StateTensor &tensor = *parameters[index];
      TESSERA_RETURN_IF_ERROR(
          state.writeState(tensor, 0, bytes.first(tensor.size)));
      bytes = bytes.subspan(tensor.size);
    }
    return Status::success();
  }));
  (void)learner.send(pack(Updated{header->version}));
  return Status::success();
}

Status RolloutWorker::takeRequest(std::span<const std::byte> payload) {
  StatusOr<NumberedRequest> numbered = unpackRequest(payload);
  if (!numbered.ok())
    return numbered.status();
  sampler.submit(std::move(numbered->request),
                 [this, id = numbered->id](StatusOr<std::vector<Sample>> made) {
                   if (made.ok()) {
                     (void)learner.send(pack(NumberedSamples{id, made.take()}));
                     return;
                   }
                   {
                     std::lock_guard lock(mutex);
                     if (failure.ok())
                       failure = made.status();
                   }
                   (void)learner.send(
                       pack(NumberedFailure{id, made.message()}));
                 });
  return Status::success();
}

StatusOr<std::optional<WorkerEnd>> RolloutWorker::take(const Message &message) {
  std::optional<WorkerEnd> none;
  const auto after = [&](Status status) -> StatusOr<std::optional<WorkerEnd>> {
    if (!status.ok())
      return status;
    return none;
  };
  if (message.kind == MessageKind::weights)
    return after(takeWeights(message.payload));
  if (message.kind == MessageKind::request)
    return after(takeRequest(message.payload));
  if (message.kind != MessageKind::end)
    return Status::error("the learner sent a message of a rollout worker");
  StatusOr<End> end = unpackEnd(message.payload);
  if (!end.ok())
    return end.status();
  if (!end->refusal.empty())
    return Status::error("the learner refuses this worker: {}",
                         oneLine(end->refusal, 300));
  return std::optional(WorkerEnd::over);
}

StatusOr<WorkerEnd> RolloutWorker::run() {
  for (;;) {
    auto message = learner.receive(mostBytes());
    if (!message.ok())
      return message.status();
    if (!*message) {
      std::lock_guard lock(mutex);
      if (!failure.ok())
        return failure;
      return WorkerEnd::lost;
    }
    auto end = take(**message);
    if (!end.ok())
      return end.status();
    if (*end)
      return **end;
  }
}

} // namespace

StatusOr<WorkerEnd> runRolloutWorker(Connection &learner, PagedModel &model,
                                     ModelState &state) {
  RolloutWorker worker(learner, model, state);
  TESSERA_RETURN_IF_ERROR(worker.greet());
  return worker.run();
}

Heartbeat::Heartbeat(Connection &learner, std::chrono::milliseconds interval) {
  thread = std::thread([this, &learner, interval] {
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, interval, [&] { return isOver; })) {
      lock.unlock();
      (void)learner.send({MessageKind::alive, {}});
      lock.lock();
    }
  });
}

Heartbeat::~Heartbeat() {
  {
    std::lock_guard lock(mutex);
    isOver = true;
  }
  ended.notify_all();
  thread.join();
}

} // namespace tessera::rl
