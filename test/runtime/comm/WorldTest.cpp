// Channels in use, and worlds that end.
#include "ThreadRanks.h"
#include "runtime/comm/FlightRecorder.h"
#include "runtime/data/Json.h"
#include "runtime/support/Text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <latch>
#include <numeric>
#include <unistd.h>

namespace tessera::comm {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
constexpr auto kF32 = ElementType::f32;

Channel &openWorld(World &world) {
  StatusOr<Channel *> channel = world.open(0, Group::world(world.size()));
  EXPECT_TRUE(channel.ok()) << channel.message();
  return **channel;
}

void expectOk(const Status &status) {
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(World, CutsWhatIsLong) {
  // More than members stage at once, and parts of different lengths.
  constexpr std::uint64_t count = 2'000'001;
  runRanks(3, {}, [](World &world) {
    Channel &channel = openWorld(world);
    std::vector<std::int32_t> values(count);
    std::iota(values.begin(), values.end(), channel.member());
    expectOk(channel.run(Collective::allReduce(ElementType::i32, Reduction::sum,
                                               values.data(), count)));
    for (std::uint64_t i = 0; i < count; ++i)
      ASSERT_EQ(values[i], static_cast<std::int32_t>(3 * i + 3));
    std::vector<std::int32_t> part(count);
    const std::uint64_t counts[] = {count - 5, 5, 0};
    expectOk(channel.run(Collective::reduceScatter(
        ElementType::i32, Reduction::max, values.data(), part.data(),
        {counts[0], counts[1], counts[2]})));
    const std::uint64_t mine = counts[channel.member()];
    const std::uint64_t first = channel.member() == 0 ? 0 : counts[0];
    for (std::uint64_t i = 0; i < mine; ++i)
      ASSERT_EQ(part[i], values[first + i]);
    expectOk(world.leave());
  });
}

TEST(World, ReductionsAreTheSameBitsWhateverTheAlgorithm) {
  // Short ones are gathered and long ones scattered; a prefix must be equal.
  runRanks(5, {}, [](World &world) {
    Channel &channel = openWorld(world);
    std::vector<float> longer(100'000);
    for (std::size_t i = 0; i < longer.size(); ++i)
      longer[i] =
          1.0F /
          static_cast<float>(
              1 + (i * 7919 + 31 * static_cast<std::size_t>(channel.member())) %
                      1009);
    std::vector<float> shorter(longer.begin(), longer.begin() + 100);
    for (std::vector<float> *values : {&longer, &shorter})
      expectOk(channel.run(Collective::allReduce(
          kF32, Reduction::sum, values->data(), values->size())));
    longer.resize(100);
    EXPECT_EQ(longer, shorter);
    expectOk(world.leave());
  });
}

TEST(World, SendsBeforeItReceivesIfNothingIsBuffered) {
  runRanks(
      2, {},
      [](World &world) {
        Channel &channel = openWorld(world);
        const int me = channel.member(), other = 1 - me;
        std::vector<int> mine(1000, me), theirs(1000), more(1000);
        const Collective calls[] = {
            Collective::send(ElementType::i32, mine.data(), 1000, other),
            Collective::receive(ElementType::i32, theirs.data(), 1000, other),
            Collective::send(ElementType::i32, mine.data(), 1000, other),
            Collective::receive(ElementType::i32, more.data(), 1000, other)};
        std::vector<Ticket> tickets;
        for (const Collective &call : calls)
          tickets.push_back(*channel.start(call));
        for (const Ticket ticket : tickets)
          expectOk(channel.wait(ticket));
        EXPECT_EQ(theirs, std::vector<int>(1000, other));
        EXPECT_EQ(more, theirs);
        expectOk(world.leave());
      },
      {.eagerBytes = 0});
}

TEST(World, ChannelsDoNotWaitForOneAnother) {
  // Rank 0 starts on one channel first, rank 1 on the other.
  runRanks(2, {}, [](World &world) {
    Channel &first = openWorld(world);
    Channel &second = **world.open(7, Group::of({1, 0}, 2).take());
    Channel *order[] = {&first, &second};
    if (world.rank() == 1)
      std::swap(order[0], order[1]);
    float values[] = {1, 1};
    const Collective a =
        Collective::allReduce(kF32, Reduction::sum, &values[0], 1);
    const Collective b =
        Collective::allReduce(kF32, Reduction::sum, &values[1], 1);
    const Ticket ticket = *order[0]->start(a);
    expectOk(order[1]->run(b));
    expectOk(order[0]->wait(ticket));
    EXPECT_EQ(values[0] + values[1], 4);
    expectOk(world.leave());
  });
}

TEST(World, WhatSomebodyElseMovesHoldsUpNothing) {
  // As a channel watches a run on GPUs, beside which rows go through the host.
  runRanks(2, {}, [](World &world) {
    Channel &channel = openWorld(world);
    std::atomic<bool> done = false;
    Collective watch = Collective::barrier();
    watch.isDone = [&]() -> StatusOr<bool> { return done.load(); };
    const StatusOr<Ticket> ticket = channel.start(watch);
    ASSERT_TRUE(ticket.ok());
    auto sum = static_cast<float>(channel.member());
    expectOk(channel.run(Collective::allReduce(kF32, Reduction::sum, &sum, 1)));
    EXPECT_EQ(sum, 1);
    done = true;
    expectOk(channel.wait(*ticket));
    expectOk(world.leave());
  });
}

TEST(World, RefusesMisuse) {
  runRanks(2, {}, [](World &world) {
    Channel &channel = openWorld(world);
    EXPECT_EQ(world.open(0, Group::world(2)).message(),
              "channel 0 is open already, for the group {0,1}");
    EXPECT_EQ(world.open(8000, Group::world(2)).message(),
              "a channel has id 8000: use 0 to 7999");
    const int other = 1 - world.rank();
    EXPECT_EQ(world.open(1, Group::of({other}, 2).take()).message(),
              fmt::format("rank {} opens a channel of the group {{{}}}, of "
                          "which it is not a member",
                          world.rank(), other));
    EXPECT_EQ(channel.run(Collective::broadcast(kF32, nullptr, 0, 2)).message(),
              "broadcast: the root is member 2, but the group {0,1} has "
              "members 0 to 1");
    const Collective barrier = Collective::barrier();
    const Ticket ticket = *channel.start(barrier);
    EXPECT_EQ(world.leave().message(),
              fmt::format(
                  "rank {} leaves with 1 collectives that it did not wait for",
                  world.rank()));
    expectOk(channel.wait(ticket));
    EXPECT_EQ(channel.wait(ticket).message(),
              fmt::format("nothing that was started has ticket {}: wait once "
                          "for each",
                          ticket));
    expectOk(world.leave());
    EXPECT_EQ(channel.run(barrier).message(), "barrier: the world was left");
  });
}

/// Runs ranks that all fail, and returns what they reported.
std::string runToTheEnd(int size, milliseconds timeout,
                        const std::function<Status(World &)> &body,
                        const std::string &recordFolder = {}) {
  Reports reports;
  const WorldOptions options{.timeout = timeout,
                             .recordFolder = recordFolder,
                             .report = reports.sink()};
  runRanks(size, options,
           [&](World &world) { EXPECT_FALSE(body(world).ok()); });
  return reports.text();
}

/// What the rank does that the others miss.
Status comeLate(const std::atomic<int> &waiting) {
  while (waiting != 0)
    std::this_thread::sleep_for(milliseconds(10));
  return Status::error("it was late");
}

TEST(WorldEnds, WhenRanksCallDifferentCollectives) {
  std::vector<std::vector<float>> outputs(3, std::vector<float>(128, -1));
  const std::string text =
      runToTheEnd(3, std::chrono::seconds(60), [&](World &world) {
        Channel &channel = openWorld(world);
        std::vector<float> values(128, 1);
        expectOk(channel.run(Collective::barrier()));
        auto &output = outputs[static_cast<std::size_t>(world.rank())];
        return channel.run(
            world.rank() == 1
                ? Collective::reduceScatter(kF32, Reduction::sum, values.data(),
                                            output.data(), {64, 32, 32})
                : Collective::allGather(kF32, values.data(), output.data(),
                                        {64, 32, 32}));
      });
  EXPECT_THAT(text, HasSubstr("all_gather #1 f32[128]"));
  EXPECT_THAT(text, HasSubstr("reduce_scatter #1 f32[128]"));
  EXPECT_THAT(text, HasSubstr("every member has to make the same calls"));
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_THAT(text, HasSubstr(fmt::format("rank {}: ", rank)));
  // Nothing came from the rank that made another call, nor went there.
  EXPECT_EQ(outputs[1], std::vector<float>(128, -1));
  for (std::size_t i = 64; i < 96; ++i)
    EXPECT_EQ(outputs[0][i], -1);
}

TEST(WorldEnds, WhenSenderAndReceiverDisagree) {
  const std::string text =
      runToTheEnd(2, std::chrono::seconds(60), [&](World &world) {
        Channel &channel = openWorld(world);
        float values[16] = {};
        return world.rank() == 0
                   ? channel.run(Collective::receive(kF32, values, 16, 1))
                   : [&] {
                       (void)channel.run(Collective::send(kF32, values, 8, 0));
                       return channel.run(Collective::barrier());
                     }();
      });
  EXPECT_THAT(text, HasSubstr("rank 1 sends #0 f32[8], rank 0 receives #0 "
                              "f32[16] from it in group {0,1}: both have to "
                              "name the same"));
}

TEST(WorldEnds, WhenCountsOfAPairDiffer) {
  const std::string text =
      runToTheEnd(2, std::chrono::seconds(60), [&](World &world) {
        Channel &channel = openWorld(world);
        std::uint8_t in[8] = {}, out[8] = {};
        // What rank 1 gets is right, so it finds out at the next call.
        if (world.rank() == 1) {
          (void)channel.run(
              Collective::allToAll(ElementType::u8, in, out, {2, 1}, {3, 1}));
          return channel.run(Collective::barrier());
        }
        return channel.run(
            Collective::allToAll(ElementType::u8, in, out, {1, 3}, {1, 3}));
      });
  EXPECT_THAT(text, HasSubstr("in all_to_all #0 u8[4] of group {0,1} rank 1 "
                              "sends 2 bytes to rank 0, which expects 3: their "
                              "counts differ"));
}

TEST(WorldEnds, WhenARankComputesForTooLong) {
  std::atomic<int> waiting = 3;
  const std::string text = runToTheEnd(4, milliseconds(800), [&](World &world) {
    Channel &channel = openWorld(world);
    std::vector<float> values(4096);
    expectOk(channel.run(
        Collective::allReduce(kF32, Reduction::sum, values.data(), 4096)));
    if (world.rank() == 2)
      return comeLate(waiting);
    const Status status = channel.run(
        Collective::allReduce(kF32, Reduction::sum, values.data(), 4096));
    --waiting;
    return status;
  });
  EXPECT_THAT(text, HasSubstr("rank 2 has not entered all_reduce #1 f32[4096] "
                              "of group {0,1,2,3}, where rank "));
  EXPECT_THAT(text, HasSubstr("rank 2 is elsewhere since it finished "
                              "all_reduce #0 f32[4096] of group {0,1,2,3}"));
  EXPECT_THAT(text, testing::Not(HasSubstr("ranks ")));
}

TEST(WorldEnds, WhenARankIsSilent) {
  Reports reports;
  const WorldOptions options{.timeout = milliseconds(800),
                             .report = reports.sink()};
  auto transports = ThreadTransport::create(3, {});
  std::vector<std::thread> threads; // of rank 1 there is none
  for (const std::size_t rank : {0, 2})
    threads.emplace_back([&, rank] {
      const auto world = World::over(std::move(transports[rank]), options);
      std::int64_t value = 1;
      EXPECT_FALSE(openWorld(*world)
                       .run(Collective::allReduce(ElementType::i64,
                                                  Reduction::max, &value, 1))
                       .ok());
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_THAT(reports.text(),
              HasSubstr("rank 1 does not answer and has not finished "
                        "all_reduce(max) #0 i64[1] of group {0,1,2}, where "
                        "rank "));
  EXPECT_THAT(reports.text(), HasSubstr("it is stopped, dead or cut off"));
}

TEST(WorldEnds, ByWhoIsClosestToTheCause) {
  // Rank 0 waits for rank 1, which waits for rank 2, which is away. Rank 0
  // began to wait first and must not blame rank 1.
  std::atomic<int> waiting = 2;
  const std::string text =
      runToTheEnd(3, milliseconds(1000), [&](World &world) {
        const int rank = world.rank();
        StatusOr<Channel *> outer = world.open(0, Group::of({0, 1}, 3).take());
        StatusOr<Channel *> inner = world.open(1, Group::of({1, 2}, 3).take());
        if (rank == 0) {
          const Status status = (*outer)->run(Collective::barrier());
          --waiting;
          return status;
        }
        if (rank == 1) {
          std::this_thread::sleep_for(milliseconds(100));
          const Status status = (*inner)->run(Collective::barrier());
          --waiting;
          return status;
        }
        return comeLate(waiting);
      });
  EXPECT_THAT(text, HasSubstr("rank 2 has not entered barrier #0 of group "
                              "{1,2}, where rank 1 has waited"));
  EXPECT_THAT(text, testing::Not(HasSubstr("rank 1 has not entered")));
}

TEST(WorldEnds, WhenRanksWaitForEachOther) {
  const std::string text = runToTheEnd(2, milliseconds(600), [&](World &world) {
    Channel &channel = openWorld(world);
    float value = 0;
    return channel.run(Collective::receive(kF32, &value, 1, 1 - world.rank()));
  });
  EXPECT_THAT(text, HasSubstr("has not entered recv #0 f32[1] from rank "));
  EXPECT_THAT(text, HasSubstr(" waits for rank "));
}

TEST(WorldEnds, WhenARankReturnsEarly) {
  const std::string text =
      runToTheEnd(3, std::chrono::seconds(60), [&](World &world) {
        if (world.rank() == 1)
          return Status::error("it has no data");
        return openWorld(world).run(Collective::barrier());
      });
  EXPECT_THAT(text, HasSubstr("rank 0: ended by rank 1: rank 1 ended before "
                              "the others"));
  EXPECT_THAT(text, HasSubstr("rank 2: ended by rank 1: rank 1 ended before "
                              "the others"));
}

TEST(WorldEnds, WhenALeavingRankWaitsInVain) {
  std::latch hasFailed(1);
  const std::string text = runToTheEnd(2, milliseconds(600), [&](World &world) {
    if (world.rank() == 0) {
      const Status status = world.leave();
      hasFailed.count_down();
      return status;
    }
    hasFailed.wait();
    return world.leave();
  });
  EXPECT_THAT(text, HasSubstr("rank 1 has not entered barrier #0 of group "
                              "{0,1}, where rank 0 has waited for"));
}

TEST(WorldEnds, WithARecordOfTheFlight) {
  const std::string folder =
      testing::TempDir() + "/flight-" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  std::latch isReceiving(1);
  (void)runToTheEnd(
      2, std::chrono::seconds(60),
      [&](World &world) {
        Channel &channel = openWorld(world);
        std::vector<float> values(8);
        for (int i = 0; i < 70; ++i)
          expectOk(channel.run(
              Collective::allReduce(kF32, Reduction::sum, values.data(), 8)));
        if (world.rank() == 1) {
          isReceiving.wait();
          return Status::error("it has no data");
        }
        const Collective receive =
            Collective::receive(kF32, values.data(), 8, 1);
        const StatusOr<Ticket> ticket = channel.start(receive);
        isReceiving.count_down();
        return channel.wait(*ticket);
      },
      folder);
  const StatusOr<std::string> text =
      readTextFile(folder + "/rank-0.json", 1 << 20);
  ASSERT_TRUE(text.ok()) << text.message();
  const StatusOr<JsonValue> json = JsonValue::parse(*text, "record");
  ASSERT_TRUE(json.ok()) << json.message();
  std::string_view reason, name, state;
  EXPECT_TRUE((*json)["reason"].get(reason));
  EXPECT_EQ(reason, "ended by rank 1: rank 1 ended before the others");
  const auto &records = (*json)["collectives"].elements();
  ASSERT_EQ(records.size(), FlightRecorder::kRecords);
  EXPECT_TRUE(records.back()["collective"].get(name));
  EXPECT_EQ(name, "recv #0 f32[8] from rank 1 in group {0,1}");
  EXPECT_TRUE(records.back()["state"].get(state));
  EXPECT_NE(state, "done");
  EXPECT_TRUE(records.front()["collective"].get(name));
  EXPECT_EQ(name, "all_reduce #7 f32[8] of group {0,1}");
  EXPECT_TRUE(records.front()["state"].get(state));
  EXPECT_EQ(state, "done");
  std::filesystem::remove_all(folder);
}

} // namespace
} // namespace tessera::comm
