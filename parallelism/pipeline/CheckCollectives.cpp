// Checks the collectives of stages' parameters and gradients.
#include <algorithm>
#include <map>

#include "parallelism/pipeline/Check.h"
#include "parallelism/pipeline/Checks.h"

namespace tessera::pipeline {
namespace {

struct StageState {
  bool sharded = false; ///< is unsharded somewhere, so it starts sharded
  bool gathered = false;
  bool reduced = false;
};

} // namespace

static std::string useParameters(const StageState &state, Op op) {
  if (state.sharded && !state.gathered)
    return "runs while its parameters are sharded";
  if (state.reduced && op != Op::Forward)
    return "runs after its REDUCE_GRAD";
  return "";
}

static std::string applyCollective(StageState &state, Op op) {
  if (op == Op::Unshard && std::exchange(state.gathered, true))
    return "gathers parameters that are gathered already";
  if (op == Op::Reshard && !std::exchange(state.gathered, false))
    return "releases parameters that are not gathered";
  if (op == Op::ReduceGrad && std::exchange(state.reduced, true))
    return "runs twice";
  return "";
}

static std::string step(std::vector<StageState> &stages,
                        const Instruction &each) {
  if (isSend(each.op) || isReceive(each.op) || each.op == Op::OptimizerStep)
    return "";
  StageState &state = stages[size_t(each.work.stage)];
  if (!isCompute(each.op))
    return applyCollective(state, each.op);
  if (each.op != Op::Overlap)
    return useParameters(state, each.op);
  std::string fault = useParameters(state, Op::Forward);
  if (fault.empty())
    fault = useParameters(stages[size_t(each.backward.stage)], Op::Backward);
  return fault;
}

Status checkCollectives(const Schedule &schedule) {
  std::vector<StageState> stages(size_t(schedule.stages));
  for (const InstructionList &list : schedule.lists)
    for (const Instruction &each : list)
      if (each.op == Op::Unshard || each.op == Op::Reshard)
        stages[size_t(each.work.stage)].sharded = true;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const InstructionList &list = schedule.lists[size_t(rank)];
    for (size_t position = 0; position < list.size(); ++position) {
      std::string fault = step(stages, list[position]);
      if (list[position].op == Op::OptimizerStep && position + 1 < list.size())
        fault = "is not the last of its rank";
      if (!fault.empty())
        return Status::error("{} {}", locate(schedule, rank, position), fault);
    }
    if (!schedule.forwardOnly &&
        (list.empty() || list.back().op != Op::OptimizerStep))
      return Status::error("rank {}, at its end: OPT_STEP never ran", rank);
  }
  if (schedule.forwardOnly)
    return Status::success();
  for (int stage = 0; stage < schedule.stages; ++stage)
    if (!stages[size_t(stage)].reduced)
      return Status::error("rank {}, at its end: {}REDUCE_GRAD never ran",
                           schedule.rankOf(stage), stage);
  return Status::success();
}

Status checkReplicas(const Schedule &schedule) {
  if (schedule.replicas == 1)
    return Status::success();
  // The ranks that hold the replicas of a stage: a communicator.
  auto membersOf = [&](int stage) {
    std::vector<int> members;
    members.reserve(size_t(schedule.replicas));
    for (int chain = 0; chain < schedule.replicas; ++chain)
      members.push_back(schedule.rankOf(chain * schedule.chainStages() +
                                        stage % schedule.chainStages()));
    std::ranges::sort(members);
    return members;
  };
  // Of each communicator and member: positions of its reductions.
  std::map<std::vector<int>, std::map<int, std::vector<size_t>>> orders;
  for (int rank = 0; rank < schedule.ranks; ++rank)
    for (size_t position = 0; position < schedule.lists[size_t(rank)].size();
         ++position) {
      const Instruction &each = schedule.lists[size_t(rank)][position];
      if (each.op == Op::ReduceGrad)
        orders[membersOf(each.work.stage)][rank].push_back(position);
    }
  for (const auto &[members, order] : orders) {
    const auto &[first, wanted] = *order.begin();
    for (const auto &[rank, positions] : order)
      for (size_t k = 0; k < std::min(wanted.size(), positions.size()); ++k) {
        auto place = [&](int each, size_t position) {
          return schedule.lists[size_t(each)][position].work.stage %
                 schedule.chainStages();
        };
        if (place(rank, positions[k]) != place(first, wanted[k]))
          return Status::error("{} meets {}",
                               locate(schedule, rank, positions[k]),
                               locate(schedule, first, wanted[k]));
      }
  }
  return Status::success();
}

Status checkSameCollectives(const Schedule &a, const Schedule &b) {
  if (a.ranks != b.ranks)
    return Status::error("{} ranks in one copy, {} in the other", a.ranks,
                         b.ranks);
  auto isCollective = [](const Instruction &each) {
    return each.op >= Op::Unshard;
  };
  for (int rank = 0; rank < a.ranks; ++rank) {
    const InstructionList &left = a.lists[size_t(rank)];
    const InstructionList &right = b.lists[size_t(rank)];
    size_t i = 0, j = 0;
    while (true) {
      while (i < left.size() && !isCollective(left[i]))
        ++i;
      while (j < right.size() && !isCollective(right[j]))
        ++j;
      if (i == left.size() && j == right.size())
        break;
      if (i == left.size() || j == right.size() || left[i] != right[j])
        return Status::error("rank {}: {} in one copy meets {} in the other",
                             rank,
                             i < left.size() ? toString(left[i]) : "the end",
                             j < right.size() ? toString(right[j]) : "the end");
      ++i;
      ++j;
    }
  }
  return Status::success();
}

} // namespace tessera::pipeline
