// Ranks of a mesh agree on errors, whichever rank has one and whenever; rank
// 0's program reaches the others; compiling and reading may exceed the timeout.
#include "runtime/generate/InferenceRanks.h"
#include "runtime/support/Text.h"
#include "test/runtime/comm/ThreadRanks.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <gtest/gtest.h>

namespace tessera {
namespace {

using std::chrono::milliseconds;

constexpr int kRanks = 2;

/// No call is made of it.
class NoModel final : public PagedModel {
public:
  const DecoderShape &shape() const override { return sizes; }
  Status prefill(const CachedText &, std::span<const int32_t>,
                 const Wanted &) override {
    return Status::error("a call");
  }
  Status decode(std::span<const CachedText>, std::span<const int32_t>,
                const Wanted &) override {
    return Status::error("a call");
  }
  std::span<const float> logits(int64_t) const override { return {}; }
  int32_t token(int64_t) const override { return 0; }

private:
  DecoderShape sizes;
};

/// A folder of this test; removed at its end.
class InferenceRanksTest : public testing::Test {
protected:
  void SetUp() override {
    folder = std::filesystem::temp_directory_path() /
             fmt::format("inference-ranks-{}", ::getpid());
    std::filesystem::create_directories(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  std::string fileOf(int rank) const {
    return (folder / fmt::format("rank-{}", rank)).string();
  }

  /// What each rank's `body` returned. On success it has begun, and this ends
  /// it.
  static std::array<Status, kRanks>
  run(const std::function<Status(InferenceRanks &)> &body,
      milliseconds timeout = std::chrono::minutes(1)) {
    std::array<Status, kRanks> results;
    comm::Reports reports;
    comm::WorldOptions options;
    options.timeout = timeout;
    options.report = reports.sink();
    comm::runRanks(kRanks, options, [&](comm::World &world) {
      comm::Launch launch;
      launch.rank = world.rank();
      launch.size = launch.localSize = kRanks;
      auto ranks = InferenceRanks::over(world, launch, timeout);
      ASSERT_TRUE(ranks.ok()) << ranks.message();
      Status &result = results[static_cast<size_t>(world.rank())];
      result = body(**ranks);
      NoModel model;
      if (result.ok() && !(*ranks)->leads())
        result = (*ranks)->follow(model);
      if ((*ranks)->mayLeave(result))
        EXPECT_TRUE((*ranks)->leave().ok());
    });
    return results;
  }

  std::filesystem::path folder;
};

Status writeProgram(const std::string &path) {
  std::ofstream(path) << "a program";
  return Status::success();
}

TEST_F(InferenceRanksTest, TheProgramReachesTheOthers) {
  const auto results = run([&](InferenceRanks &ranks) {
    const std::string path = fileOf(ranks.world().rank());
    TESSERA_RETURN_IF_ERROR(
        ranks.broadcastFile([&] { return writeProgram(path); }, path));
    return ranks.begin(Status::success());
  });
  for (const Status &each : results)
    EXPECT_TRUE(each.ok()) << each.message();
  auto text = readTextFile(fileOf(1), 100);
  ASSERT_TRUE(text.ok()) << text.message();
  EXPECT_EQ(*text, "a program");
}

TEST_F(InferenceRanksTest, AnErrorOfRankZeroReachesAll) {
  const auto results = run([&](InferenceRanks &ranks) {
    const Status got = ranks.broadcastFile(
        [] { return Status::error("no such model"); }, fileOf(9));
    EXPECT_TRUE(ranks.hasAgreedError());
    return ranks.begin(got);
  });
  EXPECT_EQ(results[0].message(), "no such model");
  EXPECT_EQ(results[1].message(), "no such model");
}

// Rank 1 does not get to the program, which rank 0 compiles.
TEST_F(InferenceRanksTest, AnErrorBeforeTheProgramNamesItsRank) {
  const auto results = run([&](InferenceRanks &ranks) {
    const std::string path = fileOf(0);
    return ranks.begin(
        ranks.leads()
            ? ranks.broadcastFile([&] { return writeProgram(path); }, path)
            : Status::error("'tokenizer.json' is missing"));
  });
  for (const Status &each : results)
    EXPECT_EQ(each.message(), "rank 1: 'tokenizer.json' is missing");
}

TEST_F(InferenceRanksTest, AnErrorAfterTheProgramNamesItsRank) {
  const auto results = run([&](InferenceRanks &ranks) {
    const std::string path = fileOf(ranks.world().rank());
    TESSERA_RETURN_IF_ERROR(
        ranks.broadcastFile([&] { return writeProgram(path); }, path));
    return ranks.begin(ranks.work([&] {
      return ranks.leads() ? Status::success()
                           : Status::error("'model.safetensors' is damaged");
    }));
  });
  for (const Status &each : results)
    EXPECT_EQ(each.message(), "rank 1: 'model.safetensors' is damaged");
}

TEST_F(InferenceRanksTest, AFileThatCannotBeWrittenNamesItsRank) {
  const auto results = run([&](InferenceRanks &ranks) {
    const std::string path = ranks.leads() ? fileOf(0) : fileOf(7) + "/none";
    return ranks.broadcastFile([&] { return writeProgram(path); }, path);
  });
  for (const Status &each : results)
    EXPECT_EQ(each.message(),
              fmt::format("rank 1: '{}/none' cannot be written", fileOf(7)));
}

// Each rank is slow in turn, then both are.
TEST_F(InferenceRanksTest, CompilingAndReadingMayExceedTheTimeout) {
  const auto slow = [] {
    std::this_thread::sleep_for(milliseconds(1500));
    return Status::success();
  };
  const auto results = run(
      [&](InferenceRanks &ranks) {
        const std::string path = fileOf(ranks.world().rank());
        TESSERA_RETURN_IF_ERROR(ranks.broadcastFile(
            [&] {
              (void)slow();
              return writeProgram(path);
            },
            path));
        TESSERA_RETURN_IF_ERROR(
            ranks.agree(ranks.leads() ? Status::success() : ranks.work(slow)));
        return ranks.begin(ranks.work(slow));
      },
      milliseconds(400));
  for (const Status &each : results)
    EXPECT_TRUE(each.ok()) << each.message();
}

TEST_F(InferenceRanksTest, OnlyAgreedErrorsEndInOrderBeforeTheBeginning) {
  const Status error = Status::error("of this rank alone");
  run([&](InferenceRanks &ranks) {
    EXPECT_FALSE(ranks.mayLeave(error));
    EXPECT_TRUE(ranks.begin(Status::success()).ok());
    EXPECT_EQ(ranks.mayLeave(error), ranks.leads());
    return Status::success();
  });
}

} // namespace
} // namespace tessera
