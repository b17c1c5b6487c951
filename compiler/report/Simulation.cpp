#include "compiler/report/Simulation.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>

#include "runtime/artifact/ArtifactReader.h"
#include "runtime/artifact/ElementTypes.h"
#include "runtime/artifact/Shares.h"

namespace tessera::report {

using artifact::toView;

namespace {

/// A collective that a rank has reached, and what it waits for: the n-th over
/// the same axes of all members, or the n-th message from other shares.
struct Pending {
  const StepView *step;
  double arrival, seconds;
  std::vector<std::size_t> members; ///< shares; of permutations none
  std::size_t number = 0;
  std::vector<std::pair<std::size_t, std::size_t>> receives; ///< share, number
};

/// A rank of a share on its way through the program.
class Walker {
public:
  Walker(const artifact::Share &share, std::vector<StepView> all)
      : share(share), steps(std::move(all)) {
    lane.share = &share;
    for (std::size_t i = 0; i < steps.size(); ++i)
      byNumber.resize(std::max<std::size_t>(byNumber.size(), steps[i].end + 1),
                      steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i)
      byNumber[steps[i].begin] = i;
  }
  /// Runs up to the next collective, or to a wait for one that has no end yet;
  /// null once all is done.
  const StepView *advance();
  /// Whether a collective that was not only started has no end yet.
  bool isBlocked() const {
    return !pending.empty() &&
           pending.back().step->node->step_as_Collective()->ticket() == 0;
  }
  void record(const StepView &step, double start, double duration);
  std::uint64_t unrolledSteps() const;

  const artifact::Share &share;
  Lane lane;
  double now = 0;                       ///< of the stream of kernels
  double streamFree = 0;                ///< of the stream of collectives
  std::map<std::uint32_t, double> ends; ///< of started collectives, by ticket
  std::deque<Pending> pending;          ///< collectives without end, in order
  std::uint64_t leftOut = 0;
  bool isDone = false;

private:
  struct Loop {
    std::size_t step; ///< of `steps`
    std::uint64_t iteration = 0;
  };
  std::uint32_t bodyEnd() const {
    return loops.empty() ? std::uint32_t(byNumber.size())
                         : steps[loops.back().step].end;
  }
  bool isShown() const {
    return std::ranges::all_of(loops, [](const Loop &loop) {
      return loop.iteration < kShownIterations;
    });
  }
  void run(const StepView &step);

  std::vector<StepView> steps;
  std::vector<std::size_t> byNumber;
  std::vector<Loop> loops;
  std::uint32_t next = 0; ///< number of the next step
};

std::uint64_t Walker::unrolledSteps() const {
  std::uint64_t sum = 0;
  for (const StepView &step : steps)
    if (__builtin_add_overflow(sum, step.runs, &sum))
      return ~std::uint64_t(0);
  return sum;
}

void Walker::record(const StepView &step, double start, double duration) {
  if (!isShown())
    return;
  lane.events.push_back({step.begin, step.node->step_as_Collective() != nullptr,
                         start, duration});
}

void Walker::run(const StepView &step) {
  if (const auto *wait = step.node->step_as_Wait()) {
    const double end = ends[wait->ticket()];
    ends.erase(wait->ticket());
    if (end > now) {
      lane.exposed += end - now;
      now = end;
    }
    return;
  }
  record(step, now, step.seconds);
  lane.busy += step.seconds;
  now += step.seconds;
}

const StepView *Walker::advance() {
  while (true) {
    if (next == bodyEnd()) {
      if (loops.empty())
        return nullptr;
      Loop &loop = loops.back();
      const StepView &step = steps[loop.step];
      if (++loop.iteration < step.node->step_as_Loop()->trip()) {
        leftOut += loop.iteration >= kShownIterations;
        next = step.begin + 1;
      } else {
        next = step.end + 1;
        loops.pop_back();
      }
      continue;
    }
    const StepView &step = steps[byNumber[next]];
    if (const auto *wait = step.node->step_as_Wait();
        wait && !ends.count(wait->ticket()))
      return &step;
    ++next;
    if (step.node->step_as_Loop())
      loops.push_back({byNumber[step.begin]});
    else if (step.node->step_as_Collective())
      return &step;
    else
      run(step);
  }
}

class Simulator {
public:
  Simulator(const artifact::Artifact &root, std::vector<Walker> all)
      : mesh(root), walkers(std::move(all)) {
    shareOf.resize(mesh.ranks());
    for (std::size_t s = 0; s < walkers.size(); ++s)
      for (const std::uint32_t rank : *walkers[s].share.ranks())
        shareOf[rank] = s;
  }
  /// False if some wait for each other.
  bool run();
  ProgramTimeline take();

private:
  using Axes = std::vector<std::uint32_t>;

  bool go(std::size_t share);
  void start(std::size_t share, const StepView &step);
  void exchange(std::size_t share, const artifact::Collective &one,
                const std::vector<std::uint32_t> &group, Pending &pending);
  bool finish(std::size_t share);
  bool dropMessage();
  std::optional<double> startOf(std::size_t share, const Pending &pending);

  artifact::Mesh mesh;
  std::vector<Walker> walkers;
  std::vector<std::size_t> shareOf; ///< by rank
  /// When shares arrived at their collectives over axes, by share.
  std::map<Axes, std::map<std::size_t, std::vector<double>>> arrivals;
  /// When messages of permutations were sent, and how many are received, by
  /// sender and receiver.
  std::map<std::pair<std::size_t, std::size_t>, std::vector<double>> sent;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> received;
};

// A permutation is the affair of sender and receiver: others pass by.
void Simulator::exchange(std::size_t share, const artifact::Collective &one,
                         const std::vector<std::uint32_t> &group,
                         Pending &pending) {
  const std::uint32_t rank = walkers[share].share.ranks()->Get(0);
  bool takesPart = false;
  for (std::size_t member = 0; member < group.size(); ++member) {
    const std::int32_t target =
        one.targets()->Get(static_cast<flatbuffers::uoffset_t>(member));
    if (target < 0)
      continue;
    const std::uint32_t to = group[static_cast<std::size_t>(target)];
    if (group[member] == rank) {
      takesPart = true;
      sent[{share, shareOf[to]}].push_back(pending.arrival);
    }
    if (to == rank) {
      takesPart = true;
      const std::size_t from = shareOf[group[member]];
      pending.receives.emplace_back(from, received[{from, share}]++);
    }
  }
  if (!takesPart)
    pending.seconds = 0;
}

void Simulator::start(std::size_t share, const StepView &step) {
  Walker &walker = walkers[share];
  const auto &one = *step.node->step_as_Collective();
  const Axes axes(one.axes()->begin(), one.axes()->end());
  const std::vector<std::uint32_t> group =
      mesh.groupOf(walker.share.ranks()->Get(0), axes);
  Pending pending{&step, walker.now, step.seconds, {}, 0, {}};
  if (one.kind() == artifact::CollectiveKind::permute && one.targets()) {
    exchange(share, one, group, pending);
  } else {
    for (const std::uint32_t rank : group)
      pending.members.push_back(shareOf[rank]);
    std::vector<double> &own = arrivals[axes][share];
    pending.number = own.size();
    own.push_back(walker.now);
  }
  walker.pending.push_back(std::move(pending));
}

// When it starts; nothing if a member has not arrived yet.
std::optional<double> Simulator::startOf(std::size_t share,
                                         const Pending &pending) {
  double start = std::max(pending.arrival, walkers[share].streamFree);
  const auto &one = *pending.step->node->step_as_Collective();
  const Axes axes(one.axes()->begin(), one.axes()->end());
  for (const std::size_t member : pending.members) {
    const std::vector<double> &there = arrivals[axes][member];
    if (there.size() <= pending.number)
      return std::nullopt;
    start = std::max(start, there[pending.number]);
  }
  for (const auto &[from, number] : pending.receives) {
    const std::vector<double> &there = sent[{from, share}];
    if (there.size() <= number)
      return std::nullopt;
    start = std::max(start, there[number]);
  }
  return start;
}

bool Simulator::finish(std::size_t share) {
  Walker &walker = walkers[share];
  bool moved = false;
  while (!walker.pending.empty()) {
    const Pending &first = walker.pending.front();
    const std::optional<double> start = startOf(share, first);
    if (!start)
      break;
    const double end = *start + first.seconds;
    walker.record(*first.step, *start, first.seconds);
    walker.lane.collectives += first.seconds;
    walker.streamFree = end;
    if (const auto ticket = first.step->node->step_as_Collective()->ticket()) {
      walker.ends[ticket] = end;
    } else {
      walker.lane.exposed += end - walker.now;
      walker.now = end;
    }
    walker.pending.pop_front();
    moved = true;
  }
  return moved;
}

bool Simulator::go(std::size_t share) {
  Walker &walker = walkers[share];
  bool moved = finish(share);
  while (!walker.isBlocked() && !walker.isDone) {
    const StepView *step = walker.advance();
    if (!step)
      walker.isDone = true;
    else if (step->node->step_as_Wait()) {
      if (!finish(share))
        return moved;
    } else {
      start(share, *step);
      finish(share);
    }
    moved = true;
  }
  return moved;
}

// One rank represents all of a share. Where their senders are in different
// shares a message can have no sender here: the earliest that is missing one
// does not wait for it.
bool Simulator::dropMessage() {
  Walker *earliest = nullptr;
  for (Walker &walker : walkers)
    if (!walker.pending.empty() && !walker.pending.front().receives.empty() &&
        (!earliest || walker.now < earliest->now))
      earliest = &walker;
  if (earliest)
    earliest->pending.front().receives.clear();
  return earliest != nullptr;
}

bool Simulator::run() {
  bool moved = true;
  while (moved) {
    moved = false;
    for (std::size_t s = 0; s < walkers.size(); ++s)
      moved |= go(s);
    moved = moved || dropMessage();
  }
  return std::ranges::all_of(walkers, [](const Walker &walker) {
    return walker.isDone && walker.pending.empty();
  });
}

ProgramTimeline Simulator::take() {
  ProgramTimeline timeline;
  for (Walker &walker : walkers) {
    timeline.makespan =
        std::max({timeline.makespan, walker.now, walker.streamFree});
    timeline.leftOut += walker.leftOut;
    std::ranges::sort(walker.lane.events, {}, [](const StepEvent &event) {
      return std::pair(event.start, event.step);
    });
    timeline.lanes.push_back(std::move(walker.lane));
  }
  return timeline;
}

double nanoseconds(double seconds) { return std::round(seconds * 1e9); }

} // namespace

StatusOr<ProgramTimeline> simulate(const ReportInput &input,
                                   std::string_view program) {
  std::vector<Walker> walkers;
  std::uint64_t all = 0;
  for (const artifact::Share *share : *input.root.shares()) {
    const artifact::DeviceCode &code = deviceOf(input, *share);
    const artifact::Program *found = artifact::findProgram(code, program);
    if (!found)
      return Status::error("no program '{}'", program);
    walkers.emplace_back(*share, stepsOf(input, code, *found));
    const std::uint64_t unrolled = walkers.back().unrolledSteps();
    if (unrolled > kMostSimulatedSteps ||
        (all += unrolled) > kMostSimulatedSteps)
      return Status::error("more than {} steps with loops unrolled",
                           kMostSimulatedSteps);
  }
  Simulator simulator(input.root, std::move(walkers));
  if (!simulator.run())
    return Status::error("ranks wait for each other's collectives");
  return simulator.take();
}

Json timelineJson(const ProgramTimeline &timeline) {
  Json lanes = Json::array();
  for (const Lane &lane : timeline.lanes) {
    for (const bool collective : {false, true}) {
      Json events = Json::array();
      for (const StepEvent &event : lane.events)
        if (event.collective == collective)
          events.push_back({nanoseconds(event.start),
                            nanoseconds(event.duration), event.step});
      if (collective && events.empty())
        continue;
      lanes.push_back({{"share", &lane - timeline.lanes.data()},
                       {"collectives", collective},
                       {"busy", lane.busy},
                       {"exposed", lane.exposed},
                       {"collectiveSeconds", lane.collectives},
                       {"events", std::move(events)}});
    }
  }
  return {{"makespan", timeline.makespan},
          {"leftOut", timeline.leftOut},
          {"lanes", std::move(lanes)}};
}

/// Names tracks and adds the events of one lane.
static void addTrace(Json &events, std::size_t process, std::size_t track,
                     const artifact::DeviceCode &code,
                     const std::vector<StepView> &steps, const Lane &lane) {
  std::map<std::uint32_t, const StepView *> byNumber;
  for (const StepView &step : steps)
    byNumber[step.begin] = &step;
  constexpr double kMicroseconds = 1e6;
  for (const StepEvent &event : lane.events) {
    const artifact::Node &node = *byNumber[event.step]->node;
    Json args = {{"origin", toView(node.origin())}, {"step", event.step}};
    if (node.layer() >= 0)
      args["layer"] = node.layer();
    events.push_back({{"ph", "X"},
                      {"name", nameOf(code, node)},
                      {"cat", event.collective  ? "collective"
                              : node.backward() ? "backward"
                                                : "forward"},
                      {"pid", process},
                      {"tid", 2 * track + event.collective},
                      {"ts", event.start * kMicroseconds},
                      {"dur", event.duration * kMicroseconds},
                      {"args", std::move(args)}});
  }
}

std::string traceText(
    const ReportInput &input,
    const std::vector<std::pair<std::string, ProgramTimeline>> &programs) {
  Json events = Json::array();
  auto name = [&](const char *what, std::size_t process, std::size_t track,
                  const std::string &title) {
    events.push_back({{"ph", "M"},
                      {"name", what},
                      {"pid", process},
                      {"tid", track},
                      {"args", {{"name", title}}}});
  };
  for (std::size_t p = 0; p < programs.size(); ++p) {
    const auto &[program, timeline] = programs[p];
    name("process_name", p, 0, program);
    for (std::size_t l = 0; l < timeline.lanes.size(); ++l) {
      const Lane &lane = timeline.lanes[l];
      const std::string rank =
          fmt::format("rank {}", lane.share->ranks()->Get(0));
      name("thread_name", p, 2 * l, rank);
      if (lane.collectives > 0)
        name("thread_name", p, 2 * l + 1, rank + " collectives");
      const artifact::DeviceCode &code = deviceOf(input, *lane.share);
      addTrace(events, p, l, code,
               stepsOf(input, code, *artifact::findProgram(code, program)),
               lane);
    }
  }
  const Machine &machine = input.clock.machine();
  const Json trace = {{"traceEvents", std::move(events)},
                      {"displayTimeUnit", "ms"},
                      {"otherData",
                       {{"times", fmt::format("estimated for {} ({})",
                                              machine.name, machine.source)}}}};
  return trace.dump(-1, ' ', false, Json::error_handler_t::replace);
}

} // namespace tessera::report
