#include "parallelism/pipeline/Lower.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <set>

#include "parallelism/pipeline/Check.h"
#include "parallelism/pipeline/GatherParameters.h"
#include "parallelism/pipeline/Simulate.h"

namespace tessera::pipeline {
namespace {

/// A node of the one order: an instruction, a transfer, or the sum of a stage's
/// gradients over its replicas.
struct Event {
  double time;
  /// The instructions that its ranks add to their lists.
  std::vector<std::pair<int, Instruction>> parts;
  int waitsFor = 0; ///< events before it that are not placed yet
  std::vector<size_t> followers;
};

class EventOrder {
public:
  EventOrder(const Schedule &schedule, const Simulation &timing, bool ahead)
      : schedule(schedule), timing(timing), ahead(ahead),
        lastBackward(size_t(schedule.chainStages())) {
    addCompute();
    addTransfers();
    if (!schedule.forwardOnly)
      addReductions();
  }

  /// The lists of all ranks, OPT_STEP at their ends if anything went back.
  std::vector<InstructionList> cut();

private:
  void addCompute();
  void addTransfers();
  void addReductions();
  void addTransfer(bool forward, const Work &work, size_t producer);
  void follow(size_t before, size_t after) {
    events[before].followers.push_back(after);
    ++events[after].waitsFor;
  }
  size_t key(const Work &work) const {
    return size_t(work.stage % schedule.chainStages()) *
               size_t(schedule.microbatches) +
           size_t(work.microbatch);
  }

  const Schedule &schedule;
  const Simulation &timing;
  const bool ahead;
  std::vector<Event> events;
  std::vector<double> ends; ///< of the compute events, which come first
  std::vector<size_t> forwardOf, backwardOf; ///< events that hold F, and B or I
  /// Of each stage of a chain: the last backward of each replica.
  std::vector<std::map<int, size_t>> lastBackward;
};

} // namespace

void EventOrder::addCompute() {
  const size_t works =
      size_t(schedule.chainStages()) * size_t(schedule.microbatches);
  forwardOf.resize(works);
  backwardOf.resize(works);
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const InstructionList &list = schedule.lists[size_t(rank)];
    for (size_t k = 0; k < list.size(); ++k) {
      const Instruction &each = list[k];
      const Span span = timing.spans[size_t(rank)][k];
      const size_t event = events.size();
      // Ordered by ends, values sent while a rank computes are received before
      // that computation.
      events.push_back({ahead ? span.end : span.start, {{rank, each}}, 0, {}});
      ends.push_back(span.end);
      if (k > 0)
        follow(event - 1, event);
      const Work &back = each.op == Op::Overlap ? each.backward : each.work;
      if (each.op == Op::Forward || each.op == Op::Overlap)
        forwardOf[key(each.work)] = event;
      if (each.op == Op::Backward || each.op == Op::BackwardInput ||
          each.op == Op::Overlap)
        backwardOf[key(back)] = event;
      if (each.op != Op::Forward)
        lastBackward[size_t(back.stage % schedule.chainStages())][back.stage] =
            event;
    }
  }
}

void EventOrder::addTransfer(bool forward, const Work &work, size_t producer) {
  const Work target{work.stage + (forward ? 1 : -1), work.microbatch};
  const size_t consumer = (forward ? forwardOf : backwardOf)[key(target)];
  const int from = schedule.rankOf(work.stage);
  const int to = schedule.rankOf(target.stage);
  if (from == to)
    return follow(producer, consumer);
  const size_t event = events.size();
  const Op send = forward ? Op::SendForward : Op::SendBackward;
  const Op receive = forward ? Op::RecvForward : Op::RecvBackward;
  events.push_back({ends[producer],
                    {{from, {send, work, {}}}, {to, {receive, target, {}}}},
                    0,
                    {}});
  follow(producer, event);
  follow(event, consumer);
}

void EventOrder::addTransfers() {
  for (size_t producer = 0; producer < ends.size(); ++producer) {
    const Instruction each = events[producer].parts.front().second;
    const bool both = each.op == Op::Overlap;
    if ((each.op == Op::Forward || both) && !schedule.isLast(each.work.stage))
      addTransfer(true, each.work, producer);
    const Work &back = both ? each.backward : each.work;
    if ((each.op == Op::Backward || each.op == Op::BackwardInput || both) &&
        !schedule.isFirst(back.stage))
      addTransfer(false, back, producer);
  }
}

void EventOrder::addReductions() {
  for (const std::map<int, size_t> &replicas : lastBackward) {
    const size_t event = events.size();
    events.push_back({0, {}, 0, {}});
    for (const auto &[stage, last] : replicas) {
      events[event].time = std::max(events[event].time, ends[last]);
      events[event].parts.push_back(
          {schedule.rankOf(stage), {Op::ReduceGrad, {stage}, {}}});
      follow(last, event);
    }
  }
}

std::vector<InstructionList> EventOrder::cut() {
  // At equal times transfers precede compute, so that they overlap with it.
  using Entry = std::tuple<double, bool, size_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  auto push = [&](size_t event) {
    ready.emplace(events[event].time, event < ends.size(), event);
  };
  for (size_t event = 0; event < events.size(); ++event)
    if (events[event].waitsFor == 0)
      push(event);
  std::vector<InstructionList> lists(size_t(schedule.ranks));
  while (!ready.empty()) {
    const size_t event = std::get<2>(ready.top());
    ready.pop();
    for (const auto &[rank, instruction] : events[event].parts)
      lists[size_t(rank)].push_back(instruction);
    for (size_t follower : events[event].followers)
      if (--events[follower].waitsFor == 0)
        push(follower);
  }
  if (!schedule.forwardOnly)
    for (InstructionList &list : lists)
      list.push_back({Op::OptimizerStep, {}, {}});
  return lists;
}

/// Numbers the slots of one list and returns their count. A slot is freed at
/// the last use, and the lowest free one is taken: no more are needed than are
/// in use at one time.
static int assignBuffers(InstructionList &list) {
  using Key = std::pair<int32_t, int32_t>;
  std::map<Key, size_t> lastUse;
  auto forEach = [](Instruction &each, auto visit) {
    for (Work *work : {&each.work, &each.backward})
      if (work->microbatch >= 0)
        visit(*work);
  };
  for (size_t k = 0; k < list.size(); ++k)
    forEach(list[k],
            [&](Work &work) { lastUse[{work.stage, work.microbatch}] = k; });
  std::map<Key, int32_t> slotOf;
  std::set<int32_t> free;
  int slots = 0;
  for (size_t k = 0; k < list.size(); ++k) {
    forEach(list[k], [&](Work &work) {
      auto [held, first] = slotOf.try_emplace({work.stage, work.microbatch});
      if (first && free.empty())
        free.insert(slots++);
      if (first)
        held->second = free.extract(free.begin()).value();
      work.buffer = held->second;
    });
    forEach(list[k], [&](Work &work) {
      if (lastUse[{work.stage, work.microbatch}] == k)
        free.insert(work.buffer);
    });
  }
  return slots;
}

StatusOr<Schedule> lower(const Schedule &compute, const LowerOptions &options) {
  if (compute.isLowered())
    return Status::error("the schedule is lowered already; expected one of "
                         "compute only");
  TESSERA_RETURN_IF_ERROR(check(compute));
  Costs costs = options.costs;
  costs.asyncTransfers = true; // lists of compute have no blocking transfers
  StatusOr<Simulation> timing = simulate(compute, costs);
  if (!timing.ok())
    return timing.status();
  Schedule lowered = compute;
  lowered.lists =
      EventOrder(compute, *timing, options.costs.asyncTransfers).cut();
  if (options.unsharded > 0)
    for (InstructionList &list : lowered.lists)
      TESSERA_RETURN_IF_ERROR(gatherParameters(list, options.unsharded));
  for (InstructionList &list : lowered.lists)
    lowered.slots.push_back(assignBuffers(list));
  return lowered;
}

} // namespace tessera::pipeline
