#include "runtime/rl/RolloutWorker.h"
#include "runtime/rl/EngineSampler.h"

#include <algorithm>
#include <mutex>

namespace tessera::rl {
namespace {

class RolloutWorker {
public:
  RolloutWorker(Connection &learner, PagedModel &model, ModelState &state)
      : learner(learner), state(state), sampler(model, state) {}

  Status greet();
  Status take(const Message &message);
  uint64_t mostBytes() const { return allBytes + kMostRequest; }

private:
  Status takeWeights(std::span<const std::byte> payload);
  Status takeRequest(std::span<const std::byte> payload);
  void answer(const Message &message);

  static constexpr uint64_t kMostRequest = uint64_t(1) << 28;

  Connection &learner;
  ModelState &state;
  std::vector<const StateTensor *> parameters;
  uint64_t allBytes = 0; ///< of the parameters
  std::mutex sending;    ///< completions come from the engine's thread
  EngineSampler sampler; ///< last: its thread uses what is above
};

Status RolloutWorker::greet() {
  Hello hello;
  hello.context = sampler.context();
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
  return learner.send(pack(hello));
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
  return sampler.updateWeights(header->version, [&] {
    for (uint32_t index : header->parameters) {
      const StateTensor &tensor = *parameters[index];
      TESSERA_RETURN_IF_ERROR(
          state.writeState(tensor, 0, bytes.first(tensor.size)));
      bytes = bytes.subspan(tensor.size);
    }
    return Status::success();
  });
}

Status RolloutWorker::takeRequest(std::span<const std::byte> payload) {
  StatusOr<NumberedRequest> numbered = unpackRequest(payload);
  if (!numbered.ok())
    return numbered.status();
  sampler.submit(std::move(numbered->request),
                 [this, id = numbered->id](StatusOr<std::vector<Sample>> made) {
                   if (made.ok())
                     answer(pack(NumberedSamples{id, made.take()}));
                   else
                     answer(pack(NumberedFailure{id, made.message()}));
                 });
  return Status::success();
}

/// If the learner has gone, receiving says so.
void RolloutWorker::answer(const Message &message) {
  std::lock_guard lock(sending);
  (void)learner.send(message);
}

Status RolloutWorker::take(const Message &message) {
  if (message.kind == MessageKind::weights)
    return takeWeights(message.payload);
  if (message.kind == MessageKind::request)
    return takeRequest(message.payload);
  return Status::error("the learner sent a message of a rollout worker");
}

} // namespace

Status runRolloutWorker(Connection &learner, PagedModel &model,
                        ModelState &state) {
  RolloutWorker worker(learner, model, state);
  TESSERA_RETURN_IF_ERROR(worker.greet());
  for (;;) {
    auto message = learner.receive(worker.mostBytes());
    if (!message.ok())
      return message.status();
    if (!*message)
      return Status::success();
    TESSERA_RETURN_IF_ERROR(worker.take(**message));
  }
}

} // namespace tessera::rl
