// Collectives between threads against plain loops.
#include "CollectiveCase.h"
#include "SocketRanks.h"
#include "ThreadRanks.h"
#include "runtime/comm/Algorithms.h"

#include <gtest/gtest.h>

#include <cstring>

namespace tessera::comm {
namespace {

/// Runs cases on all ranks, several at a time, and compares the bytes.
void runCases(Transports transports, std::uint64_t firstSeed, int cases) {
  const int members = static_cast<int>(transports.size());
  std::vector<CollectiveCase> all;
  for (int i = 0; i < cases; ++i)
    all.emplace_back(firstSeed + static_cast<std::uint64_t>(i), members);
  runRanks(members, {.timeout = std::chrono::seconds(60)}, [&](World &world) {
    StatusOr<Channel *> opened = world.open(0, Group::world(members));
    ASSERT_TRUE(opened.ok()) << opened.message();
    Channel &channel = **opened;
    const int me = channel.member();
    std::vector<std::vector<std::byte>> outputs(all.size());
    std::vector<Collective> calls;
    for (std::size_t i = 0; i < all.size(); ++i)
      calls.push_back(all[i].of(me, outputs[i]));
    constexpr std::size_t together = 5;
    std::vector<Ticket> tickets;
    for (std::size_t i = 0; i < all.size() + together; ++i) {
      if (i < all.size()) {
        StatusOr<Ticket> ticket = channel.start(calls[i]);
        ASSERT_TRUE(ticket.ok()) << ticket.message();
        tickets.push_back(*ticket);
      }
      if (i < together)
        continue;
      const std::size_t done = i - together;
      const Status status = channel.wait(tickets[done]);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(outputs[done], all[done].expected[static_cast<std::size_t>(me)])
          << "case " << firstSeed + done << ": " << all[done].text()
          << ", member " << me;
    }
    const Status left = world.leave();
    EXPECT_TRUE(left.ok()) << left.message();
  });
}

class Collectives : public testing::TestWithParam<int> {};

TEST_P(Collectives, EqualPlainLoops) {
  const int members = GetParam();
  runCases(ThreadTransport::create(members, {}),
           static_cast<std::uint64_t>(members) * 1000, 120);
}

TEST_P(Collectives, EqualPlainLoopsIfNothingIsBuffered) {
  const int members = GetParam();
  runCases(ThreadTransport::create(members, {.eagerBytes = 0}),
           static_cast<std::uint64_t>(members) * 1000 + 500, 60);
}

TEST_P(Collectives, EqualPlainLoopsOverSockets) {
  const int members = GetParam();
  runCases(socketTransports(members),
           static_cast<std::uint64_t>(members) * 1000 + 700, 60);
}

INSTANTIATE_TEST_SUITE_P(Members, Collectives, testing::Range(1, 9));

} // namespace
} // namespace tessera::comm
