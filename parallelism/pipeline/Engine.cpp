#include "parallelism/pipeline/Engine.h"

#include <algorithm>

namespace tessera::pipeline {

/// A time that is not known yet.
static constexpr double never = -1;

Engine::Engine(const Schedule &schedule, const Costs &costs)
    : schedule(schedule), costs(costs), lowered(schedule.isLowered()),
      ranks(size_t(schedule.ranks)), slots(size_t(schedule.ranks)),
      unsharded(size_t(schedule.stages), 0),
      reductionsOf(size_t(schedule.stages), 0) {
  const size_t works =
      size_t(schedule.chainStages()) * size_t(schedule.microbatches);
  for (std::vector<double> *times :
       {&forwardEnd, &inputEnd, &forwardArrival, &backwardArrival})
    times->assign(works, never);
  for (int stage = 0; stage < schedule.stages; ++stage)
    ranks[size_t(schedule.rankOf(stage))].optimizer +=
        costs.stage(stage).optimizer;
  result.spans.resize(size_t(schedule.ranks));
  for (size_t rank = 0; rank < size_t(schedule.ranks); ++rank) {
    result.spans[rank].resize(schedule.lists[rank].size());
    if (lowered)
      slots[rank].resize(size_t(schedule.slots[rank]));
  }
}

size_t Engine::index(const Work &work) const {
  return size_t(work.stage % schedule.chainStages()) *
             size_t(schedule.microbatches) +
         size_t(work.microbatch);
}

/// A gradient is as large as the output that it belongs to.
double Engine::bytes(const Instruction &transfer) const {
  const int stage = transfer.work.stage;
  return costs.stage(transfer.op == Op::SendForward ? stage : stage - 1)
      .outputBytes;
}

Status Engine::run() {
  for (int rank = schedule.ranks; rank-- > 0;)
    wake(rank);
  while (!ready.empty() && failure.ok()) {
    const int rank = ready.back();
    ready.pop_back();
    ranks[size_t(rank)].queued = false;
    const size_t count = schedule.lists[size_t(rank)].size();
    while (ranks[size_t(rank)].next < count && failure.ok() && step(rank)) {
    }
  }
  TESSERA_RETURN_IF_ERROR(failure);
  TESSERA_RETURN_IF_ERROR(deadlock());
  summarize();
  return Status::success();
}

void Engine::wake(int rank) {
  if (!ranks[size_t(rank)].queued)
    ready.push_back(rank);
  ranks[size_t(rank)].queued = true;
}

/// Whether the rank's next instruction could be timed.
bool Engine::step(int rank) {
  Rank &state = ranks[size_t(rank)];
  const Instruction &instruction = schedule.lists[size_t(rank)][state.next];
  switch (instruction.op) {
  case Op::SendForward:
  case Op::SendBackward:
  case Op::RecvForward:
  case Op::RecvBackward:
    return transfer(rank, instruction);
  case Op::Unshard:
    return unshard(rank, instruction);
  case Op::Reshard:
    advance(rank, {state.free, state.free});
    return true;
  case Op::ReduceGrad:
    return reduce(rank, instruction);
  case Op::OptimizerStep:
    return optimizerStep(rank);
  default:
    return compute(rank, instruction);
  }
}

void Engine::advance(int rank, Span span) {
  Rank &state = ranks[size_t(rank)];
  result.spans[size_t(rank)][state.next] = span;
  state.free = std::max(state.free, span.end);
  state.posted = false;
  ++state.next;
}

/// Both sides have reached a transfer or sum: if it overlaps with compute, only
/// its time is recorded; otherwise its rank was blocked and may continue.
void Engine::complete(int rank, int32_t instruction, bool async, Span span) {
  if (async) {
    result.spans[size_t(rank)][size_t(instruction)] = span;
    result.makespan = std::max(result.makespan, span.end);
  } else {
    advance(rank, span);
  }
  wake(rank);
}

/// The sends of an earlier owner must end before the buffer is overwritten.
bool Engine::slotReady(int rank, const Work &work, bool backward,
                       double &start) const {
  if (!lowered)
    return true;
  const Slot &slot = slots[size_t(rank)][size_t(work.buffer)];
  start = std::max(start, slot.free[backward]);
  return slot.sending[backward] == 0;
}

bool Engine::forwardReady(int rank, const Work &work, double &start) const {
  if (!slotReady(rank, work, false, start))
    return false;
  if (schedule.isFirst(work.stage))
    return true;
  const Work before{work.stage - 1, work.microbatch};
  const double input = schedule.crosses(before.stage)
                           ? forwardArrival[index(work)]
                           : forwardEnd[index(before)];
  start = std::max(start, input);
  return input != never;
}

bool Engine::backwardReady(int rank, const Work &work, double &start) const {
  if (!slotReady(rank, work, true, start) || forwardEnd[index(work)] == never)
    return false;
  if (schedule.isLast(work.stage))
    return true;
  const Work after{work.stage + 1, work.microbatch};
  const double gradient = schedule.crosses(work.stage)
                              ? backwardArrival[index(work)]
                              : inputEnd[index(after)];
  start = std::max(start, gradient);
  return gradient != never;
}

bool Engine::isReady(int rank, const Instruction &instruction,
                     double &start) const {
  const Work &work = instruction.work;
  start = std::max(start, unsharded[size_t(work.stage)]);
  switch (instruction.op) {
  case Op::Forward:
    return forwardReady(rank, work, start);
  case Op::Overlap:
    start = std::max(start, unsharded[size_t(instruction.backward.stage)]);
    return forwardReady(rank, work, start) &&
           backwardReady(rank, instruction.backward, start);
  case Op::BackwardWeight:
    return inputEnd[index(work)] != never;
  default:
    return backwardReady(rank, work, start);
  }
}

bool Engine::compute(int rank, const Instruction &instruction) {
  double start = ranks[size_t(rank)].free;
  if (!isReady(rank, instruction, start))
    return false;
  const double end = start + costs.seconds(instruction, rank);
  // Before the sends after it, which name the instruction at `next`.
  if (instruction.op == Op::Forward || instruction.op == Op::Overlap)
    produce(rank, instruction.work, true, end);
  if (instruction.op == Op::Overlap)
    produce(rank, instruction.backward, false, end);
  if (instruction.op == Op::Backward || instruction.op == Op::BackwardInput)
    produce(rank, instruction.work, false, end);
  advance(rank, {start, end});
  return true;
}

void Engine::produce(int rank, const Work &work, bool forward, double end) {
  (forward ? forwardEnd : inputEnd)[index(work)] = end;
  const bool crosses = forward ? schedule.crosses(work.stage)
                               : !schedule.isFirst(work.stage) &&
                                     schedule.crosses(work.stage - 1);
  if (crosses && !lowered)
    sendAtOnce(rank, work, forward, end);
}

Span Engine::occupy(Channel &channel, double ready, int from, int to,
                    double bytes) const {
  const LinkCost &link = costs.linkBetween(from, to);
  const double start = std::max(ready, channel.free);
  channel.free = start + link.perByte * bytes;
  return {start, channel.free + link.latency};
}

void Engine::sendAtOnce(int from, const Work &work, bool forward, double end) {
  const Instruction send{
      forward ? Op::SendForward : Op::SendBackward, work, {}};
  const int to = peerRank(schedule, send);
  Channel &channel = channels[{from, to}];
  const Span span = occupy(channel, end, from, to, bytes(send));
  const Work target{forward ? work.stage + 1 : work.stage - 1, work.microbatch};
  (forward ? forwardArrival : backwardArrival)[index(target)] = span.end;
  result.transfers.push_back(
      {from, to, int32_t(ranks[size_t(from)].next), bytes(send), span});
  wake(to);
}

bool Engine::transfer(int rank, const Instruction &instruction) {
  Rank &state = ranks[size_t(rank)];
  if (state.posted)
    return false;
  const double time = state.free;
  const int other = peerRank(schedule, instruction);
  const bool send = isSend(instruction.op);
  const int from = send ? rank : other, to = send ? other : rank;
  Channel &channel = channels[{from, to}];
  const Post post{int32_t(state.next), time};
  (send ? channel.sends : channel.receives).push_back(post);
  if (send)
    ++slots[size_t(rank)][size_t(instruction.work.buffer)]
          .sending[instruction.op == Op::SendBackward];
  state.posted = true;
  if (costs.asyncTransfers)
    advance(rank, {time, time});
  match(from, to, channel);
  return costs.asyncTransfers;
}

void Engine::match(int from, int to, Channel &channel) {
  if (channel.sends.empty() || channel.receives.empty())
    return;
  const Post sent = channel.sends.front(), received = channel.receives.front();
  channel.sends.pop_front();
  channel.receives.pop_front();
  const Instruction &send =
      schedule.lists[size_t(from)][size_t(sent.instruction)];
  const Instruction &receive =
      schedule.lists[size_t(to)][size_t(received.instruction)];
  const bool forward = send.op == Op::SendForward;
  if (!meets(send, receive)) {
    failure = Status::error(
        "rank {}, position {}: {} meets {} of rank {}, position {}", from,
        sent.instruction, toString(send), toString(receive), to,
        received.instruction);
    return;
  }
  const Span span = occupy(channel, std::max(sent.time, received.time), from,
                           to, bytes(send));
  (forward ? forwardArrival : backwardArrival)[index(receive.work)] = span.end;
  Slot &slot = slots[size_t(from)][size_t(send.work.buffer)];
  --slot.sending[!forward];
  slot.free[!forward] = std::max(slot.free[!forward], span.end);
  result.transfers.push_back({from, to, sent.instruction, bytes(send), span});
  complete(from, sent.instruction, costs.asyncTransfers, span);
  complete(to, received.instruction, costs.asyncTransfers, span);
}

bool Engine::unshard(int rank, const Instruction &instruction) {
  Rank &state = ranks[size_t(rank)];
  const int stage = instruction.work.stage;
  const double start = std::max(state.free, state.collectives);
  const Span span{start, start + costs.stage(stage).unshard};
  unsharded[size_t(stage)] = state.collectives = span.end;
  const double free = state.free;
  advance(rank, span);
  if (costs.asyncCollectives)
    state.free = free;
  return true;
}

bool Engine::reduce(int rank, const Instruction &instruction) {
  Rank &state = ranks[size_t(rank)];
  if (state.posted)
    return false;
  const int stage = instruction.work.stage;
  Reduction &reduction = reductions[{stage % schedule.chainStages(),
                                     reductionsOf[size_t(stage)]++}];
  reduction.posts.push_back({rank, {int32_t(state.next), state.free}});
  ++state.reductions;
  state.posted = true;
  if (costs.asyncCollectives)
    advance(rank, {state.free, state.free});
  if (reduction.posts.size() < size_t(schedule.replicas))
    return costs.asyncCollectives;
  double start = 0;
  for (const auto &[each, post] : reduction.posts)
    start = std::max({start, post.time, ranks[size_t(each)].collectives});
  const Span span{start, start + costs.stage(stage).reduceGrad};
  for (const auto &[each, post] : reduction.posts) {
    Rank &member = ranks[size_t(each)];
    member.collectives = span.end;
    member.reduced = std::max(member.reduced, span.end);
    --member.reductions;
    complete(each, post.instruction, costs.asyncCollectives, span);
  }
  return costs.asyncCollectives;
}

bool Engine::optimizerStep(int rank) {
  const Rank &state = ranks[size_t(rank)];
  if (state.reductions > 0)
    return false;
  const double start = std::max(state.free, state.reduced);
  advance(rank, {start, start + state.optimizer});
  return true;
}

Status Engine::deadlock() const {
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const Rank &state = ranks[size_t(rank)];
    const InstructionList &list = schedule.lists[size_t(rank)];
    if (state.next == list.size())
      continue;
    const Instruction &waiting = list[state.next];
    std::string other;
    if (isSend(waiting.op) || isReceive(waiting.op)) {
      const int to = peerRank(schedule, waiting);
      const size_t at = ranks[size_t(to)].next;
      const InstructionList &theirs = schedule.lists[size_t(to)];
      other = at < theirs.size()
                  ? fmt::format(" for rank {}, which is at position {}: {}", to,
                                at, toString(theirs[at]))
                  : fmt::format(" for rank {}, which is at its end", to);
    }
    return Status::error("rank {}, position {}: {} waits forever{}", rank,
                         state.next, toString(waiting), other);
  }
  return Status::success();
}

} // namespace tessera::pipeline
