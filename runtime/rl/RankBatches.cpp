#include "runtime/rl/RankBatches.h"
#include "runtime/comm/Heartbeats.h"

#include <map>

namespace tessera::rl {
namespace {

using comm::Collective;
using comm::ElementType;

/// What rank 0 sends, as i64.
struct Message {
  enum Kind : int64_t { heartbeat, read, values, done, failed };
  int64_t kind = heartbeat;
  /// read: the number of the tensor, and which bytes. values: none, a batch of
  /// eval_step follows. done: whether there is a batch, and samples(), in the
  /// first two.
  int64_t first = 0, second = 0, third = 0;
};

Status broadcast(comm::Channel &everybody, Message &message) {
  return everybody.run(Collective::broadcast(
      ElementType::i64, &message, sizeof(Message) / sizeof(int64_t), 0));
}

Status malformed() {
  return Status::error("rank 0 sent what this rank cannot read; start the same "
                       "version on all ranks");
}

template <typename Number> constexpr ElementType typeOf() {
  return std::is_same_v<std::remove_const_t<Number>, float> ? ElementType::f32
                                                            : ElementType::i32;
}

/// All that a batch has. Its sizes follow from the model, which all ranks have.
template <typename Number>
Status broadcastBatch(comm::Channel &everybody,
                      const TokenBatchOf<Number> &batch) {
  Status status;
  const auto send = [&]<typename Each>(std::span<Each> numbers) {
    if (status.ok() && !numbers.empty())
      // Rank 0 only reads.
      status = everybody.run(Collective::broadcast(
          typeOf<Each>(),
          const_cast<std::remove_const_t<Each> *>(numbers.data()),
          numbers.size(), 0));
  };
  const auto &[tokens, targets, starts, numbers, reference, behavior,
               advantages, labels, teacherTokens, teacherLogProbs, rewards,
               values] = batch;
  for (const auto &each :
       {tokens, targets, starts, numbers, labels, teacherTokens})
    send(each);
  for (const auto &each :
       {reference, behavior, advantages, teacherLogProbs, rewards, values})
    send(each);
  return status;
}

/// The model of all ranks, each of which has parts of its tensors. `announce`
/// has the others do what this one does then, which is `call`.
class SharedCalls final : public TrainModel {
public:
  using Announce =
      std::function<Status(Message, const std::function<Status()> &call)>;
  SharedCalls(TrainModel &model, comm::Channel &everybody, Announce announce)
      : model(model), everybody(everybody), announce(std::move(announce)) {
    for (const StateTensor &tensor : model.state())
      numbers.emplace(tensor.name, int64_t(numbers.size()));
  }
  const ModelFacts &facts() const override { return model.facts(); }
  const std::vector<StateTensor> &state() const override {
    return model.state();
  }
  Status readState(const StateTensor &tensor, uint64_t offset,
                   std::span<std::byte> out) override {
    return announce({Message::read, numbers.at(tensor.name), int64_t(offset),
                     int64_t(out.size())},
                    [&] { return model.readState(tensor, offset, out); });
  }
  StatusOr<std::span<const float>> values(const TokenBatch &batch) override {
    std::span<const float> found;
    TESSERA_RETURN_IF_ERROR(announce({Message::values}, [&] {
      TESSERA_RETURN_IF_ERROR(broadcastBatch(everybody, batch));
      auto values = model.values(batch);
      if (values.ok())
        found = *values;
      return values.status();
    }));
    return found;
  }
  Status writeState(const StateTensor &, uint64_t,
                    std::span<const std::byte>) override {
    return refused();
  }
  Status initialize(int64_t) override { return refused(); }
  StatusOr<StepMetrics> trainStep(const TokenBatch &, int64_t) override {
    return refused();
  }
  bool canEvaluate() const override { return false; }
  StatusOr<EvalSum> evalStep(const TokenBatch &) override { return refused(); }
  int64_t contextLength() const override { return 0; }
  StatusOr<std::span<const float>> logits(std::span<const int32_t>) override {
    return refused();
  }

private:
  static Status refused() {
    return Status::error("a source of batches reads weights and values of a "
                         "learner on several ranks, and nothing else");
  }

  TrainModel &model;
  comm::Channel &everybody;
  const Announce announce;
  std::map<std::string_view, int64_t> numbers; ///< of tensors, by name
};

} // namespace

//===--- rank 0 -----------------------------------------------------------===//

/// Calls `task`, whose reads the other ranks follow, and lets them go on.
Status LeaderBatches::lead(const std::function<Status()> &task) {
  comm::Heartbeats heartbeats(interval, [this] {
    std::lock_guard lock(mutex);
    Message message;
    return broadcast(everybody, message);
  });
  const Status status = task();
  // An error of these has ended the world.
  TESSERA_RETURN_IF_ERROR(heartbeats.stop());
  failed = !status.ok();
  Message message{failed ? Message::failed : Message::done, hasNext,
                  int64_t(own.samples())};
  const Status sent = broadcast(everybody, message);
  return failed ? status : sent;
}

Status LeaderBatches::begin(TrainModel &model, const TrainPosition &position) {
  shared = std::make_unique<SharedCalls>(
      model, everybody,
      [this](Message message, const std::function<Status()> &call) {
        std::lock_guard lock(mutex);
        TESSERA_RETURN_IF_ERROR(broadcast(everybody, message));
        return call();
      });
  return lead([&] { return own.begin(*shared, position); });
}

StatusOr<std::optional<TokenBatch>>
LeaderBatches::next(const std::function<bool()> &) {
  std::optional<TokenBatch> batch;
  TESSERA_RETURN_IF_ERROR(lead([&] {
    StatusOr<std::optional<TokenBatch>> found = own.next(stop);
    if (found.ok())
      batch = *found;
    hasNext = batch.has_value();
    return found.status();
  }));
  if (batch)
    TESSERA_RETURN_IF_ERROR(broadcastBatch(everybody, *batch));
  return batch;
}

Status LeaderBatches::stepped(uint64_t step, MetricsRecord &record) {
  return lead([&] { return own.stepped(step, record); });
}

bool LeaderBatches::settle() {
  if (shared || failed)
    return failed;
  Message message{Message::failed};
  failed = broadcast(everybody, message).ok();
  return failed;
}

//===--- the others -------------------------------------------------------===//

/// Does what rank 0's task asks for, until it is done.
Status FollowerBatches::follow() {
  while (true) {
    Message message;
    TESSERA_RETURN_IF_ERROR(broadcast(everybody, message));
    switch (message.kind) {
    case Message::heartbeat:
      continue;
    case Message::done:
      hasBatch = message.first != 0;
      moved = uint64_t(message.second);
      return Status::success();
    case Message::failed:
      failed = true;
      return Status::error("rank 0 has no batch");
    case Message::read:
      TESSERA_RETURN_IF_ERROR(
          readPart(message.first, message.second, message.third));
      continue;
    case Message::values:
      TESSERA_RETURN_IF_ERROR(findValues());
      continue;
    default:
      return malformed();
    }
  }
}

Status FollowerBatches::readPart(int64_t number, int64_t offset, int64_t size) {
  const std::vector<StateTensor> &tensors = model->state();
  if (number < 0 || number >= int64_t(tensors.size()))
    return malformed();
  const StateTensor &tensor = tensors[std::size_t(number)];
  if (offset < 0 || size < 0 || uint64_t(offset) > tensor.size ||
      uint64_t(size) > tensor.size - uint64_t(offset))
    return malformed();
  part.resize(std::size_t(size));
  return model->readState(tensor, uint64_t(offset), part);
}

/// As rank 0, which uses them.
Status FollowerBatches::findValues() {
  const ModelFacts &facts = model->facts();
  const auto tokens =
      std::size_t(facts.evalBatches * facts.evalRows * facts.sequence);
  if (evaluated.tokens.size() != tokens)
    evaluated = TokenBuffers(tokens, facts.documents);
  TESSERA_RETURN_IF_ERROR(broadcastBatch(everybody, evaluated.out()));
  return model->values(evaluated.view()).status();
}

Status FollowerBatches::begin(TrainModel &given, const TrainPosition &) {
  model = &given;
  const ModelFacts &facts = given.facts();
  batch = TokenBuffers(
      std::size_t(facts.microbatches * facts.rows * facts.sequence),
      facts.documents);
  return follow();
}

StatusOr<std::optional<TokenBatch>>
FollowerBatches::next(const std::function<bool()> &) {
  TESSERA_RETURN_IF_ERROR(follow());
  if (!hasBatch)
    return std::optional<TokenBatch>();
  TESSERA_RETURN_IF_ERROR(broadcastBatch(everybody, batch.out()));
  return std::optional(batch.view());
}

bool FollowerBatches::settle() {
  Message message;
  while (!model && !failed && message.kind == Message::heartbeat) {
    if (!broadcast(everybody, message).ok())
      return false;
    failed = message.kind == Message::failed;
  }
  return failed;
}

Status FollowerBatches::stepped(uint64_t, MetricsRecord &) { return follow(); }

} // namespace tessera::rl
