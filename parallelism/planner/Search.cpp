#include "parallelism/planner/Search.h"
#include "parallelism/planner/PlanFile.h"

#include <algorithm>
#include <bit>
#include <tuple>

namespace tessera::planner {
namespace {

constexpr int64_t largestMicro = 64;
constexpr int64_t largestContext = 64;
constexpr int64_t largestInterleave = 16;
/// A plan that needs more than this factor of the memory is not reported.
constexpr double nearlyFits = 1.5;

std::vector<int64_t> divisors(int64_t value, int64_t most) {
  std::vector<int64_t> result;
  for (int64_t each = 1; each <= std::min(value, most); ++each)
    if (value % each == 0)
      result.push_back(each);
  return result;
}

auto order(const Candidate &each) {
  const ParallelPlan &plan = each.plan;
  return std::make_tuple(each.cost.total, plan.pipe, plan.tensor, plan.context,
                         plan.expert, plan.expertTensor, plan.interleave,
                         plan.micro, plan.replicate, plan.zero, plan.recompute,
                         plan.schedule, plan.evenStages);
}

class Sweep {
public:
  Sweep(const ModelShape &model, const Cluster &cluster,
        const Workload &workload, size_t keep, Scope scope, double slack)
      : model(model), cluster(cluster), workload(workload), keep(keep),
        scope(scope), costs(model, cluster, workload),
        memory(usableMemory(cluster.gpu)), budget(slack * memory) {}

  SearchResult run() {
    int64_t gpus = cluster.gpus();
    int64_t node = std::min(gpus, cluster.gpusPerNode);
    for (int64_t tensor : divisors(gpus, node))
      for (int64_t context : divisors(gpus / tensor, largestContext))
        if ((context & (context - 1)) == 0)
          sweepExperts(tensor, context);
    choose();
    return std::move(result);
  }

private:
  void sweepExperts(int64_t tensor, int64_t context) {
    ParallelPlan plan;
    plan.tensor = tensor;
    plan.context = context;
    std::vector<int64_t> experts = model.experts
                                       ? divisors(model.experts, cluster.gpus())
                                       : std::vector<int64_t>{1};
    for (int64_t expert : experts)
      for (int64_t expertTensor : {int64_t(1), tensor}) {
        if (expertTensor > 1 && model.experts == 0)
          continue;
        plan.expert = expert;
        plan.expertTensor = expertTensor;
        for (plan.micro = 1; plan.micro <= largestMicro; plan.micro *= 2)
          sweepRecompute(plan);
        if (tensor == 1)
          break;
      }
  }

  void sweepRecompute(ParallelPlan plan) {
    for (Recompute each : {Recompute::None, Recompute::Selective,
                           Recompute::Attention, Recompute::Full}) {
      plan.recompute = each;
      priced.reset();
      sweepPipelines(plan);
    }
  }

  void sweepPipelines(ParallelPlan plan) {
    int64_t gpus = cluster.gpus() / (plan.tensor * plan.context);
    for (int64_t pipe : divisors(gpus, model.layers)) {
      plan.pipe = pipe;
      plan.data = gpus / pipe;
      bool shares = plan.data * plan.context > 1 || plan.expertCopies() > 1;
      plan.zero = shares ? 1 : 0;
      sweepSchedules(plan);
      for (int level : {2, 3})
        if (pipe == 1 && shares) {
          plan.zero = level;
          sweepReplicas(plan);
        }
    }
  }

  /// Also with replicas, until their state has no room.
  void sweepReplicas(ParallelPlan plan) {
    if (consider(plan) != Constraint::None)
      return;
    for (int64_t count : replicaCounts(cluster, plan)) {
      plan.replicate = count;
      if (consider(plan) != Constraint::None)
        return;
    }
  }

  void sweepSchedules(ParallelPlan plan) {
    for (bool even : {false, true}) {
      if (even && (plan.pipe == 1 || model.layers % plan.pipe != 0))
        continue;
      plan.evenStages = even;
      plan.schedule = Schedule::OneF1B;
      plan.interleave = 1;
      consider(plan);
      if (plan.pipe == 1)
        continue;
      plan.schedule = Schedule::ZeroBubbleH1;
      consider(plan);
      plan.schedule = Schedule::Interleaved;
      int64_t most = std::min(largestInterleave,
                              (model.layers + plan.pipe - 1) / plan.pipe);
      for (plan.interleave = 2; plan.interleave <= most; ++plan.interleave)
        consider(plan);
    }
  }

  /// What ruled the plan out.
  Constraint consider(const ParallelPlan &plan) {
    Constraint broken = firstViolation(model, cluster, workload, plan);
    if (broken == Constraint::None && scope == Scope::Compiled &&
        !whyNotCompiled(model, workload, plan).empty())
      broken = Constraint::Compiler;
    if (broken == Constraint::None) {
      if (!priced)
        priced = costs.price(plan);
      if (plan.evenStages && isBalanced(plan))
        return Constraint::None; // considered already
    }
    ++result.considered;
    if (broken != Constraint::None)
      return kill(plan, broken);
    Candidate candidate{plan, {}, {}, {}};
    candidate.memory =
        peakMemory(model, workload, plan, costs.stages(plan, *priced));
    double needed = candidate.memory.total();
    if (needed > nearlyFits * budget)
      return kill(plan, Constraint::Memory);
    candidate.cost = costs.step(plan, *priced);
    if (needed <= budget) {
      accept(candidate);
      return Constraint::None;
    }
    std::optional<Candidate> &fastest =
        result.killed[size_t(Constraint::Memory)].fastest;
    if (!fastest || order(candidate) < order(*fastest))
      fastest = candidate;
    return kill(plan, Constraint::Memory);
  }

  /// Whether even stages are what balancing comes to.
  bool isBalanced(ParallelPlan plan) const {
    StageLayers even = costs.stages(plan, *priced);
    plan.evenStages = false;
    return costs.stages(plan, *priced) == even;
  }

  void accept(const Candidate &candidate) {
    ++result.fitting;
    auto [found, added] =
        (isBeyond(candidate) ? beyond : simplest)
            .try_emplace(complexity(candidate.plan), candidate);
    if (!added && order(candidate) < order(found->second))
      found->second = candidate;
    for (Choice *choice : choicesOf(candidate.plan)) {
      ++choice->fitting;
      if (!choice->best || isBetter(candidate, *choice->best))
        choice->best = candidate;
    }
    if (result.best.size() == keep &&
        !(order(candidate) < order(result.best.back())))
      return;
    result.best.insert(
        std::ranges::upper_bound(result.best, order(candidate), {}, order),
        candidate);
    if (result.best.size() > keep)
      result.best.pop_back();
  }

  bool isBeyond(const Candidate &candidate) const {
    return candidate.memory.total() > memory;
  }

  bool isBetter(const Candidate &candidate, const Candidate &other) const {
    return std::pair(isBeyond(candidate), order(candidate)) <
           std::pair(isBeyond(other), order(other));
  }

  /// Those that take at most 2 % longer than the fastest, the simplest first.
  static std::vector<Candidate>
  simplestOf(const std::map<int64_t, Candidate> &byComplexity) {
    std::vector<Candidate> kept;
    for (const auto &[level, candidate] : byComplexity)
      kept.push_back(candidate);
    if (kept.empty())
      return kept;
    const double limit = std::ranges::min(kept, {}, order).cost.total *
                         (1 + SearchResult::indifference);
    std::erase_if(
        kept, [&](const Candidate &each) { return each.cost.total > limit; });
    return kept;
  }

  void choose() {
    result.simplest = simplestOf(simplest);
    result.beyond = simplestOf(beyond);
    for (const std::vector<Candidate> *list :
         {&result.simplest, &result.beyond})
      if (!result.chosen && !list->empty())
        result.chosen = list->front();
  }

  Constraint kill(const ParallelPlan &plan, Constraint constraint) {
    ++result.killed[size_t(constraint)].plans;
    for (Choice *choice : choicesOf(plan))
      ++choice->killed[size_t(constraint)];
    return constraint;
  }

  using Choices = std::array<Choice *, std::size(searchedDegrees)>;

  Choices choicesOf(const ParallelPlan &plan) {
    Choices found{};
    for (size_t i = 0; i < found.size(); ++i) {
      // Values are few and small: a table in addition to the map saves
      // look-ups.
      std::vector<Choice *> &table = tables[i];
      size_t value = size_t(searchedDegrees[i].of(plan));
      if (table.size() <= value)
        table.resize(value + 1);
      if (!table[value])
        table[value] =
            &result
                 .choices[std::string(searchedDegrees[i].name)][int64_t(value)];
      found[i] = table[value];
    }
    return found;
  }

  const ModelShape &model;
  const Cluster &cluster;
  const Workload &workload;
  size_t keep;
  Scope scope;
  CostModel costs;
  double memory, budget;
  std::optional<PricedLayers> priced;
  std::array<std::vector<Choice *>, std::size(searchedDegrees)> tables;
  /// The fastest of each complexity, of those that fit and those beyond.
  std::map<int64_t, Candidate> simplest, beyond;
  SearchResult result;
};

} // namespace

int64_t complexity(const ParallelPlan &plan) {
  int64_t result = std::max(0, plan.zero - 1) + (plan.replicate > 1);
  for (int64_t degree : {plan.pipe, plan.interleave, plan.tensor, plan.context,
                         plan.expert, plan.expertTensor})
    result += std::bit_width(uint64_t(degree)) - 1;
  return result + (plan.schedule == Schedule::ZeroBubbleH1);
}

SearchResult search(const ModelShape &model, const Cluster &cluster,
                    const Workload &workload, size_t keep, Scope scope,
                    double slack) {
  return Sweep(model, cluster, workload, keep, scope, slack).run();
}

StatusOr<Candidate> evaluate(const ModelShape &model, const Cluster &cluster,
                             const Workload &workload,
                             const ParallelPlan &plan) {
  Violation violation = explainViolation(model, cluster, workload, plan);
  if (violation.constraint != Constraint::None)
    return Status::error("{}: {}: {}", describe(plan),
                         name(violation.constraint), violation.detail);
  CostModel costs(model, cluster, workload);
  Candidate candidate{plan, costs.step(plan), {}, {}};
  candidate.memory = peakMemory(model, workload, plan, candidate.cost.stages);
  return candidate;
}

} // namespace tessera::planner
