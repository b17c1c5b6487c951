#include "parallelism/pipeline/ListScheduler.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace tessera::pipeline {

static constexpr double unknown = std::numeric_limits<double>::infinity();

ListScheduler::ListScheduler(const Policy &policy, const Shape &shape,
                             const Costs &costs, int memory, double patience,
                             Schedule empty)
    : policy(policy), shape(shape), costs(costs), patience(patience),
      schedule(std::move(empty)), ranks(size_t(shape.ranks)) {
  const size_t works =
      size_t(schedule.chainStages()) * size_t(schedule.microbatches);
  forwardReady.assign(works, unknown);
  backwardReady.assign(works, unknown);
  std::vector<int> order(size_t(schedule.stages));
  for (int stage = 0; stage < schedule.stages; ++stage)
    order[size_t(stage)] = stage;
  std::ranges::sort(order, {}, [&](int stage) {
    return std::pair(stage % schedule.chainStages(), stage);
  });
  for (int stage : order)
    ranks[size_t(schedule.rankOf(stage))].stages.push_back(stage);
  for (int microbatch = 0; microbatch < schedule.microbatches; ++microbatch)
    forwardReady[index(0, microbatch)] = 0;
  for (int r = 0; r < shape.ranks; ++r) {
    Rank &rank = ranks[size_t(r)];
    rank.forwards.assign(rank.stages.size(), 0);
    rank.backwards.assign(rank.stages.size(), 0);
    rank.inFlightLimit = policy.inFlight.of(shape.ranks, r, shape.chunks);
    rank.liveLimit = policy.live.of(shape.ranks, r, shape.chunks);
    if (memory > 0)
      rank.liveLimit = std::min(rank.liveLimit, memory);
    expandPhases(r);
    events.emplace(0, r);
  }
  for (const StageCost &cost : costs.stages)
    tolerance = std::max({tolerance, cost.forward, cost.backward,
                          cost.backwardInput, cost.backwardWeight});
  tolerance *= 1e-9;
}

void ListScheduler::expandPhases(int r) {
  std::vector<Move> &moves = ranks[size_t(r)].moves;
  for (const Phase &phase : policy.phases)
    for (int turn = 0; turn < phase.count(policy.placement, shape, r); ++turn)
      moves.insert(moves.end(), phase.moves.begin(), phase.moves.end());
}

size_t ListScheduler::index(int stage, int microbatch) const {
  return size_t(stage % schedule.chainStages()) *
             size_t(schedule.microbatches) +
         size_t(microbatch);
}

// Chain k has the microbatches b with ⌊b·replicas/microbatches⌋ = k.
int ListScheduler::firstMicrobatch(int stage) const {
  const int64_t chain = stage / schedule.chainStages();
  return int((chain * schedule.microbatches + schedule.replicas - 1) /
             schedule.replicas);
}

int ListScheduler::microbatchesOf(int stage) const {
  return firstMicrobatch(stage + schedule.chainStages()) -
         firstMicrobatch(stage);
}

Status ListScheduler::run() {
  while (!events.empty()) {
    const auto [now, rank] = events.top();
    events.pop();
    if (ranks[size_t(rank)].free <= now + tolerance)
      decide(rank, now);
  }
  for (int r = 0; r < shape.ranks; ++r) {
    const Rank &rank = ranks[size_t(r)];
    int64_t wanted = 0;
    for (int stage : rank.stages)
      wanted += microbatchesOf(stage);
    if (rank.backwardsDone != wanted)
      return Status::error(
          "{}: {} live activations are not enough for rank {} of {} with {} "
          "chunks; allow more",
          policy.name, rank.liveLimit, r, shape.ranks, shape.chunks);
  }
  return Status::success();
}

ListScheduler::Candidate ListScheduler::inOrder(const Rank &rank, int64_t next,
                                                bool backward) const {
  // Groups of p microbatches go through one chunk after the other; the last
  // group is what is left (Narayanan et al. 2021, section 2.2).
  const int chunks = shape.chunks;
  if (next >= int64_t(chunks) * shape.microbatches)
    return {};
  const int64_t group = next / (int64_t(chunks) * shape.ranks);
  const int64_t first = group * shape.ranks;
  const int64_t size =
      std::min<int64_t>(shape.ranks, shape.microbatches - first);
  const int64_t offset = next - first * chunks;
  const int chunk = int(offset / size);
  Candidate found;
  found.stage = rank.stages[size_t(backward ? chunks - 1 - chunk : chunk)];
  found.microbatch = int(first + offset % size);
  const size_t place = index(found.stage, found.microbatch);
  found.ready = backward ? backwardReady[place] : forwardReady[place];
  return found;
}

bool ListScheduler::fits(const Rank &rank, const Candidate &forward) const {
  // If the order of forwards is free, one slot is reserved for each later stage
  // of the chain: the first stages could otherwise fill the memory and wait
  // forever.
  int later = 0;
  for (int stage : rank.stages)
    later +=
        policy.placement != Placement::Loop &&
        stage % schedule.chainStages() > forward.stage % schedule.chainStages();
  return rank.inFlight + later < rank.inFlightLimit &&
         rank.live + later < rank.liveLimit;
}

ListScheduler::Candidate ListScheduler::nextAt(const Rank &rank, size_t place,
                                               bool backward) const {
  const int done = (backward ? rank.backwards : rank.forwards)[place];
  Candidate next;
  if (done == microbatchesOf(rank.stages[place]))
    return next;
  next.stage = rank.stages[place];
  next.microbatch = firstMicrobatch(next.stage) + done;
  next.ready = (backward ? backwardReady
                         : forwardReady)[index(next.stage, next.microbatch)];
  return next;
}

ListScheduler::Candidate
ListScheduler::amongStages(const Rank &rank, bool backward, double now) const {
  Candidate best;
  // From the end of the chain, because others wait for its results.
  for (size_t place = rank.stages.size(); place-- > 0;) {
    const Candidate each = nextAt(rank, place, backward);
    if (!each.exists() || (!backward && !fits(rank, each)))
      continue;
    if (!best.exists() || std::max(each.ready, now + tolerance) <
                              std::max(best.ready, now + tolerance))
      best = each;
  }
  return best;
}

ListScheduler::Candidate ListScheduler::nextForward(const Rank &rank,
                                                    double now) const {
  if (policy.placement != Placement::Loop)
    return amongStages(rank, false, now);
  return inOrder(rank, rank.forwardsDone, false);
}

ListScheduler::Candidate ListScheduler::nextBackward(const Rank &rank,
                                                     double now) const {
  if (policy.placement != Placement::Loop)
    return amongStages(rank, true, now);
  return inOrder(rank, rank.backwardsDone, true);
}

void ListScheduler::fill(int r, double now, double next, bool blocked) {
  const Rank &rank = ranks[size_t(r)];
  if (rank.weights.empty())
    return;
  const Work weight = rank.weights.front();
  const double seconds = costs.stage(weight.stage).backwardWeight;
  if (blocked || next - now + tolerance >= patience * seconds)
    issue(r, now, Op::BackwardWeight, {weight.stage, weight.microbatch, now});
}

bool ListScheduler::isReady(const Candidate &each, double now) const {
  return each.exists() && each.ready <= now + tolerance;
}

void ListScheduler::decide(int r, double now) {
  Rank &rank = ranks[size_t(r)];
  if (!rank.moves.empty())
    return decideInOrder(r, now);
  const Candidate forward = nextForward(rank, now);
  const Candidate backward = nextBackward(rank, now);
  const bool fit = forward.exists() && fits(rank, forward);
  const bool hasForward = fit && isReady(forward, now);
  const bool hasBackward = isReady(backward, now);
  const bool backwardFirst =
      policy.prefer == Prefer::Backward ||
      (policy.prefer == Prefer::Alternate && rank.lastWasForward);
  if (hasBackward && (backwardFirst || !hasForward))
    return issue(r, now,
                 policy.splitBackward ? Op::BackwardInput : Op::Backward,
                 backward);
  if (hasForward)
    return issue(r, now, Op::Forward, forward);
  double next = backward.exists() ? backward.ready : unknown;
  if (fit)
    next = std::min(next, forward.ready);
  // Does not wait for a forward that lacks only memory: W frees some.
  fill(r, now, next, isReady(forward, now));
}

void ListScheduler::decideInOrder(int r, double now) {
  Rank &rank = ranks[size_t(r)];
  if (rank.nextMove == rank.moves.size())
    return fill(r, now, unknown, false);
  const Move move = rank.moves[rank.nextMove];
  Candidate forward, backward;
  if (move.forward != Side::None)
    forward = nextAt(rank, size_t(move.forward == Side::Other), false);
  if (move.backward != Side::None)
    backward = nextAt(rank, size_t(move.backward == Side::Other), true);
  const double next = std::max(forward.ready, backward.ready);
  // An OVERLAP adds gradients of weights: those of earlier microbatches come
  // before, so that sums have the order of microbatches.
  const bool isLate =
      forward.exists() && std::ranges::any_of(rank.weights, [&](const Work &w) {
        return w.stage == backward.stage;
      });
  const bool room =
      !isLate && (!forward.exists() || rank.live < rank.liveLimit);
  if (next > now + tolerance || !room)
    return fill(r, now, next, !room);
  ++rank.nextMove;
  if (forward.exists() && backward.exists())
    return issue(r, now, Op::Overlap, forward, &backward);
  if (forward.exists())
    return issue(r, now, Op::Forward, forward);
  issue(r, now, policy.splitBackward ? Op::BackwardInput : Op::Backward,
        backward);
}

void ListScheduler::issue(int r, double now, Op op, const Candidate &work,
                          const Candidate *backward) {
  Rank &rank = ranks[size_t(r)];
  Instruction instruction{op, {work.stage, work.microbatch}, {}};
  if (backward)
    instruction.backward = {backward->stage, backward->microbatch};
  const double end = now + costs.seconds(instruction, r);
  schedule.lists[size_t(r)].push_back(instruction);
  rank.free = end;
  if (op == Op::Forward || op == Op::Overlap)
    finishForward(r, work, end);
  if (backward)
    finishBackward(r, Op::Backward, *backward, end);
  if (op == Op::Backward || op == Op::BackwardInput)
    finishBackward(r, op, work, end);
  if (op == Op::BackwardWeight) {
    rank.weights.pop_front();
    --rank.live;
  }
  events.emplace(end, r);
}

void ListScheduler::arrive(std::vector<double> &ready, int from, int stage,
                           int microbatch, double end, double bytes) {
  const int to = schedule.rankOf(stage);
  if (to != from) {
    const LinkCost &link = costs.linkBetween(from, to);
    end += link.latency + link.perByte * bytes;
  }
  ready[index(stage, microbatch)] = end;
  events.emplace(end, to);
}

void ListScheduler::finishForward(int r, const Candidate &work, double end) {
  Rank &rank = ranks[size_t(r)];
  const size_t place =
      size_t(std::ranges::find(rank.stages, work.stage) - rank.stages.begin());
  ++rank.forwards[place];
  ++rank.forwardsDone;
  ++rank.inFlight;
  ++rank.live;
  rank.lastWasForward = true;
  if (schedule.isLast(work.stage))
    backwardReady[index(work.stage, work.microbatch)] = end;
  else
    arrive(forwardReady, r, work.stage + 1, work.microbatch, end,
           costs.stage(work.stage).outputBytes);
}

void ListScheduler::finishBackward(int r, Op op, const Candidate &work,
                                   double end) {
  Rank &rank = ranks[size_t(r)];
  const size_t place =
      size_t(std::ranges::find(rank.stages, work.stage) - rank.stages.begin());
  ++rank.backwards[place];
  ++rank.backwardsDone;
  --rank.inFlight;
  rank.lastWasForward = false;
  if (op == Op::BackwardInput)
    rank.weights.push_back({work.stage, work.microbatch});
  else
    --rank.live;
  if (!schedule.isFirst(work.stage))
    arrive(backwardReady, r, work.stage - 1, work.microbatch, end,
           costs.stage(work.stage - 1).outputBytes);
}

} // namespace tessera::pipeline
