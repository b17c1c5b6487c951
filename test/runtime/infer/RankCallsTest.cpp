// Rank 0's calls arrive at the followers as they were made, whatever their
// length; what it refuses does not, and silence does not end the world.
// Malformed messages are refused.
#include "runtime/infer/RankCalls.h"
#include "test/runtime/comm/ThreadRanks.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

using std::chrono::milliseconds;

/// Writes down its calls. Refuses tokens below zero. Fails in decode() if it is
/// told to.
class Recorder final : public PagedModel {
public:
  explicit Recorder(std::vector<std::string> &lines, bool fails = false)
      : lines(lines), fails(fails) {}
  const DecoderShape &shape() const override { return sizes; }
  Status checkPrefill(const CachedText &, std::span<const int32_t> tokens,
                      const Wanted &) const override {
    return tokens.front() < 0 ? Status::error("a token below zero")
                              : Status::success();
  }
  Status prefill(const CachedText &text, std::span<const int32_t> tokens,
                 const Wanted &) override {
    return add("prefill", std::span(&text, 1), tokens);
  }
  Status decode(std::span<const CachedText> sequences,
                std::span<const int32_t> tokens, const Wanted &) override {
    return fails ? Status::error("no memory")
                 : add("decode", sequences, tokens);
  }
  std::span<const float> logits(int64_t) const override { return {}; }
  int32_t token(int64_t) const override { return 7; }

private:
  Status add(const char *what, std::span<const CachedText> sequences,
             std::span<const int32_t> tokens) {
    std::string line = what;
    for (const CachedText &each : sequences)
      line += fmt::format(" [{}] {} {} {}", fmt::join(each.pages, ","),
                          each.length, each.adapter, each.state);
    lines.push_back(line + fmt::format(": {}", fmt::join(tokens, ",")));
    return Status::success();
  }

  std::vector<std::string> &lines;
  const bool fails;
  DecoderShape sizes;
};

/// What each of `ranks` recorded while rank 0 did `lead`.
std::vector<std::vector<std::string>>
record(int ranks, const comm::WorldOptions &options, milliseconds interval,
       const std::function<void(PagedModel &)> &lead) {
  std::vector<std::vector<std::string>> lines(static_cast<size_t>(ranks));
  comm::runRanks(comm::ThreadTransport::create(ranks, {}), options,
                 [&](comm::World &world) {
                   auto channel = world.open(0, comm::Group::world(ranks));
                   ASSERT_TRUE(channel.ok());
                   auto &own = lines[static_cast<size_t>(world.rank())];
                   if (world.rank() == 0) {
                     CallBroadcaster calls(**channel, interval);
                     ShardedModel model(std::make_unique<Recorder>(own), calls);
                     lead(model);
                     EXPECT_TRUE(calls.end().ok());
                   } else {
                     Recorder model(own);
                     Status status = followCalls(model, **channel);
                     EXPECT_TRUE(status.ok()) << status.message();
                   }
                   EXPECT_TRUE(world.leave().ok());
                 });
  return lines;
}

TEST(RankCalls, ArriveAsTheyWereMade) {
  const std::vector<int32_t> few = {3, 1}, many(700, 9), none;
  auto lines = record(3, {}, std::chrono::minutes(1), [&](PagedModel &model) {
    EXPECT_TRUE(model.prefill({few, 64, -1}, many, {}).ok());
    const CachedText sequences[] = {
        {few, 5, 1, 2}, {none, 0, -1}, {many, 9, 0}};
    const int32_t tokens[] = {4, 5, 6};
    EXPECT_TRUE(model.decode(sequences, tokens, {}).ok());
    EXPECT_TRUE(model
                    .decode(std::span(sequences).first(1),
                            std::span(tokens).first(1), {})
                    .ok());
    EXPECT_EQ(model.token(0), 7);
  });
  ASSERT_EQ(lines[0].size(), 3U);
  EXPECT_EQ(lines[0].back(), "decode [3,1] 5 1 2: 4");
  EXPECT_EQ(lines[1], lines[0]);
  EXPECT_EQ(lines[2], lines[0]);
}

TEST(RankCalls, RefusedCallsAreNotSent) {
  auto lines = record(2, {}, std::chrono::minutes(1), [&](PagedModel &model) {
    const int32_t wrong[] = {-1};
    EXPECT_FALSE(model.prefill({}, wrong, {}).ok());
  });
  EXPECT_TRUE(lines[0].empty() && lines[1].empty());
}

TEST(RankCalls, RanksThatWaitForCallsAreNotEnded) {
  comm::WorldOptions options;
  options.timeout = milliseconds(200);
  auto lines = record(2, options, milliseconds(50), [&](PagedModel &model) {
    std::this_thread::sleep_for(milliseconds(900));
    const int32_t token[] = {2};
    EXPECT_TRUE(model.prefill({}, token, {}).ok());
  });
  EXPECT_EQ(lines[1], std::vector<std::string>{"prefill [] 0 -1 -1: 2"});
}

TEST(RankCalls, AfterTheEndAreErrors) {
  std::vector<std::string> lines;
  comm::runRanks(2, {}, [&](comm::World &world) {
    auto channel = world.open(0, comm::Group::world(2));
    ASSERT_TRUE(channel.ok());
    std::vector<std::string> others;
    if (world.rank() == 0) {
      CallBroadcaster calls(**channel, std::chrono::minutes(1));
      ShardedModel model(std::make_unique<Recorder>(lines), calls);
      EXPECT_TRUE(calls.end().ok());
      const int32_t token[] = {2};
      const CachedText sequence;
      EXPECT_EQ(model.prefill(sequence, token, {}).message(),
                "rank 0 has ended its calls on this mesh");
      EXPECT_EQ(model.decode(std::span(&sequence, 1), token, {}).message(),
                "rank 0 has ended its calls on this mesh");
      EXPECT_TRUE(calls.end().ok());
    } else {
      Recorder model(others);
      EXPECT_TRUE(followCalls(model, **channel).ok());
    }
    EXPECT_TRUE(world.leave().ok());
  });
  EXPECT_TRUE(lines.empty());
}

// What rank 1 says of a first message of these words.
std::string answerTo(std::vector<int32_t> words) {
  std::string answer;
  words.resize(CallBroadcaster::kFirstWords);
  comm::runRanks(2, {}, [&](comm::World &world) {
    auto channel = world.open(0, comm::Group::world(2));
    ASSERT_TRUE(channel.ok());
    if (world.rank() == 0) {
      EXPECT_TRUE(
          (*channel)
              ->run(comm::Collective::broadcast(comm::ElementType::i32,
                                                words.data(), words.size(), 0))
              .ok());
    } else {
      std::vector<std::string> lines;
      Recorder model(lines);
      answer = followCalls(model, **channel).message();
      EXPECT_TRUE(lines.empty());
    }
    EXPECT_TRUE(world.leave().ok());
  });
  return answer;
}

TEST(RankCalls, MalformedOnesAreRefused) {
  const std::string error = "rank 0 sent a call that this rank cannot read; "
                            "start the same version on all ranks";
  // Kind (1: prefill), length, sequences, tokens; then length, adapter and
  // number of pages of each sequence.
  const std::vector<int32_t> good = {1, 9, 1, 1, 0, -1, 1, 3, 8};
  const auto with = [&](size_t word, int32_t value) {
    auto words = good;
    words[word] = value;
    return words;
  };
  EXPECT_EQ(answerTo(with(0, -1)), error);         // unknown kinds
  EXPECT_EQ(answerTo(with(0, 9)), error);          //
  EXPECT_EQ(answerTo(with(1, 3)), error);          // less than a header
  EXPECT_EQ(answerTo(with(1, -1)), error);         //
  EXPECT_EQ(answerTo(with(1, 0x7fffffff)), error); // too long
  EXPECT_EQ(answerTo(with(2, 2)), error);          // more sequences than words
  EXPECT_EQ(answerTo(with(2, -1)), error);         //
  EXPECT_EQ(answerTo(with(3, 2)), error);          // more tokens than words
  EXPECT_EQ(answerTo(with(3, 0)), error);          // fewer
  EXPECT_EQ(answerTo(with(6, 3)), error);          // more pages than words
  EXPECT_EQ(answerTo(with(6, -1)), error);         //
  EXPECT_EQ(answerTo({1, 5, 0, 1, 8}), error);     // a prefill of no sequence
}

TEST(RankCalls, AFailingFollowerIsNamed) {
  comm::Reports reports;
  comm::WorldOptions options;
  options.report = reports.sink();
  std::vector<std::string> lines[2];
  std::string error;
  comm::runRanks(2, options, [&](comm::World &world) {
    auto channel = world.open(0, comm::Group::world(2));
    ASSERT_TRUE(channel.ok());
    if (world.rank() == 0) {
      CallBroadcaster calls(**channel, std::chrono::minutes(1));
      ShardedModel model(std::make_unique<Recorder>(lines[0]), calls);
      const int32_t token[] = {2};
      const CachedText sequence;
      // Broadcasts need not wait for the follower.
      Status status = Status::success();
      while (status.ok())
        status = model.decode(std::span(&sequence, 1), token, {});
      error = status.message();
    } else {
      Recorder model(lines[1], /*fails=*/true);
      EXPECT_EQ(followCalls(model, **channel).message(), "no memory");
    } // and does not leave
  });
  EXPECT_NE(error.find("rank 1"), error.npos) << error;
}

} // namespace
} // namespace tessera
