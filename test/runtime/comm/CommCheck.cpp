// A rank of a job that tests communication between real processes:
//   comm-check cases FIRST COUNT   random collectives on random groups
//   comm-check fault WHAT RANK SECONDS [FOLDER]
//       all ranks reduce again and again until WHAT happens to that rank:
//       stop, kill, term (signals), other (another collective), compute (it
//       enters none any more), return (from main), polite (SIGTERM, after which
//       all agree to leave)
// Exits with 0 if all is as it should be here; SECONDS is the timeout.
#include "CollectiveCase.h"
#include "runtime/support/StopSignals.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <numeric>
#include <string_view>
#include <thread>

namespace tessera::comm {
namespace {

constexpr int kRoundsBefore = 20;

int fail(const std::string &line) {
  std::fprintf(stderr, "comm-check: %s\n", line.c_str());
  return 1;
}

int number(const char *text) {
  int value = 0;
  std::from_chars(text, text + std::string_view(text).size(), value);
  return value;
}

/// A group of `world` ranks in any order, the same on all ranks.
Group randomGroup(std::mt19937_64 &random, int world) {
  std::vector<int> ranks(static_cast<std::size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::shuffle(ranks.begin(), ranks.end(), random);
  ranks.resize(1 + random() % ranks.size());
  return Group::of(ranks, world).take();
}

Status runCases(World &world, std::uint64_t first, int count) {
  std::mt19937_64 random(first);
  constexpr int groups = 4;
  std::vector<Channel *> channels(groups); // null: this rank is no member
  std::vector<Group> all;
  for (int id = 0; id < groups; ++id) {
    all.push_back(id == 0 ? Group::world(world.size())
                          : randomGroup(random, world.size()));
    if (!all.back().memberOf(world.rank()))
      continue;
    StatusOr<Channel *> channel = world.open(id, all.back());
    if (!channel.ok())
      return channel.status();
    channels[static_cast<std::size_t>(id)] = *channel;
  }
  for (int i = 0; i < count; ++i) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(i);
    const std::size_t id = seed % groups;
    Channel *channel = channels[id];
    if (!channel)
      continue;
    const CollectiveCase one(seed, all[id].size());
    std::vector<std::byte> output;
    TESSERA_RETURN_IF_ERROR(channel->run(one.of(channel->member(), output)));
    if (output != one.expected[static_cast<std::size_t>(channel->member())])
      return Status::error("case {} is wrong at rank {}: {}", seed,
                           world.rank(), one.text());
  }
  return Status::success();
}

/// Returns when the world ends or somebody was asked to stop.
Status runFault(Channel &channel, std::string_view what, int where) {
  std::vector<float> values(4096, 1);
  const auto reduce = [&] {
    return channel.run(Collective::allReduce(ElementType::f32, Reduction::sum,
                                             values.data(), values.size()));
  };
  for (int round = 0;; ++round) {
    if (round == kRoundsBefore && channel.member() == where) {
      if (what == "stop")
        std::raise(SIGSTOP);
      else if (what == "kill")
        std::raise(SIGKILL);
      else if (what == "term" || what == "polite")
        std::raise(SIGTERM);
      else if (what == "return")
        return Status::error("it was told to return");
      else if (what == "compute")
        std::this_thread::sleep_for(std::chrono::minutes(10));
      else
        TESSERA_RETURN_IF_ERROR(channel.run(Collective::broadcast(
            ElementType::f32, values.data(), values.size() / 2, 0)));
    }
    TESSERA_RETURN_IF_ERROR(reduce());
    std::int32_t isLast = stopRequested() ? 1 : 0;
    TESSERA_RETURN_IF_ERROR(channel.run(
        Collective::allReduce(ElementType::i32, Reduction::max, &isLast, 1)));
    if (isLast)
      return Status::success();
  }
}

int run(int argc, char **argv) {
  const std::string_view mode = argc > 3 ? argv[1] : "";
  const bool isFault = mode == "fault" && argc > 4;
  if (mode != "cases" && !isFault)
    return fail("say cases FIRST COUNT or fault WHAT RANK SECONDS [FOLDER]");
  // As a training run does; what SIGTERM is to do without it, is tested too.
  const std::string_view what = argv[2];
  if (what != "term")
    if (const Status status = catchStopSignals(); !status.ok())
      return fail(status.message());
  const StatusOr<Launch> launch = readLaunch();
  if (!launch.ok())
    return fail(launch.message());
  WorldOptions options;
  options.timeout = std::chrono::seconds(isFault ? number(argv[4]) : 60);
  if (isFault && argc > 5)
    options.recordFolder = argv[5];
  StatusOr<std::unique_ptr<World>> world = World::join(*launch, options);
  if (!world.ok())
    return fail(world.message());
  Status status;
  if (isFault) {
    StatusOr<Channel *> channel =
        (*world)->open(0, Group::world((*world)->size()));
    status = channel.ok() ? runFault(**channel, what, number(argv[3]))
                          : channel.status();
  } else {
    status = runCases(**world, static_cast<std::uint64_t>(number(argv[2])),
                      number(argv[3]));
  }
  if (!status.ok())
    return fail(status.message());
  if (const Status left = (*world)->leave(); !left.ok())
    return fail(left.message());
  if (launch->rank == 0)
    std::printf("%s: done\n", launch->describe().c_str());
  return 0;
}

} // namespace
} // namespace tessera::comm

int main(int argc, char **argv) { return tessera::comm::run(argc, argv); }
