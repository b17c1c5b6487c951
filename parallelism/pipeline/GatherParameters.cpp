#include "parallelism/pipeline/GatherParameters.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>

namespace tessera::pipeline {
namespace {

constexpr size_t noUse = std::numeric_limits<size_t>::max();

class Gatherer {
public:
  Gatherer(const InstructionList &list, int most)
      : list(list), most(size_t(most)) {
    for (size_t k = 0; k < list.size(); ++k)
      for (int stage : stagesOf(list[k]))
        uses[stage].push_back(k);
  }

  StatusOr<InstructionList> run();

private:
  static std::vector<int> stagesOf(const Instruction &each);
  size_t nextUse(int stage) const {
    auto found = uses.find(stage);
    return found == uses.end() || found->second.empty() ? noUse
                                                        : found->second.front();
  }
  bool makeRoom(size_t use);
  void unshard(int stage);
  void reshard(int stage);
  void prefetch();

  const InstructionList &list;
  const size_t most;
  std::map<int, std::deque<size_t>> uses; ///< of each stage, yet to come
  std::vector<int> gathered;
  InstructionList result;
};

} // namespace

std::vector<int> Gatherer::stagesOf(const Instruction &each) {
  if (!isCompute(each.op))
    return {};
  if (each.op != Op::Overlap || each.backward.stage == each.work.stage)
    return {each.work.stage};
  return {each.work.stage, each.backward.stage};
}

void Gatherer::unshard(int stage) {
  gathered.push_back(stage);
  result.push_back({Op::Unshard, {stage}, {}});
}

void Gatherer::reshard(int stage) {
  std::erase(gathered, stage);
  result.push_back({Op::Reshard, {stage}, {}});
}

/// For a stage that is used at `use`: evicts only stages that are used later.
bool Gatherer::makeRoom(size_t use) {
  if (gathered.size() < most)
    return true;
  const int victim = *std::ranges::max_element(
      gathered, {}, [&](int stage) { return nextUse(stage); });
  if (nextUse(victim) <= use)
    return false;
  reshard(victim);
  return true;
}

void Gatherer::prefetch() {
  int next = -1;
  for (const auto &[stage, positions] : uses)
    if (!positions.empty() &&
        std::ranges::find(gathered, stage) == gathered.end() &&
        (next < 0 || positions.front() < nextUse(next)))
      next = stage;
  if (next >= 0 && makeRoom(nextUse(next)))
    unshard(next);
}

StatusOr<InstructionList> Gatherer::run() {
  for (size_t k = 0; k < list.size(); ++k) {
    const std::vector<int> stages = stagesOf(list[k]);
    if (stages.size() > most)
      return Status::error("{} needs {} gathered stages, but {} are allowed",
                           toString(list[k]), stages.size(), most);
    for (int stage : stages)
      if (std::ranges::find(gathered, stage) == gathered.end()) {
        makeRoom(k);
        unshard(stage);
      }
    // After this use, so that the gather overlaps with it; the stages that this
    // instruction reads are used at k and not evicted.
    if (!stages.empty())
      prefetch();
    for (int stage : stages)
      uses[stage].pop_front();
    result.push_back(list[k]);
    for (int stage : stages)
      if (uses[stage].empty())
        reshard(stage);
  }
  return std::move(result);
}

Status gatherParameters(InstructionList &list, int most) {
  StatusOr<InstructionList> result = Gatherer(list, most).run();
  if (!result.ok())
    return result.status();
  list = result.take();
  return Status::success();
}

} // namespace tessera::pipeline
