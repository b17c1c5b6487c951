#include "runtime/bench/CollectiveBench.h"
#include "runtime/bench/RateFit.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <sstream>

namespace tessera::bench {
namespace {

using comm::Collective;
using planner::HostCollective;
using Clock = std::chrono::steady_clock;

constexpr std::array<std::uint64_t, 6> kSizes = {1 << 10,   16 << 10, 64 << 10,
                                                 256 << 10, 1 << 20,  4 << 20};
constexpr std::uint64_t kMostBytes = kSizes.back();
/// Repeats of one size, the first of which is not counted, and calls of each.
constexpr int kRepeats = 9, kCalls = 4;

double quantile(std::vector<double> &sorted, double part) {
  return sorted[static_cast<std::size_t>(part * double(sorted.size() - 1))];
}

class CollectiveBench {
public:
  explicit CollectiveBench(comm::World &world)
      : world(world), input(kMostBytes), output(kMostBytes) {}
  StatusOr<std::vector<CollectiveTime>> run();

private:
  Collective collectiveOf(HostCollective kind, std::uint64_t bytes,
                          const comm::Channel &channel);
  StatusOr<CollectiveTime> measure(HostCollective kind, comm::Channel &channel);
  /// The seconds of one call on the slowest rank.
  StatusOr<double> once(comm::Channel &channel, const Collective &what);

  comm::World &world;
  comm::Channel *everybody = nullptr;
  std::vector<std::byte> input, output;
};

Collective CollectiveBench::collectiveOf(HostCollective kind,
                                         std::uint64_t bytes,
                                         const comm::Channel &channel) {
  constexpr auto kType = comm::ElementType::f32;
  const auto members = static_cast<std::uint64_t>(channel.group().size());
  const std::uint64_t count = bytes / sizeof(float);
  const std::vector<std::uint64_t> shares(members, count / members);
  const int next = (channel.member() + 1) % channel.group().size(),
            before = (channel.member() + channel.group().size() - 1) %
                     channel.group().size();
  switch (kind) {
  case HostCollective::allReduce:
    return Collective::allReduce(kType, comm::Reduction::sum, output.data(),
                                 count);
  case HostCollective::allGather:
    return Collective::allGather(kType, input.data(), output.data(), shares);
  case HostCollective::reduceScatter:
    return Collective::reduceScatter(kType, comm::Reduction::sum, input.data(),
                                     output.data(), shares);
  case HostCollective::allToAll:
    return Collective::allToAll(kType, input.data(), output.data(), shares,
                                shares);
  case HostCollective::send:
    break;
  }
  return Collective::exchange(kType, input.data(), count, next, output.data(),
                              count, before);
}

StatusOr<double> CollectiveBench::once(comm::Channel &channel,
                                       const Collective &what) {
  TESSERA_RETURN_IF_ERROR(everybody->run(Collective::barrier()));
  const Clock::time_point start = Clock::now();
  for (int call = 0; call < kCalls; ++call)
    TESSERA_RETURN_IF_ERROR(channel.run(what));
  const std::chrono::duration<double> took = Clock::now() - start;
  double seconds = took.count() / kCalls;
  TESSERA_RETURN_IF_ERROR(everybody->run(Collective::allReduce(
      comm::ElementType::f64, comm::Reduction::max, &seconds, 1)));
  return seconds;
}

StatusOr<CollectiveTime> CollectiveBench::measure(HostCollective kind,
                                                  comm::Channel &channel) {
  CollectiveTime result;
  std::vector<RateSample> samples;
  for (const std::uint64_t bytes : kSizes) {
    const Collective what = collectiveOf(kind, bytes, channel);
    std::vector<double> times;
    for (int repeat = 0; repeat <= kRepeats; ++repeat) {
      StatusOr<double> seconds = once(channel, what);
      if (!seconds.ok())
        return seconds.status();
      if (repeat > 0)
        times.push_back(*seconds);
    }
    std::ranges::sort(times);
    const double median = quantile(times, 0.5);
    result.spread =
        std::max(result.spread,
                 (quantile(times, 0.75) - quantile(times, 0.25)) / median);
    samples.push_back({0, double(bytes), median});
  }
  const planner::KernelRate fit = fitRate(samples);
  result.rate = {kind, world.size(), channel.group().size(), fit.launch,
                 fit.bytes > 0 ? fit.bytes : 1e12};
  return result;
}

StatusOr<std::vector<CollectiveTime>> CollectiveBench::run() {
  auto opened = world.open(0, comm::Group::world(world.size()));
  if (!opened.ok())
    return opened.status();
  everybody = *opened;
  std::vector<CollectiveTime> all;
  int id = 1;
  for (int size = 2; size <= world.size(); size *= 2) {
    if (world.size() % size != 0)
      break;
    const int first = world.rank() / size * size;
    std::vector<int> ranks;
    for (int rank = first; rank < first + size; ++rank)
      ranks.push_back(rank);
    auto group = comm::Group::of(ranks, world.size());
    if (!group.ok())
      return group.status();
    auto channel = world.open(id + first / size, group.take());
    if (!channel.ok())
      return channel.status();
    id += world.size() / size;
    for (std::size_t kind = 0; kind < planner::kHostCollectives.size();
         ++kind) {
      auto measured = measure(HostCollective(kind), **channel);
      if (!measured.ok())
        return measured.status();
      all.push_back(*measured);
    }
  }
  return all;
}

} // namespace

StatusOr<std::vector<CollectiveTime>> benchCollectives(comm::World &world) {
  return CollectiveBench(world).run();
}

// Kind, ranks, group, latency, bandwidth, spread.
std::string printCollectiveTimes(const std::vector<CollectiveTime> &rows) {
  std::string text;
  for (const CollectiveTime &each : rows)
    text += fmt::format("{} {} {} {} {} {}\n", int(each.rate.kind),
                        each.rate.ranks, each.rate.group, each.rate.latency,
                        each.rate.bandwidth, each.spread);
  return text;
}

std::vector<CollectiveTime> readCollectiveTimes(const std::string &text) {
  std::vector<CollectiveTime> rows;
  std::istringstream lines(text);
  CollectiveTime row;
  for (int kind; lines >> kind >> row.rate.ranks >> row.rate.group >>
                 row.rate.latency >> row.rate.bandwidth >> row.spread;) {
    row.rate.kind = HostCollective(kind);
    rows.push_back(row);
  }
  return rows;
}

} // namespace tessera::bench
