#include "parallelism/pipeline/Schedule.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace tessera::pipeline {

static constexpr std::array<std::string_view, opCount> names = {
    "F",       "B",           "I",       "W",      "OVERLAP",
    "SEND_F",  "RECV_F",      "SEND_B",  "RECV_B", "UNSHARD",
    "RESHARD", "REDUCE_GRAD", "OPT_STEP"};

std::string_view name(Op op) { return names[size_t(op)]; }

bool isCompute(Op op) { return op <= Op::Overlap; }
bool isSend(Op op) { return op == Op::SendForward || op == Op::SendBackward; }
bool isReceive(Op op) {
  return op == Op::RecvForward || op == Op::RecvBackward;
}

/// The instructions of a schedule of forwards only.
static bool isForward(Op op) {
  return op == Op::Forward || op == Op::SendForward || op == Op::RecvForward ||
         op == Op::Unshard || op == Op::Reshard;
}

static std::string workText(std::string_view op, const Work &work) {
  std::string text;
  auto out = std::back_inserter(text);
  if (work.stage >= 0)
    fmt::format_to(out, "{}", work.stage);
  fmt::format_to(out, "{}", op);
  if (work.microbatch >= 0)
    fmt::format_to(out, "{}", work.microbatch);
  if (work.buffer >= 0)
    fmt::format_to(out, "@{}", work.buffer);
  return text;
}

std::string toString(const Instruction &instruction) {
  if (instruction.op == Op::Overlap)
    return fmt::format("({};{})", workText("F", instruction.work),
                       workText("B", instruction.backward));
  return workText(name(instruction.op), instruction.work);
}

size_t Schedule::instructionCount() const {
  size_t count = 0;
  for (const InstructionList &list : lists)
    count += list.size();
  return count;
}

Schedule forwardsOf(const Schedule &schedule) {
  Schedule forwards = schedule;
  forwards.forwardOnly = true;
  for (InstructionList &list : forwards.lists) {
    InstructionList kept;
    for (const Instruction &each : list)
      if (each.op == Op::Forward || each.op == Op::Overlap)
        kept.push_back({Op::Forward, each.work, {}});
    list = std::move(kept);
  }
  return forwards;
}

/// Replicas meet in REDUCE_GRAD, so each has a rank of its own.
static Status checkReplicaRanks(const Schedule &schedule) {
  std::vector<std::pair<int, int>> seen; // rank, stage of the chain
  seen.reserve(size_t(schedule.stages));
  for (int stage = 0; stage < schedule.stages; ++stage)
    seen.emplace_back(schedule.rankOf(stage), stage % schedule.chainStages());
  std::ranges::sort(seen);
  const auto twin = std::ranges::adjacent_find(seen);
  if (twin != seen.end())
    return Status::error("rank {} has two replicas of stage {}", twin->first,
                         twin->second);
  return Status::success();
}

Status checkCounts(const Schedule &schedule) {
  if (schedule.ranks < 1 || schedule.stages < 1 || schedule.microbatches < 1 ||
      schedule.replicas < 1)
    return Status::error(
        "a schedule requires at least one rank, stage, microbatch and replica, "
        "got {}, {}, {} and {}",
        schedule.ranks, schedule.stages, schedule.microbatches,
        schedule.replicas);
  if (schedule.stages % schedule.replicas)
    return Status::error("{} stages do not divide into {} replicas",
                         schedule.stages, schedule.replicas);
  if (schedule.lists.size() != size_t(schedule.ranks) ||
      (schedule.isLowered() && schedule.slots.size() != size_t(schedule.ranks)))
    return Status::error("{} ranks, but {} lists and {} slot counts",
                         schedule.ranks, schedule.lists.size(),
                         schedule.slots.size());
  if (schedule.replicas > schedule.microbatches)
    return Status::error("{} replicas, but only {} microbatches",
                         schedule.replicas, schedule.microbatches);
  for (size_t rank = 0; rank < schedule.slots.size(); ++rank)
    if (schedule.slots[rank] < 0 ||
        size_t(schedule.slots[rank]) > 2 * schedule.lists[rank].size())
      return Status::error("rank {} has {} slots for {} instructions", rank,
                           schedule.slots[rank], schedule.lists[rank].size());
  if (schedule.placement.size() != size_t(schedule.stages))
    return Status::error("{} stages, but {} of them have a rank",
                         schedule.stages, schedule.placement.size());
  for (int stage = 0; stage < schedule.stages; ++stage)
    if (schedule.rankOf(stage) < 0 || schedule.rankOf(stage) >= schedule.ranks)
      return Status::error("stage {} is placed on rank {} of {}", stage,
                           schedule.rankOf(stage), schedule.ranks);
  TESSERA_RETURN_IF_ERROR(checkReplicaRanks(schedule));
  // Each microbatch needs an F at each stage of its chain. So tables of stages
  // and microbatches are at most as large as the lists.
  const int64_t least = int64_t(schedule.chainStages()) * schedule.microbatches;
  if (least > int64_t(schedule.instructionCount()))
    return Status::error("{} stages and {} microbatches need {} F, but there "
                         "are only {} instructions",
                         schedule.chainStages(), schedule.microbatches, least,
                         schedule.instructionCount());
  return Status::success();
}

/// The fault of one piece of work; empty if there is none.
static std::string workFault(const Schedule &schedule, int rank, Op op,
                             const Work &work) {
  if (op == Op::OptimizerStep)
    return work == Work{} ? "" : "has neither stage, microbatch nor buffer";
  if (work.stage < 0 || work.stage >= schedule.stages)
    return fmt::format("has no stage of the {}", schedule.stages);
  if (schedule.rankOf(work.stage) != rank)
    return fmt::format("belongs to rank {}", schedule.rankOf(work.stage));
  if (!isCompute(op) && !isSend(op) && !isReceive(op))
    return work.microbatch < 0 && work.buffer < 0
               ? ""
               : "has neither microbatch nor buffer";
  if (work.microbatch < 0 || work.microbatch >= schedule.microbatches)
    return fmt::format("has no microbatch of the {}", schedule.microbatches);
  if (!schedule.visits(work.stage, work.microbatch))
    return fmt::format("is of a microbatch that runs through chain {}",
                       schedule.chainOf(work.microbatch));
  if (!schedule.isLowered() && work.buffer >= 0)
    return "has a buffer in a schedule without slots";
  if (schedule.isLowered() &&
      (work.buffer < 0 || work.buffer >= schedule.slots[size_t(rank)]))
    return fmt::format("has no buffer of the rank's {}",
                       schedule.slots[size_t(rank)]);
  const bool forwardEdge = op == Op::SendForward || op == Op::RecvBackward;
  const bool backwardEdge = op == Op::RecvForward || op == Op::SendBackward;
  if ((forwardEdge && !schedule.crosses(work.stage)) ||
      (backwardEdge &&
       (schedule.isFirst(work.stage) || !schedule.crosses(work.stage - 1))))
    return "has no other rank to send to or receive from";
  return "";
}

std::string instructionFault(const Schedule &schedule, int rank,
                             const Instruction &instruction) {
  if (!schedule.isLowered() && !isCompute(instruction.op))
    return "is in a schedule without buffers; give only compute, or buffers "
           "as in 0F3@1";
  if (schedule.forwardOnly && !isForward(instruction.op))
    return "is in a schedule of forwards only";
  std::string fault =
      workFault(schedule, rank, instruction.op, instruction.work);
  if (fault.empty() && instruction.op == Op::Overlap)
    fault = workFault(schedule, rank, Op::Backward, instruction.backward);
  return fault;
}

Status checkForm(const Schedule &schedule) {
  TESSERA_RETURN_IF_ERROR(checkCounts(schedule));
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const InstructionList &list = schedule.lists[size_t(rank)];
    for (size_t position = 0; position < list.size(); ++position) {
      const std::string fault =
          instructionFault(schedule, rank, list[position]);
      if (!fault.empty())
        return Status::error("rank {}, position {}: {} {}", rank, position,
                             toString(list[position]), fault);
    }
  }
  return Status::success();
}

/// The other stage of SEND_F and RECV_B is the next one, of the others the
/// previous one.
static int peerStage(const Instruction &transfer) {
  const bool isNext =
      transfer.op == Op::SendForward || transfer.op == Op::RecvBackward;
  return transfer.work.stage + (isNext ? 1 : -1);
}

int peerRank(const Schedule &schedule, const Instruction &transfer) {
  return schedule.rankOf(peerStage(transfer));
}

bool meets(const Instruction &send, const Instruction &receive) {
  const Op wanted =
      send.op == Op::SendForward ? Op::RecvForward : Op::RecvBackward;
  return receive.op == wanted && receive.work.stage == peerStage(send) &&
         receive.work.microbatch == send.work.microbatch;
}

std::string toText(const Schedule &schedule) {
  std::string text =
      fmt::format("{}: {} ranks, {} stages, {} microbatches\n",
                  schedule.name.empty() ? "schedule" : schedule.name,
                  schedule.ranks, schedule.stages, schedule.microbatches);
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    auto out = std::back_inserter(text);
    fmt::format_to(out, "rank {}", rank);
    if (schedule.isLowered())
      fmt::format_to(out, " ({} slots)", schedule.slots[size_t(rank)]);
    text += ':';
    for (const Instruction &each : schedule.lists[size_t(rank)])
      text += ' ' + toString(each);
    text += '\n';
  }
  return text;
}

} // namespace tessera::pipeline
