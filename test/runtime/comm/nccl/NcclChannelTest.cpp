// Collectives of GPUs, by a library of our own with NCCL's interface.
#include "runtime/comm/nccl/NcclChannel.h"
#include "../CollectiveCase.h"
#include "../ThreadRanks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

namespace tessera::comm::nccl {
namespace {

using testing::HasSubstr;

std::shared_ptr<const Library> loadFake() {
  ::setenv("TESSERA_LIBNCCL", TESSERA_FAKE_NCCL, 1);
  StatusOr<std::shared_ptr<const Library>> library = Library::load();
  EXPECT_TRUE(library.ok()) << library.message();
  return library.take();
}

/// A host channel and what is beside it.
struct Both {
  Channel &host;
  std::unique_ptr<NcclChannel> device;

  static Both open(World &world, const std::shared_ptr<const Library> &nccl) {
    Channel &host = **world.open(0, Group::world(world.size()));
    StatusOr<std::unique_ptr<NcclChannel>> device =
        NcclChannel::create(host, nccl);
    EXPECT_TRUE(device.ok()) << device.message();
    return {host, device.take()};
  }
};

class NcclCollectives : public testing::TestWithParam<int> {};

TEST_P(NcclCollectives, EqualPlainLoops) {
  const int members = GetParam();
  const auto nccl = loadFake();
  std::vector<CollectiveCase> cases;
  for (std::uint64_t i = 0; i < 100; ++i)
    cases.emplace_back(static_cast<std::uint64_t>(members) * 7000 + i, members);
  runRanks(members, {.timeout = std::chrono::seconds(60)}, [&](World &world) {
    const Both both = Both::open(world, nccl);
    const int me = both.host.member();
    for (const CollectiveCase &one : cases) {
      std::vector<std::byte> output;
      const Collective call = one.of(me, output);
      const bool reduces = one.kind == CollectiveKind::allReduce ||
                           one.kind == CollectiveKind::reduceScatter;
      // A stand-in for an event that the GPU passes a little later.
      std::atomic<int> looks = 0;
      StatusOr<Ticket> ticket =
          both.device->start(call, nullptr, [&] { return ++looks > 3; });
      if (reduces && one.type == ElementType::i16) {
        EXPECT_THAT(ticket.message(), HasSubstr("NCCL does not reduce i16"));
        continue;
      }
      ASSERT_TRUE(ticket.ok()) << ticket.message();
      const Status status = both.device->wait(*ticket);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_GT(looks, 3);
      EXPECT_EQ(output, one.expected[static_cast<std::size_t>(me)])
          << one.text() << ", member " << me;
    }
    EXPECT_TRUE(world.leave().ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Members, NcclCollectives, testing::Values(1, 2, 3, 5));

TEST(NcclChannel, ComparesWhatTheDeviceDoes) {
  // As start() leaves it to the host's channel, since a device whose ranks call
  // different things hangs.
  Reports reports;
  runRanks(2, {.timeout = std::chrono::seconds(60), .report = reports.sink()},
           [&](World &world) {
             Channel &host = **world.open(0, Group::world(2));
             float mine[4] = {}, all[8] = {};
             Collective call =
                 world.rank() == 0
                     ? Collective::broadcast(ElementType::f32, mine, 4, 0)
                     : Collective::allGather(ElementType::f32, mine, all,
                                             {4, 4});
             call.isDone = []() -> StatusOr<bool> { return false; };
             EXPECT_FALSE(host.run(call).ok());
           });
  EXPECT_THAT(reports.text(), HasSubstr("broadcast #0 f32[4]"));
  EXPECT_THAT(reports.text(), HasSubstr("all_gather #0 f32[8]"));
  EXPECT_THAT(reports.text(), HasSubstr("every member has to make the same"));
}

TEST(NcclChannel, EndsTheWorldWhenTheDeviceHangs) {
  const auto nccl = loadFake();
  Reports reports;
  runRanks(
      2, {.timeout = std::chrono::milliseconds(600), .report = reports.sink()},
      [&](World &world) {
        const Both both = Both::open(world, nccl);
        std::int32_t value = 1;
        const StatusOr<Ticket> ticket = both.device->start(
            Collective::allReduce(ElementType::i32, Reduction::sum, &value, 1),
            nullptr, [] { return false; });
        EXPECT_FALSE(both.device->wait(*ticket).ok());
      });
  EXPECT_THAT(reports.text(),
              HasSubstr("all_reduce #1 i32[1] of group {0,1} is not done on "
                        "the device of rank "));
}

TEST(NcclLibrary, SaysWhatIsMissing) {
  ::setenv("TESSERA_LIBNCCL", "libnone.so", 1);
  EXPECT_THAT(Library::load().message(),
              HasSubstr("cannot load NCCL, by which GPUs speak: libnone.so"));
  ::setenv("TESSERA_LIBNCCL", "libm.so.6", 1);
  EXPECT_THAT(Library::load().message(),
              HasSubstr("the library libm.so.6 has no function ncclGet"));
  ::unsetenv("TESSERA_LIBNCCL");
}

TEST(NcclLibrary, ExplainsErrors) {
  const auto nccl = loadFake();
  EXPECT_EQ(nccl->check(nccl->groupEnd(), "ncclGroupEnd").message(),
            "ncclGroupEnd: NCCL says invalid usage");
}

} // namespace
} // namespace tessera::comm::nccl
