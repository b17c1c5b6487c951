// Batches of rank 0 reach the others, which read the model's weights when it
// does, wait for longer than the timeout, and learn that it failed.
#include "runtime/rl/RankBatches.h"
#include "test/runtime/comm/ThreadRanks.h"
#include "test/runtime/train/FakeTrainModel.h"

#include <array>
#include <atomic>

#include <gtest/gtest.h>

namespace tessera::rl {
namespace {

using std::chrono::milliseconds;

constexpr int kRanks = 3;

/// Counts reads, which all ranks have to make together.
class CountingModel final : public testing::FakeTrainModel {
public:
  CountingModel() {
    info.documents.samples = true;
    EXPECT_TRUE(initialize(7).ok());
  }
  Status readState(const StateTensor &tensor, uint64_t offset,
                   std::span<std::byte> out) override {
    reads.push_back(fmt::format("{} {} {}", tensor.name, offset, out.size()));
    return FakeTrainModel::readState(tensor, offset, out);
  }
  /// Of each rank the same, as outputs of programs are.
  StatusOr<std::span<const float>> values(const TokenBatch &batch) override {
    reads.push_back(fmt::format("values {}", batch.tokens.back()));
    found.assign(batch.tokens.begin(), batch.tokens.end());
    return std::span<const float>(found);
  }
  std::vector<std::string> reads;
  std::vector<float> found;
};

/// Two batches of numbers that say which, then none.
class Numbers final : public BatchSource {
public:
  std::string tokenizerFile() const override { return "tokenizer.json"; }
  std::string templateFolder() const override { return "template"; }
  std::vector<std::string> describe() const override { return {"numbers"}; }
  Status begin(TrainModel &given, const TrainPosition &) override {
    model = &given;
    buffers = TokenBuffers(std::size_t(2 * 3 * 8), given.facts().documents);
    return readWeights();
  }
  StatusOr<std::optional<TokenBatch>>
  next(const std::function<bool()> &stop) override {
    std::this_thread::sleep_for(pause);
    if (fails)
      return Status::error("the reward program ended");
    if (stop())
      return std::optional<TokenBatch>();
    std::ranges::fill(buffers.tokens, ++made);
    auto values = model->values(buffers.view().part(0, 24));
    if (!values.ok())
      return values.status();
    EXPECT_EQ(std::vector(values->begin(), values->end()),
              std::vector<float>(24, float(made)));
    std::ranges::fill(buffers.advantages, float(made) / 2);
    return std::optional(buffers.view());
  }
  uint64_t samples() const override { return 5; }
  Status stepped(uint64_t, MetricsRecord &record) override {
    record.loss = made;
    return readWeights();
  }

  milliseconds pause{0};
  bool fails = false;

private:
  /// From another thread, as an engine does.
  Status readWeights() {
    Status status;
    std::thread([&] {
      std::array<std::byte, 12> bytes;
      status = model->readState(model->state()[0], 8, bytes);
    }).join();
    return status;
  }

  TrainModel *model = nullptr;
  TokenBuffers buffers;
  int made = 0;
};

struct OfRank {
  CountingModel model;
  Status status;
  std::vector<int32_t> tokens;
  std::vector<float> advantages;
  std::vector<uint64_t> moved;
  bool isSettled = false; ///< all know of its error
};

/// Asks a source as the training loop does.
Status learn(BatchSource &source, OfRank &rank, bool begins) {
  if (!begins)
    return Status::error("the run is locked");
  TESSERA_RETURN_IF_ERROR(source.begin(rank.model, {}));
  for (uint64_t step = 1;; ++step) {
    auto batch = source.next([] { return false; });
    if (!batch.ok())
      return batch.status();
    if (!*batch)
      return Status::success();
    rank.tokens.push_back((*batch)->tokens.back());
    rank.advantages.push_back((*batch)->advantages.back());
    rank.moved.push_back(source.samples());
    MetricsRecord record;
    TESSERA_RETURN_IF_ERROR(source.stepped(step, record));
  }
}

std::array<OfRank, kRanks> run(Numbers &numbers, milliseconds timeout,
                               int stopAfter = 2, int thatBegin = kRanks) {
  std::array<OfRank, kRanks> ranks;
  comm::Reports reports;
  comm::WorldOptions options;
  options.timeout = timeout;
  options.report = reports.sink();
  comm::runRanks(kRanks, options, [&](comm::World &world) {
    OfRank &own = ranks[std::size_t(world.rank())];
    auto channel = world.open(3, comm::Group::world(kRanks));
    ASSERT_TRUE(channel.ok()) << channel.message();
    // The last ones, of which rank 0 is none unless all do.
    const bool begins = world.rank() >= kRanks - thatBegin;
    if (world.rank() == 0) {
      LeaderBatches leader(numbers, **channel, timeout / 4,
                           [&] { return int(own.tokens.size()) == stopAfter; });
      EXPECT_EQ(leader.tokenizerFile(), "tokenizer.json");
      own.status = learn(leader, own, begins);
      own.isSettled = !own.status.ok() && leader.settle();
    } else {
      FollowerBatches follower(**channel);
      EXPECT_EQ(follower.tokenizerFile(), "");
      own.status = learn(follower, own, begins);
      own.isSettled = !own.status.ok() && follower.settle();
    }
    EXPECT_TRUE(world.leave().ok());
  });
  return ranks;
}

TEST(RankBatches, AllRanksHaveTheBatchesAndReadTogether) {
  Numbers numbers;
  for (const OfRank &rank : run(numbers, std::chrono::minutes(1))) {
    EXPECT_TRUE(rank.status.ok()) << rank.status.message();
    EXPECT_EQ(rank.tokens, (std::vector<int32_t>{1, 2}));
    EXPECT_EQ(rank.advantages, (std::vector<float>{0.5f, 1.0f}));
    EXPECT_EQ(rank.moved, (std::vector<uint64_t>{5, 5}));
    // When it begins, in each step and after it.
    const std::string read = "model.weight 8 12";
    EXPECT_EQ(rank.model.reads,
              (std::vector{read, std::string("values 1"), read,
                           std::string("values 2"), read}));
  }
}

TEST(RankBatches, RankZeroMayTakeLongerThanTheTimeout) {
  Numbers numbers;
  numbers.pause = milliseconds(2500);
  for (const OfRank &rank : run(numbers, milliseconds(1000), 1)) {
    EXPECT_TRUE(rank.status.ok()) << rank.status.message();
    EXPECT_EQ(rank.tokens, (std::vector<int32_t>{1}));
  }
}

TEST(RankBatches, AllKnowThatTheSourceFailed) {
  Numbers numbers;
  numbers.fails = true;
  const auto ranks = run(numbers, std::chrono::minutes(1));
  EXPECT_EQ(ranks[0].status.message(), "the reward program ended");
  for (const OfRank &rank : ranks) {
    EXPECT_FALSE(rank.status.ok());
    EXPECT_TRUE(rank.isSettled);
  }
}

// Rank 0 alone, ranks 0 and 1, all.
TEST(RankBatches, AllKnowOfAnErrorBeforeAnythingBegins) {
  for (const int thatBegin : {2, 1, 0}) {
    Numbers numbers;
    const auto ranks =
        run(numbers, std::chrono::minutes(1), /*stopAfter=*/2, thatBegin);
    EXPECT_EQ(ranks[0].status.message(), "the run is locked");
    for (const OfRank &rank : ranks)
      EXPECT_TRUE(rank.isSettled);
  }
}

} // namespace
} // namespace tessera::rl
