#include "compiler/report/SharedCores.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>

#include "compiler/report/Simulation.h"
#include "hardware/Quantity.h"
#include "runtime/artifact/ArtifactReader.h"
#include "runtime/artifact/ElementTypes.h"
#include "runtime/artifact/Shares.h"

namespace tessera::report {

using artifact::toView;
using planner::HostCollective;
using planner::KernelKind;

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// A kernel, or a collective, in the order of a rank's program.
struct Work {
  enum class Kind : std::uint8_t { compute, collective, wait } kind;
  double seconds = 0; ///< compute: on the cores of a rank's threads
  const artifact::Collective *collective = nullptr;
  std::uint32_t ticket = 0;
};

/// Unrolls the programs of one share.
class Unroll {
public:
  Unroll(const artifact::DeviceCode &code, const planner::Host &host,
         double speedup, double uncached)
      : code(code), host(host), speedup(speedup), uncached(uncached) {}
  Status
  nodes(const flatbuffers::Vector<flatbuffers::Offset<artifact::Node>> &list);
  std::vector<Work> all;

private:
  double secondsOf(const artifact::Node &node) const;

  const artifact::DeviceCode &code;
  const planner::Host &host;
  const double speedup;
  const double uncached; ///< part of the state that memory holds
  std::uint64_t visited = 0;
};

/// The part of a launch's operands that is state, by their extents.
double stateShare(const artifact::Launch &launch) {
  double state = 0, all = 0;
  for (const artifact::Instance *instance : *launch.instances())
    for (const artifact::Arg *arg : *instance->args()) {
      all += double(arg->bytes());
      if (arg->space() == artifact::Space::state)
        state += double(arg->bytes());
    }
  return all > 0 ? state / all : 0;
}

double Unroll::secondsOf(const artifact::Node &node) const {
  const planner::KernelRate &moves = host.kernel(KernelKind::elementwise);
  if (const auto *copy = node.step_as_Copy())
    return moves.seconds(0, 2 * double(copy->to()->bytes()));
  if (const auto *fill = node.step_as_Fill())
    return moves.seconds(0, double(fill->to()->bytes()));
  const auto *launch = node.step_as_Launch();
  if (!launch)
    return 0;
  const artifact::Kernel &kernel = *code.kernels()->Get(launch->kernel());
  const planner::KernelRate &rate = host.kernel(kernelKindOf(kernel));
  const auto traffic = double(artifact::launchBytes(*launch, kernel));
  double seconds = rate.seconds(
      double(kernel.flops()) * double(launch->instances()->size()), traffic);
  // Rates are those of operands in a cache; a step comes to its state once.
  if (host.all.copy > 0 && rate.bytes > 0)
    seconds +=
        traffic * stateShare(*launch) * uncached *
        std::max(0.0, double(host.cores) / host.all.copy - 1 / rate.bytes);
  return seconds;
}

Status Unroll::nodes(
    const flatbuffers::Vector<flatbuffers::Offset<artifact::Node>> &list) {
  for (const artifact::Node *node : list) {
    if (++visited > kMostSimulatedSteps)
      return Status::error("more than {} steps with loops unrolled",
                           kMostSimulatedSteps);
    if (const auto *loop = node->step_as_Loop()) {
      // Rounds for what a buffer has no room for: there are none as a rule.
      const std::uint64_t trips = loop->count() ? 0 : loop->trip();
      for (std::uint64_t trip = 0; trip < trips; ++trip)
        TESSERA_RETURN_IF_ERROR(nodes(*loop->body()));
    } else if (const auto *one = node->step_as_Collective()) {
      all.push_back({Work::Kind::collective, 0, one, one->ticket()});
    } else if (const auto *wait = node->step_as_Wait()) {
      all.push_back({Work::Kind::wait, 0, nullptr, wait->ticket()});
    } else {
      const double seconds = secondsOf(*node) / speedup;
      // One piece of work for all kernels up to the next collective.
      if (!all.empty() && all.back().kind == Work::Kind::compute)
        all.back().seconds += seconds;
      else
        all.push_back({Work::Kind::compute, seconds});
    }
  }
  return Status::success();
}

/// A collective of a group, or a message of a permutation.
struct Transfer {
  std::size_t members = 0, arrived = 0;
  double latency = 0; ///< left, in seconds
  double seconds = 0; ///< of a core that each member needs
  bool isDone = false;
  Transfer *before = nullptr; ///< of the same members, which ends first
  bool isRunning() const {
    return !isDone && arrived == members && (!before || before->isDone);
  }
};

/// A member's part of a transfer.
struct Part {
  Transfer *transfer;
  double left; ///< seconds of a core
};

struct RankState {
  const std::vector<Work> *program = nullptr;
  std::size_t next = 0;
  double kernelLeft = 0;
  bool isComputing = false, isDone = false;
  std::vector<Transfer *> awaited; ///< what blocks the rank
  std::map<std::uint32_t, std::vector<Transfer *>> started; ///< by ticket
  std::vector<Part> parts; ///< of transfers that are not done
  double kernels = 0, blocked = 0;
  std::uint64_t collectives = 0;

  bool isBlocked() const {
    return std::ranges::any_of(
        awaited, [](const Transfer *each) { return !each->isDone; });
  }
};

class HostSimulator {
public:
  HostSimulator(const artifact::Artifact &root, const planner::Host &host)
      : mesh(root), host(host), threads(host.threadsOf(mesh.ranks())) {}
  Status load(const artifact::Artifact &root, std::string_view program);
  /// False if ranks wait for each other.
  bool run();
  HostPrediction take() const;

private:
  void advance(std::size_t rank);
  void start(std::size_t rank, const Work &work);
  Transfer *join(std::size_t rank, const std::vector<std::uint32_t> &group,
                 std::uint64_t sequence, HostCollective kind, double bytes,
                 double share, std::size_t measured);
  std::vector<Transfer *> exchange(std::size_t rank,
                                   const artifact::Collective &one,
                                   const std::vector<std::uint32_t> &group,
                                   double bytes);
  bool pass();
  void settle();

  artifact::Mesh mesh;
  const planner::Host &host;
  const std::int64_t threads;
  std::vector<std::vector<Work>> programs; ///< by share
  std::vector<RankState> ranks;
  using Key = std::vector<std::uint32_t>;
  std::map<std::pair<Key, std::uint64_t>, std::unique_ptr<Transfer>> transfers;
  std::map<std::pair<std::size_t, Key>, std::uint64_t> sequences;
  double now = 0;
};

Status HostSimulator::load(const artifact::Artifact &root,
                           std::string_view program) {
  ranks.resize(mesh.ranks());
  double state = 0;
  for (const artifact::Share *share : *root.shares())
    state += double(share->state_bytes()) * double(share->ranks()->size());
  programs.reserve(root.shares()->size());
  for (const artifact::Share *share : *root.shares()) {
    const artifact::DeviceCode *cpu = nullptr;
    for (const artifact::DeviceCode *code : *share->devices())
      if (toView(code->device()) == "cpu")
        cpu = code;
    if (!cpu)
      return Status::error("it has no code for CPUs, which the cluster has");
    const artifact::Program *found = artifact::findProgram(*cpu, program);
    if (!found)
      return Status::error("no program '{}'", program);
    Unroll unroll(*cpu, host, host.speedupOf(threads), host.uncached(state));
    TESSERA_RETURN_IF_ERROR(unroll.nodes(*found->steps()));
    programs.push_back(std::move(unroll.all));
    for (const std::uint32_t rank : *share->ranks())
      ranks[rank].program = &programs.back();
  }
  return Status::success();
}

HostCollective measuredKind(artifact::CollectiveKind kind) {
  switch (kind) {
  case artifact::CollectiveKind::all_reduce:
    return HostCollective::allReduce;
  case artifact::CollectiveKind::all_gather:
    return HostCollective::allGather;
  case artifact::CollectiveKind::reduce_scatter:
    return HostCollective::reduceScatter;
  case artifact::CollectiveKind::permute:
    return HostCollective::send;
  case artifact::CollectiveKind::all_to_all:
  case artifact::CollectiveKind::exchange_rows:
    break;
  }
  return HostCollective::allToAll;
}

/// Rank's part in the `sequence`-th transfer of `group`, which needs `share` of
/// what a group of `measured` ranks was measured with.
Transfer *HostSimulator::join(std::size_t rank, const Key &group,
                              std::uint64_t sequence, HostCollective kind,
                              double bytes, double share,
                              std::size_t measured) {
  std::unique_ptr<Transfer> &slot = transfers[{group, sequence}];
  if (!slot) {
    slot = std::make_unique<Transfer>();
    slot->members = group.size();
    if (const planner::CollectiveRate *rate = host.collective(
            kind, std::int64_t(ranks.size()), std::int64_t(measured))) {
      slot->latency = rate->latency;
      // Measured while every rank did the same, each on its part of a core.
      slot->seconds = share * bytes / rate->bandwidth *
                      std::min(1.0, double(host.cores) / double(ranks.size()));
    }
    if (sequence > 0)
      slot->before = transfers[{group, sequence - 1}].get();
  }
  ++slot->arrived;
  ranks[rank].parts.push_back({slot.get(), slot->seconds});
  return slot.get();
}

/// A permutation's messages from and to a rank; half of a message's time is the
/// sender's.
std::vector<Transfer *>
HostSimulator::exchange(std::size_t rank, const artifact::Collective &one,
                        const std::vector<std::uint32_t> &group, double bytes) {
  std::vector<Transfer *> all;
  for (std::size_t member = 0; member < group.size(); ++member) {
    const std::int32_t target =
        one.targets()->Get(static_cast<flatbuffers::uoffset_t>(member));
    if (target < 0)
      continue;
    const std::uint32_t from = group[member],
                        to = group[static_cast<std::size_t>(target)];
    if (from == to || (from != rank && to != rank))
      continue;
    // One more number, so that messages have other keys than groups.
    const Key key = {from, to, std::uint32_t(ranks.size())};
    const std::uint64_t sequence = sequences[{rank, key}]++;
    Transfer *message = join(rank, key, sequence, HostCollective::send, bytes,
                             0.5, group.size());
    message->members = 2;
    all.push_back(message);
  }
  return all;
}

void HostSimulator::start(std::size_t rank, const Work &work) {
  RankState &state = ranks[rank];
  const artifact::Collective &one = *work.collective;
  const std::vector<std::uint32_t> axes(one.axes()->begin(), one.axes()->end());
  const Key group = mesh.groupOf(std::uint32_t(rank), axes);
  const auto from = double(one.from()->bytes()), to = double(one.to()->bytes());
  const double bytes = one.kind() == artifact::CollectiveKind::exchange_rows
                           ? std::min(from, to)
                           : std::max(from, to);
  ++state.collectives;
  std::vector<Transfer *> all;
  if (one.kind() == artifact::CollectiveKind::permute && one.targets())
    all = exchange(rank, one, group, bytes);
  else
    all.push_back(join(rank, group, sequences[{rank, group}]++,
                       measuredKind(one.kind()), bytes, 1, group.size()));
  if (work.ticket == 0)
    state.awaited = std::move(all);
  else
    state.started[work.ticket] = std::move(all);
}

/// Goes on until the rank computes, is blocked or is done.
void HostSimulator::advance(std::size_t rank) {
  RankState &state = ranks[rank];
  while (!state.isComputing && !state.isDone && !state.isBlocked()) {
    state.awaited.clear();
    if (state.next == state.program->size()) {
      state.isDone = true;
      return;
    }
    const Work &work = (*state.program)[state.next++];
    switch (work.kind) {
    case Work::Kind::compute:
      state.kernelLeft = work.seconds;
      state.isComputing = true;
      break;
    case Work::Kind::collective:
      start(rank, work);
      break;
    case Work::Kind::wait:
      state.awaited = std::move(state.started[work.ticket]);
      state.started.erase(work.ticket);
      break;
    }
  }
}

/// Transfers end that no member has work left for.
void HostSimulator::settle() {
  std::map<Transfer *, bool> pending;
  for (const RankState &rank : ranks)
    for (const Part &part : rank.parts)
      if (part.transfer->isRunning())
        pending[part.transfer] |= part.left > 0 || part.transfer->latency > 0;
  for (const auto &[transfer, isPending] : pending)
    transfer->isDone = !isPending;
  for (RankState &rank : ranks)
    std::erase_if(rank.parts,
                  [](const Part &part) { return part.transfer->isDone; });
}

/// Lets time pass until something ends; false if nothing runs.
bool HostSimulator::pass() {
  auto isMoving = [](const Part &part) {
    return part.transfer->isRunning() && part.transfer->latency <= 0 &&
           part.left > 0;
  };
  double runnable = 0;
  std::vector<double> moving(ranks.size());
  std::vector<Transfer *> late;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    moving[r] = double(std::ranges::count_if(ranks[r].parts, isMoving));
    runnable +=
        (ranks[r].isComputing ? double(threads) : 0) + (moving[r] > 0 ? 1 : 0);
    for (const Part &part : ranks[r].parts)
      if (part.transfer->isRunning() && part.transfer->latency > 0 &&
          std::ranges::find(late, part.transfer) == late.end())
        late.push_back(part.transfer);
  }
  const double speed =
      runnable > 0 ? std::min(1.0, double(host.cores) / runnable) : 1;
  double step = kNever;
  for (const Transfer *each : late)
    step = std::min(step, each->latency);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].isComputing)
      step = std::min(step, ranks[r].kernelLeft / speed);
    for (const Part &part : ranks[r].parts)
      if (isMoving(part))
        step = std::min(step, part.left * moving[r] / speed);
  }
  if (step == kNever)
    return false;
  now += step;
  // What is within rounding of its end ends now.
  auto take = [](double &left, double amount) {
    left = left - amount <= 1e-12 ? 0 : left - amount;
  };
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    RankState &rank = ranks[r];
    for (Part &part : rank.parts)
      if (isMoving(part))
        take(part.left, step * speed / moving[r]);
    if (rank.isComputing) {
      rank.kernels += step;
      take(rank.kernelLeft, step * speed);
      rank.isComputing = rank.kernelLeft > 0;
    } else if (!rank.isDone) {
      rank.blocked += step;
    }
  }
  for (Transfer *each : late)
    take(each->latency, step);
  return true;
}

bool HostSimulator::run() {
  auto canGo = [](const RankState &rank) {
    return !rank.isComputing && !rank.isDone && !rank.isBlocked();
  };
  auto advanceAll = [&] {
    do {
      for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        advance(rank);
      settle();
    } while (std::ranges::any_of(ranks, canGo));
  };
  auto isDone = [](const RankState &rank) { return rank.isDone; };
  advanceAll();
  while (!std::ranges::all_of(ranks, isDone)) {
    if (!pass())
      return false;
    settle();
    advanceAll();
  }
  return true;
}

HostPrediction HostSimulator::take() const {
  HostPrediction result;
  result.seconds = now;
  result.ranks = std::int64_t(ranks.size());
  result.threads = threads;
  double collectives = 0;
  for (const RankState &rank : ranks) {
    result.kernels += rank.kernels / double(ranks.size());
    result.blocked += rank.blocked / double(ranks.size());
    collectives += double(rank.collectives) / double(ranks.size());
  }
  result.collectives = std::uint64_t(collectives);
  return result;
}

} // namespace

KernelKind kernelKindOf(const artifact::Kernel &kernel) {
  auto isOneOf = [&](std::initializer_list<std::string_view> ops) {
    return kernel.summary() && std::ranges::any_of(ops, [&](auto op) {
             return toView(kernel.summary()).find(op) != std::string_view::npos;
           });
  };
  if (isOneOf({"attention"}))
    return KernelKind::attention;
  if (!isOneOf({"einsum", "grouped_matmul", "grouped_outer"}))
    return KernelKind::elementwise;
  const bool hasBf16 =
      kernel.element_types() &&
      std::ranges::any_of(*kernel.element_types(), [](auto type) {
        return artifact::ElementType(type) == artifact::ElementType::bf16;
      });
  return hasBf16 ? KernelKind::matmulBf16 : KernelKind::matmul;
}

StatusOr<HostPrediction> predictOnHost(const artifact::Artifact &root,
                                       const planner::Host &host,
                                       std::string_view program) {
  HostSimulator simulator(root, host);
  TESSERA_RETURN_IF_ERROR(simulator.load(root, program));
  if (!simulator.run())
    return Status::error("ranks wait for each other's collectives");
  return simulator.take();
}

std::string printPrediction(const HostPrediction &prediction,
                            const planner::Host &host) {
  return fmt::format(
      "predicted step: {} on {} ranks of {} threads that share {} cores: "
      "kernels {}, blocked by {} collectives and other ranks {}\n",
      planner::formatSeconds(prediction.seconds), prediction.ranks,
      prediction.threads, host.cores,
      planner::formatSeconds(prediction.kernels), prediction.collectives,
      planner::formatSeconds(prediction.blocked));
}

} // namespace tessera::report
