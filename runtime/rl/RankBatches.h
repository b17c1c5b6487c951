// Batches of completions for a learner on several ranks. Rank 0 samples and
// makes them (LeaderBatches); the others get them, and take part when it reads
// the model's weights (FollowerBatches).
#pragma once
#include "runtime/comm/Channel.h"
#include "runtime/train/BatchSource.h"

#include <chrono>
#include <memory>
#include <mutex>

namespace tessera::rl {

/// Rank 0's. While it waits for completions the others get heartbeats.
class LeaderBatches final : public BatchSource {
public:
  /// `own` and the channel, which is of all ranks and nothing else uses, must
  /// outlive this. `interval`: between heartbeats. `stop`: whether this rank is
  /// to stop; all ranks ask each other between steps.
  LeaderBatches(BatchSource &own, comm::Channel &everybody,
                std::chrono::milliseconds interval, std::function<bool()> stop)
      : own(own), everybody(everybody), interval(interval),
        stop(std::move(stop)) {}

  std::string tokenizerFile() const override { return own.tokenizerFile(); }
  std::string templateFolder() const override { return own.templateFolder(); }
  std::vector<std::string> describe() const override { return own.describe(); }
  Status begin(TrainModel &model, const TrainPosition &position) override;
  StatusOr<std::optional<TokenBatch>>
  next(const std::function<bool()> &) override;
  uint64_t samples() const override { return own.samples(); }
  Status stepped(uint64_t step, MetricsRecord &record) override;
  /// After an error of this rank: whether the others know that there is one.
  /// They do if `own` failed. If nothing has begun, this sends it to them.
  bool settle();

private:
  Status lead(const std::function<Status()> &task);

  BatchSource &own;
  comm::Channel &everybody;
  const std::chrono::milliseconds interval;
  const std::function<bool()> stop;
  std::mutex mutex; ///< guards the channel, with the read that follows
  std::unique_ptr<TrainModel> shared; ///< the model, as `own` has it
  bool hasNext = false;               ///< `own` had a batch
  bool failed = false;
};

/// The other ranks'. It writes nothing into the run's directory.
class FollowerBatches final : public BatchSource {
public:
  explicit FollowerBatches(comm::Channel &everybody) : everybody(everybody) {}

  std::string tokenizerFile() const override { return {}; }
  std::string templateFolder() const override { return {}; }
  std::vector<std::string> describe() const override { return {}; }
  Status begin(TrainModel &model, const TrainPosition &) override;
  StatusOr<std::optional<TokenBatch>>
  next(const std::function<bool()> &) override;
  uint64_t samples() const override { return moved; }
  Status stepped(uint64_t, MetricsRecord &) override;
  /// After an error of this rank: whether rank 0 has one, too. If nothing has
  /// begun it waits for what rank 0 does.
  bool settle();

private:
  Status follow();
  Status readPart(int64_t tensor, int64_t offset, int64_t size);
  Status findValues();

  comm::Channel &everybody;
  TrainModel *model = nullptr;
  TokenBuffers batch, evaluated;
  std::vector<std::byte> part; ///< this rank's, of a tensor
  bool hasBatch = false;       ///< rank 0 has one
  uint64_t moved = 0;          ///< as samples() of rank 0
  bool failed = false;
};

} // namespace tessera::rl
