#include "parallelism/planner/MeshChoice.h"

#include <algorithm>
#include <array>
#include <tuple>

#include <fmt/format.h>

#include "hardware/Quantity.h"
#include "parallelism/planner/PlanFile.h"

namespace tessera::planner {
namespace {

constexpr size_t mostOthers = 3;
/// The most chunks per rank: with more, programs only grow.
constexpr int64_t mostChunks = 4;

std::vector<int64_t> divisors(int64_t value) {
  std::vector<int64_t> result;
  for (int64_t each = 1; each <= value; ++each)
    if (value % each == 0)
      result.push_back(each);
  return result;
}

/// A mesh of the compiler. The planner's data ranks are replicate * data *
/// expert.
struct Axes {
  int64_t pipe = 1, replicate = 1, data = 1, expert = 1, context = 1,
          tensor = 1;
  bool foldsTensor = false; ///< expert_tensor=1

  bool operator==(const Axes &) const = default;
};

Axes axesOf(const ParallelPlan &plan) {
  const int64_t expert = plan.expertData();
  return {plan.pipe,
          plan.replicate,
          plan.data / expert / plan.replicate,
          expert,
          plan.context,
          plan.tensor,
          plan.foldsTensor()};
}

/// The workload of a step under `plan`; ranks have a rounded-up part of a
/// microbatch.
Workload workloadOf(const MeshQuestion &question, const ParallelPlan &plan) {
  Workload workload = workloadOf(question.model, question.recipe);
  workload.globalBatch =
      plan.micro * plan.data * question.recipe.batch.accumulate;
  workload.overlap = compiledOverlap;
  workload.libraryBytes = question.libraryBytes;
  return workload;
}

auto order(const MeshCandidate &each) {
  return std::make_tuple(each.candidate.cost.total,
                         complexity(each.candidate.plan), each.mesh);
}

/// Goes through all meshes of a question.
class MeshSweep {
public:
  MeshSweep(const MeshQuestion &question, std::span<const std::string> refused)
      : question(question), refused(refused), world(question.cluster.gpus()),
        budget(usableMemory(question.cluster.gpu)) {}

  StatusOr<MeshChoice> run();
  StatusOr<std::vector<std::vector<MeshCandidate>>> byAxes();

private:
  void sweep();
  void pipelines(Axes axes);
  void consider(ParallelPlan plan);
  Status failure() const;
  MeshChoice choose();

  const MeshQuestion &question;
  const std::span<const std::string> refused;
  const int64_t world;
  const double budget;
  std::vector<MeshCandidate> fitting; ///< the best of each mesh of axes
  std::optional<MeshCandidate> fastestTooLarge, smallest;
};

void MeshSweep::sweep() {
  for (int64_t tensor : divisors(world))
    for (int64_t context : divisors(world / tensor))
      for (int64_t expert : divisors(world / tensor / context))
        for (int64_t data : divisors(world / tensor / context / expert))
          for (bool folds : {false, true})
            pipelines({world / tensor / context / expert / data, 1, data,
                       expert, context, tensor, folds});
}

StatusOr<std::vector<std::vector<MeshCandidate>>> MeshSweep::byAxes() {
  sweep();
  if (fitting.empty())
    return failure();
  std::ranges::sort(fitting, {}, order);
  std::vector<std::vector<MeshCandidate>> groups;
  for (MeshCandidate &each : fitting) {
    auto group = std::ranges::find_if(groups, [&](const auto &known) {
      return axesOf(known.front().candidate.plan) ==
             axesOf(each.candidate.plan);
    });
    if (group == groups.end())
      group = groups.emplace(group);
    group->push_back(std::move(each));
  }
  return groups;
}

StatusOr<MeshChoice> MeshSweep::run() {
  sweep();
  if (!fitting.empty())
    return choose();
  if (!smallest || std::ranges::count(refused, smallest->mesh))
    return failure();
  MeshChoice choice;
  choice.chosen = choice.smallest = *smallest;
  choice.fits = false;
  return choice;
}

void MeshSweep::pipelines(Axes axes) {
  const recipe::Recipe &recipe = question.recipe;
  ParallelPlan plan;
  plan.pipe = axes.pipe;
  plan.data = axes.data * axes.expert;
  plan.expert = axes.expert;
  plan.context = axes.context;
  plan.tensor = axes.tensor;
  const bool sharesExperts = question.model.experts > 0 && axes.tensor > 1;
  if (axes.foldsTensor && !sharesExperts)
    return;
  if (axes.foldsTensor)
    plan.expert *= axes.tensor;
  else if (sharesExperts)
    plan.expertTensor = axes.tensor;
  // A rank without a sequence would only wait.
  if (plan.data > recipe.batch.micro)
    return;
  plan.micro = (recipe.batch.micro + plan.data - 1) / plan.data;
  plan.recompute = recomputeOf(recipe.recompute);
  if (plan.pipe > 1 && recipe.batch.accumulate < 2)
    return;
  const bool shares = plan.data * plan.context > 1;
  // Where steps are simulated, less communication may be worth the memory.
  const int least = shares && !question.cluster.host ? 1 : 0;
  for (plan.zero = least; plan.zero <= (shares ? 3 : 0); ++plan.zero) {
    plan.schedule = Schedule::OneF1B;
    plan.interleave = 1;
    consider(plan);
    if (plan.zero > 1)
      for (int64_t count : replicaCounts(question.cluster, plan)) {
        ParallelPlan replicas = plan;
        replicas.replicate = count;
        consider(replicas);
      }
    if (plan.pipe == 1)
      continue;
    plan.schedule = Schedule::ZeroBubbleH1;
    consider(plan);
    plan.schedule = Schedule::Interleaved;
    for (plan.interleave = 2; plan.interleave <= mostChunks; ++plan.interleave)
      consider(plan);
  }
}

void MeshSweep::consider(ParallelPlan plan) {
  const Workload workload = workloadOf(question, plan);
  if (firstViolation(question.model, question.cluster, workload, plan) !=
          Constraint::None ||
      !whyNotCompiled(question.model, workload, plan).empty())
    return;
  const CostModel costs(question.model, question.cluster, workload);
  MeshCandidate one{meshText(meshPlanOf(workload, plan)),
                    {plan, costs.step(plan), {}}};
  one.candidate.memory =
      peakMemory(question.model, workload, plan, one.candidate.cost.stages);
  const double needed = one.candidate.memory.total();
  if (!smallest || needed < smallest->candidate.memory.total())
    smallest = one;
  if (std::ranges::count(refused, one.mesh))
    return;
  if (needed > budget) {
    if (!fastestTooLarge || order(one) < order(*fastestTooLarge))
      fastestTooLarge = one;
    return;
  }
  fitting.push_back(std::move(one));
}

Status MeshSweep::failure() const {
  if (smallest)
    return Status::error(
        "--world {}: no mesh fits: {} needs least by the model, {}, and a "
        "device has {}",
        world, meshName(smallest->mesh),
        formatBytes(smallest->candidate.memory.total()), formatBytes(budget));
  const ModelShape &model = question.model;
  const recipe::Recipe::Batch &batch = question.recipe.batch;
  return Status::error(
      "--world {}: no mesh of that size divides the model: {} layers, {} heads "
      "({} for keys), {} experts; batch.micro {}, batch.accumulate {}, "
      "batch.sequence {}; give another number, or name the axes with --mesh",
      world, model.layers, model.heads, model.kvHeads, model.experts,
      batch.micro, batch.accumulate, batch.sequence);
}

MeshChoice MeshSweep::choose() {
  std::ranges::sort(fitting, {}, order);
  const double limit =
      fitting.front().candidate.cost.total * (1 + SearchResult::indifference);
  MeshChoice choice;
  choice.fitting = int64_t(fitting.size());
  const MeshCandidate *best = &fitting.front();
  for (const MeshCandidate &each : fitting)
    if (each.candidate.cost.total <= limit &&
        complexity(each.candidate.plan) < complexity(best->candidate.plan))
      best = &each;
  choice.chosen = *best;
  choice.smallest = *smallest;
  std::vector<Axes> seen{axesOf(best->candidate.plan)};
  for (const MeshCandidate &each : fitting) {
    const Axes axes = axesOf(each.candidate.plan);
    if (choice.others.size() == mostOthers ||
        std::ranges::find(seen, axes) != seen.end())
      continue;
    seen.push_back(axes);
    choice.others.push_back(each);
  }
  if (fastestTooLarge &&
      fastestTooLarge->candidate.cost.total < best->candidate.cost.total)
    choice.tooLarge = fastestTooLarge;
  return choice;
}

/// The causes of a step's time, for people.
std::array<std::pair<const char *, double>, 6> partsOf(const StepCost &cost) {
  const Times &times = cost.perRank;
  return {{{"computing", times.compute + times.recompute + cost.uneven},
           {"collectives inside layers",
            times.tensor + times.expert + times.context},
           {"slower kernels during collectives", times.tax},
           {"the pipeline's bubble and transfers", cost.bubble + cost.send},
           {"gradients and weights", cost.data},
           {"the optimizer", cost.optimizer}}};
}

std::string shareText(const StepCost &cost) {
  std::string text;
  for (const auto &[what, seconds] : partsOf(cost))
    if (seconds >= 0.005 * cost.total)
      text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", what,
                          100 * seconds / cost.total);
  return text;
}

/// The cause of most of the difference to another mesh.
std::string differenceText(const StepCost &cost, const StepCost &chosen) {
  const auto ours = partsOf(chosen), theirs = partsOf(cost);
  const bool slower = cost.total >= chosen.total;
  size_t most = 0;
  double largest = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const double more = (theirs[i].second - ours[i].second) * (slower ? 1 : -1);
    if (more > largest)
      largest = more, most = i;
  }
  if (std::abs(cost.total - chosen.total) < 1e-3 * chosen.total)
    return "as fast";
  return fmt::format("{} {}, most by {}",
                     formatSeconds(std::abs(cost.total - chosen.total)),
                     slower ? "slower" : "faster", theirs[most].first);
}

} // namespace

StatusOr<MeshChoice> chooseMesh(const MeshQuestion &question,
                                std::span<const std::string> refused) {
  return MeshSweep(question, refused).run();
}

StatusOr<std::vector<std::vector<MeshCandidate>>>
meshesByAxes(const MeshQuestion &question) {
  return MeshSweep(question, {}).byAxes();
}

std::string meshName(const std::string &mesh) {
  return mesh.empty() ? "one device" : "mesh " + mesh;
}

std::string printChoice(const MeshQuestion &question, const MeshChoice &choice,
                        double needed) {
  const Candidate &chosen = choice.chosen.candidate;
  std::string text = fmt::format(
      "{}: {} a step by the cost model ({}); the program needs {} of {} a "
      "device, planned were {}; ",
      meshName(choice.chosen.mesh), formatSeconds(chosen.cost.total),
      shareText(chosen.cost), formatBytes(needed),
      formatBytes(usableMemory(question.cluster.gpu)),
      formatBytes(chosen.memory.total()));
  if (choice.fits)
    text +=
        fmt::format("the simplest within {:.0f} % of the fastest of {} that "
                    "fit by the model\n",
                    100 * SearchResult::indifference, choice.fitting);
  else
    text += "the smallest\n";
  for (const MeshCandidate &other : choice.others)
    text += fmt::format("  {}: {}, {}\n", other.mesh,
                        differenceText(other.candidate.cost, chosen.cost),
                        formatBytes(other.candidate.memory.total()));
  if (choice.tooLarge)
    text += fmt::format(
        "  {}: {}, but needs {}\n", choice.tooLarge->mesh,
        differenceText(choice.tooLarge->candidate.cost, chosen.cost),
        formatBytes(choice.tooLarge->candidate.memory.total()));
  return text;
}

} // namespace tessera::planner
