// Checks computation, transfers and buffers.
#include <algorithm>
#include <map>

#include "parallelism/pipeline/Checks.h"

namespace tessera::pipeline {

namespace {

/// One byte for each microbatch and stage: what has been done.
class Progress {
public:
  explicit Progress(const Schedule &schedule)
      : schedule(schedule),
        seen(size_t(schedule.chainStages()) * size_t(schedule.microbatches)) {}

  uint8_t &operator[](const Work &work) {
    return seen[size_t(work.stage % schedule.chainStages()) *
                    size_t(schedule.microbatches) +
                size_t(work.microbatch)];
  }

private:
  const Schedule &schedule;
  std::vector<uint8_t> seen;
};

enum : uint8_t {
  forwardDone = 1,
  inputDone = 2,
  weightDone = 4,
  forwardSent = 8,
  forwardReceived = 16,
  backwardSent = 32,
  backwardReceived = 64,
};

/// The bits that an instruction sets, and those that must be set before it.
struct Rule {
  Op op;
  uint8_t adds, needs;
  const char *missing;
};

} // namespace

static constexpr Rule computeRules[] = {
    {Op::Forward, forwardDone, 0, ""},
    {Op::Backward, inputDone | weightDone, forwardDone, "its F"},
    {Op::BackwardInput, inputDone, forwardDone, "its F"},
    {Op::BackwardWeight, weightDone, inputDone, "its I"},
};

/// Sets the bits of `work`; returns the fault, or nothing.
static std::string apply(const Rule &rule, uint8_t &byte) {
  if (byte & rule.adds)
    return "runs twice";
  if ((byte & rule.needs) != rule.needs)
    return fmt::format("runs before {}", rule.missing);
  byte |= rule.adds;
  return "";
}

/// Calls `visit` with F, B, I or W and its work, both halves of an OVERLAP one
/// after the other; returns what it returned last that is not empty.
template <typename Visit>
static std::string forEachHalf(const Instruction &each, Visit visit) {
  if (!isCompute(each.op))
    return "";
  if (each.op != Op::Overlap)
    return visit(each.op, each.work);
  std::string fault = visit(Op::Forward, each.work);
  return fault.empty() ? visit(Op::Backward, each.backward) : fault;
}

static Status checkComplete(const Schedule &schedule, Progress &progress) {
  for (int stage = 0; stage < schedule.stages; ++stage)
    for (int microbatch = 0; microbatch < schedule.microbatches; ++microbatch) {
      if (!schedule.visits(stage, microbatch))
        continue;
      const uint8_t byte = progress[{stage, microbatch}];
      const char *missing = !(byte & forwardDone)  ? "F"
                            : schedule.forwardOnly ? nullptr
                            : !(byte & inputDone)  ? "B"
                            : !(byte & weightDone) ? "W"
                                                   : nullptr;
      if (missing)
        return Status::error("rank {}, at its end: {}{}{} never ran",
                             schedule.rankOf(stage), stage, missing,
                             microbatch);
    }
  return Status::success();
}

Status checkCompute(const Schedule &schedule, int memory) {
  Progress progress(schedule);
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const InstructionList &list = schedule.lists[size_t(rank)];
    int live = 0;
    for (size_t position = 0; position < list.size(); ++position) {
      std::string fault =
          forEachHalf(list[position], [&](Op op, const Work &work) {
            const Rule &rule = *std::ranges::find(computeRules, op, &Rule::op);
            live += op == Op::Forward && !schedule.forwardOnly;
            live -= (rule.adds & weightDone) != 0;
            std::string found = apply(rule, progress[work]);
            if (found.empty() && memory > 0 && live > memory)
              found = fmt::format("makes {} live activations, {} are allowed",
                                  live, memory);
            return found;
          });
      if (!fault.empty())
        return Status::error("{} {}", locate(schedule, rank, position), fault);
    }
  }
  return checkComplete(schedule, progress);
}

/// The rules of one rank: all instructions on its work are in its list.
static std::string applyTransfers(const Schedule &schedule,
                                  const Instruction &each, Progress &progress) {
  static constexpr Rule transferRules[] = {
      {Op::SendForward, forwardSent, forwardDone, "its F"},
      {Op::RecvForward, forwardReceived, 0, ""},
      {Op::SendBackward, backwardSent, inputDone, "its backward"},
      {Op::RecvBackward, backwardReceived, 0, ""},
  };
  const auto *rule = std::ranges::find(transferRules, each.op, &Rule::op);
  if (rule != std::end(transferRules))
    return apply(*rule, progress[each.work]);
  return forEachHalf(each, [&](Op op, const Work &work) -> std::string {
    uint8_t &byte = progress[work];
    const bool first = schedule.isFirst(work.stage);
    if (op == Op::Forward && !first && schedule.crosses(work.stage - 1) &&
        !(byte & forwardReceived))
      return fmt::format("runs before {}RECV_F{}", work.stage, work.microbatch);
    const bool backward = op == Op::Backward || op == Op::BackwardInput;
    if (backward && schedule.crosses(work.stage) && !(byte & backwardReceived))
      return fmt::format("runs before {}RECV_B{}", work.stage, work.microbatch);
    byte |= std::ranges::find(computeRules, op, &Rule::op)->adds;
    return "";
  });
}

Status checkTransfers(const Schedule &schedule) {
  Progress progress(schedule);
  for (int rank = 0; rank < schedule.ranks; ++rank)
    for (size_t position = 0; position < schedule.lists[size_t(rank)].size();
         ++position) {
      const Instruction &each = schedule.lists[size_t(rank)][position];
      std::string fault = applyTransfers(schedule, each, progress);
      if (!fault.empty())
        return Status::error("{} {}", locate(schedule, rank, position), fault);
    }
  for (int stage = 0; stage < schedule.stages; ++stage)
    for (int microbatch = 0; microbatch < schedule.microbatches; ++microbatch) {
      if (!schedule.visits(stage, microbatch))
        continue;
      const uint8_t byte = progress[{stage, microbatch}];
      const bool before = !schedule.forwardOnly && !schedule.isFirst(stage) &&
                          schedule.crosses(stage - 1);
      const char *missing = schedule.crosses(stage) && !(byte & forwardSent)
                                ? "SEND_F"
                            : before && !(byte & backwardSent) ? "SEND_B"
                                                               : nullptr;
      if (missing)
        return Status::error("rank {}, at its end: {}{}{} never ran",
                             schedule.rankOf(stage), stage, missing,
                             microbatch);
    }
  return Status::success();
}

Status checkChannels(const Schedule &schedule) {
  struct Channel {
    std::vector<size_t> sends, receives; // positions
  };
  std::map<std::pair<int, int>, Channel> channels;
  for (int rank = 0; rank < schedule.ranks; ++rank)
    for (size_t position = 0; position < schedule.lists[size_t(rank)].size();
         ++position) {
      const Instruction &each = schedule.lists[size_t(rank)][position];
      if (isSend(each.op))
        channels[{rank, peerRank(schedule, each)}].sends.push_back(position);
      if (isReceive(each.op))
        channels[{peerRank(schedule, each), rank}].receives.push_back(position);
    }
  // As many of each: checkTransfers counted them.
  for (const auto &[ends, channel] : channels)
    for (size_t k = 0; k < channel.sends.size(); ++k) {
      const auto [from, to] = ends;
      const Instruction &send = schedule.lists[size_t(from)][channel.sends[k]];
      const Instruction &receive =
          schedule.lists[size_t(to)][channel.receives[k]];
      if (!meets(send, receive))
        return Status::error("{} is number {} from there to rank {}, which "
                             "waits for {} at position {} then",
                             locate(schedule, from, channel.sends[k]), k, to,
                             toString(receive), channel.receives[k]);
    }
  return Status::success();
}

/// Of one rank: calls `visit` with each work that names a buffer.
template <typename Visit>
static void forEachBuffer(const InstructionList &list, Visit visit) {
  for (size_t position = 0; position < list.size(); ++position)
    for (const Work &work : {list[position].work, list[position].backward})
      if (work.buffer >= 0)
        visit(position, work);
}

Status checkBuffers(const Schedule &schedule) {
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const InstructionList &list = schedule.lists[size_t(rank)];
    using Key = std::pair<int32_t, int32_t>;
    std::map<Key, size_t> lastUse;
    forEachBuffer(list, [&](size_t position, const Work &work) {
      lastUse[{work.stage, work.microbatch}] = position;
    });
    struct Slot {
      Work owner;
      bool taken = false;
    };
    std::vector<Slot> slots(size_t(schedule.slots[size_t(rank)]));
    std::map<Key, int32_t> held;
    Status fault;
    forEachBuffer(list, [&](size_t position, const Work &work) {
      const Key key{work.stage, work.microbatch};
      Slot &slot = slots[size_t(work.buffer)];
      const auto [found, first] = held.try_emplace(key, work.buffer);
      const size_t until =
          slot.taken ? lastUse[{slot.owner.stage, slot.owner.microbatch}] : 0;
      if (!fault.ok())
        return;
      if (!first && found->second != work.buffer)
        fault = Status::error("{} has another buffer than {} before it",
                              locate(schedule, rank, position), found->second);
      else if (first && slot.taken && until >= position)
        fault = Status::error("{} overwrites what {} at position {} needs",
                              locate(schedule, rank, position),
                              toString(list[until]), until);
      else if (first)
        slot = {work, true};
    });
    TESSERA_RETURN_IF_ERROR(fault);
  }
  return Status::success();
}

} // namespace tessera::pipeline
