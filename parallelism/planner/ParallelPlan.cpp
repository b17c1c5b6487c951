#include "parallelism/planner/ParallelPlan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "runtime/support/Text.h"

namespace tessera::planner {
namespace {

constexpr std::string_view recomputeNames[] = {"none", "selective", "attention",
                                               "full"};
constexpr std::string_view scheduleNames[] = {"1f1b", "interleaved", "zb-h1"};
constexpr std::string_view stageNames[] = {"balanced", "even"};
constexpr std::string_view constraintNames[] = {
    "none",
    "degrees do not make the number of GPUs",
    "heads do not divide",
    "widths do not divide",
    "layers do not make chunks",
    "sequence does not divide",
    "batch does not divide",
    "too few microbatches",
    "experts do not divide",
    "tensor parallelism across nodes",
    "schedule does not fit",
    "data ranks do not make replicas",
    "nothing to shard",
    "the compiler does not build it",
    "memory"};

constexpr int64_t largestDegree = int64_t(1) << 20;

template <typename Enum, size_t count>
Status readChoice(std::string_view text, const std::string_view (&names)[count],
                  Enum &to) {
  for (size_t i = 0; i < count; ++i)
    if (text == names[i]) {
      to = Enum(i);
      return Status::success();
    }
  return Status::error("{} is none of {}", quote(text),
                       choices(std::span(names)));
}

Status readDegree(std::string_view text, int64_t least, int64_t &to) {
  auto [end, problem] =
      std::from_chars(text.data(), text.data() + text.size(), to);
  if (problem != std::errc() || end != text.data() + text.size() ||
      to < least || to > largestDegree)
    return Status::error("{} must be a whole number from {} to {}", quote(text),
                         least, largestDegree);
  return Status::success();
}

Status assign(ParallelPlan &plan, std::string_view key,
              std::string_view value) {
  struct Degree {
    std::string_view name;
    int64_t *to;
  };
  const Degree degrees[] = {
      {"pipe", &plan.pipe},     {"interleave", &plan.interleave},
      {"tensor", &plan.tensor}, {"context", &plan.context},
      {"data", &plan.data},     {"replicate", &plan.replicate},
      {"expert", &plan.expert}, {"expert-tensor", &plan.expertTensor},
      {"micro", &plan.micro}};
  std::vector<std::string_view> names = {"zero", "recompute", "schedule",
                                         "stages"};
  for (const Degree &each : degrees) {
    if (key == each.name)
      return readDegree(value, 1, *each.to);
    names.push_back(each.name);
  }
  if (key == "recompute")
    return readChoice(value, recomputeNames, plan.recompute);
  if (key == "schedule")
    return readChoice(value, scheduleNames, plan.schedule);
  if (key == "stages")
    return readChoice(value, stageNames, plan.evenStages);
  if (key != "zero")
    return Status::error("is not a part of a plan; use {}{}", choices(names),
                         suggestion(key, names));
  int64_t level = 0;
  TESSERA_RETURN_IF_ERROR(readDegree(value, 0, level));
  if (level > 3)
    return Status::error("{} must be 0, 1, 2 or 3", quote(value));
  plan.zero = int(level);
  return Status::success();
}

bool divides(int64_t divisor, int64_t value) { return value % divisor == 0; }

/// Chunks of a rank are equal but for the last rank's, which may hold less.
bool chunksFit(int64_t layers, const ParallelPlan &plan) {
  int64_t chunks = plan.pipe * plan.interleave;
  if (plan.evenStages)
    return divides(chunks, layers);
  if (plan.interleave == 1)
    return chunks <= layers;
  int64_t chunk = (layers + chunks - 1) / chunks;
  return (plan.pipe - 1) * plan.interleave * chunk <= layers;
}

/// Rules of one subject each; the first that is broken is reported.
Constraint sizeViolation(const ModelShape &model, const Cluster &cluster,
                         const ParallelPlan &plan) {
  if (plan.gpus() != cluster.gpus())
    return Constraint::Gpus;
  // Uneven shards of heads compile, but the closed form does not count them. It
  // only ranks the meshes of a machine whose programs are simulated.
  const bool isEven =
      divides(plan.tensor, model.heads) && divides(plan.tensor, model.kvHeads);
  if (cluster.host ? plan.tensor > model.kvHeads : !isEven)
    return Constraint::Heads;
  if (!divides(plan.tensor, model.intermediate) ||
      !divides(plan.tensor, model.sharedWidth) ||
      !divides(plan.expertTensor, model.expertWidth))
    return Constraint::Width;
  if (plan.tensor > cluster.links.front().span &&
      cluster.links.front().span != 0)
    return Constraint::NodeBound;
  if (!chunksFit(model.layers, plan))
    return Constraint::Layers;
  return Constraint::None;
}

Constraint scheduleViolation(const Workload &workload,
                             const ParallelPlan &plan) {
  int64_t batches = microbatches(plan, workload);
  if (batches == 0)
    return Constraint::Batch;
  bool fits = plan.interleave == 1;
  if (plan.schedule == Schedule::Interleaved)
    fits = plan.pipe > 1 && plan.interleave > 1;
  else if (plan.schedule == Schedule::ZeroBubbleH1)
    fits = plan.pipe > 1 && plan.interleave == 1;
  if (!fits)
    return Constraint::Schedule;
  if (plan.schedule == Schedule::Interleaved && !divides(plan.pipe, batches))
    return Constraint::Microbatches;
  return Constraint::None;
}

Constraint shardingViolation(const ModelShape &model,
                             const ParallelPlan &plan) {
  if (model.experts == 0) {
    if (plan.expert != 1 || plan.expertTensor != 1)
      return Constraint::Experts;
  } else if (!divides(plan.expert, model.experts) ||
             !divides(plan.expert * plan.expertTensor, plan.stageRanks())) {
    return Constraint::Experts;
  }
  if (!divides(plan.replicate, plan.data) ||
      !divides(plan.replicate, plan.expertCopies()) ||
      (plan.replicate > 1 && plan.zero == 0))
    return Constraint::Replicas;
  // Beyond ZeRO-1 gradients or weights are sent for every microbatch, and a
  // pipeline has many.
  bool nothing = plan.shardRanks() == 1 && plan.expertShardRanks() == 1;
  if ((plan.zero > 0 && nothing) || (plan.zero > 1 && plan.pipe > 1))
    return Constraint::Sharding;
  return Constraint::None;
}

} // namespace

std::string_view name(Recompute recompute) {
  return recomputeNames[size_t(recompute)];
}
std::string_view name(Schedule schedule) {
  return scheduleNames[size_t(schedule)];
}
std::string_view name(Constraint constraint) {
  return constraintNames[size_t(constraint)];
}

std::string describe(const ParallelPlan &plan) {
  std::string result = fmt::format("PP{}", plan.pipe);
  if (plan.interleave > 1)
    result += fmt::format(" VPP{}", plan.interleave);
  result += fmt::format(" TP{}", plan.tensor);
  if (plan.context > 1)
    result += fmt::format(" CP{}", plan.context);
  if (plan.expert > 1)
    result += fmt::format(" EP{}", plan.expert);
  if (plan.expertTensor > 1)
    result += fmt::format(" ETP{}", plan.expertTensor);
  result += fmt::format(" DP{}", plan.data);
  if (plan.replicate > 1)
    result += fmt::format(" in {} replicas", plan.replicate);
  return result +
         fmt::format(" ZeRO-{} micro {} {} {}", plan.zero, plan.micro,
                     name(plan.recompute), name(plan.schedule)) +
         (plan.evenStages ? " even stages" : "");
}

int64_t microbatches(const ParallelPlan &plan, const Workload &workload) {
  int64_t atOnce = plan.micro * plan.data;
  return divides(atOnce, workload.globalBatch) ? workload.globalBatch / atOnce
                                               : 0;
}

Constraint firstViolation(const ModelShape &model, const Cluster &cluster,
                          const Workload &workload, const ParallelPlan &plan) {
  if (Constraint size = sizeViolation(model, cluster, plan);
      size != Constraint::None)
    return size;
  // Each rank takes a slice from both ends, for equal work under a causal mask.
  if (plan.context > 1 && !divides(2 * plan.context, workload.sequence))
    return Constraint::Sequence;
  if (!divides(plan.tensor * plan.context, workload.sequence))
    return Constraint::Sequence;
  if (Constraint schedule = scheduleViolation(workload, plan);
      schedule != Constraint::None)
    return schedule;
  return shardingViolation(model, plan);
}

Violation explainViolation(const ModelShape &model, const Cluster &cluster,
                           const Workload &workload, const ParallelPlan &plan) {
  Violation result{firstViolation(model, cluster, workload, plan), ""};
  switch (result.constraint) {
  case Constraint::None:
  case Constraint::Compiler:
  case Constraint::Memory:
    break;
  case Constraint::Gpus:
    result.detail =
        fmt::format("pipe * tensor * context * data = {}, the cluster has {}",
                    plan.gpus(), cluster.gpus());
    break;
  case Constraint::Heads:
    result.detail = fmt::format("tensor = {}, heads = {}, key-value heads = {}",
                                plan.tensor, model.heads, model.kvHeads);
    break;
  case Constraint::Width:
    result.detail = fmt::format(
        "tensor = {}, expert-tensor = {}, widths = {} and {} (experts)",
        plan.tensor, plan.expertTensor, model.intermediate, model.expertWidth);
    break;
  case Constraint::Layers:
    result.detail = fmt::format("pipe * interleave = {}, layers = {}",
                                plan.pipe * plan.interleave, model.layers);
    break;
  case Constraint::Sequence:
    result.detail = fmt::format("context = {}, tensor = {}, sequence = {}",
                                plan.context, plan.tensor, workload.sequence);
    break;
  case Constraint::Batch:
    result.detail = fmt::format("micro * data = {}, global batch = {}",
                                plan.micro * plan.data, workload.globalBatch);
    break;
  case Constraint::Microbatches:
    result.detail = fmt::format("pipe = {1} does not divide {0} microbatches",
                                microbatches(plan, workload), plan.pipe);
    break;
  case Constraint::Experts:
    result.detail = fmt::format(
        "expert = {}, expert-tensor = {}, experts = {}, ranks of a stage = {}",
        plan.expert, plan.expertTensor, model.experts, plan.stageRanks());
    break;
  case Constraint::NodeBound:
    result.detail =
        fmt::format("tensor = {}, {} joins {}", plan.tensor,
                    cluster.links.front().name, cluster.links.front().span);
    break;
  case Constraint::Schedule:
    result.detail =
        fmt::format("{} with pipe = {}, interleave = {}", name(plan.schedule),
                    plan.pipe, plan.interleave);
    break;
  case Constraint::Replicas:
    result.detail = fmt::format(
        "replicate = {}, data = {}, copies of an expert = {}, zero = {}",
        plan.replicate, plan.data, plan.expertCopies(), plan.zero);
    break;
  case Constraint::Sharding:
    result.detail =
        fmt::format("zero = {}, data = {}, replicate = {}, pipe = {}",
                    plan.zero, plan.data, plan.replicate, plan.pipe);
    break;
  }
  return result;
}

std::vector<int64_t> replicaCounts(const Cluster &cluster,
                                   const ParallelPlan &plan) {
  std::vector<int64_t> counts;
  const int64_t joined = cluster.links.front().span; // 0: all GPUs
  if (joined == 0)
    return counts;
  for (int64_t ranks = joined; ranks < plan.stageRanks(); ranks *= 2) {
    const int64_t count = plan.stageRanks() / ranks;
    if (divides(ranks, plan.stageRanks()) && divides(count, plan.data) &&
        divides(count, plan.expertCopies()) && plan.data * plan.context > count)
      counts.push_back(count);
  }
  std::ranges::reverse(counts);
  return counts;
}

StatusOr<ParallelPlan> parsePlan(std::string_view text, int64_t gpus) {
  ParallelPlan plan;
  std::set<std::string_view> seen;
  while (!text.empty()) {
    std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    size_t equals = part.find('=');
    if (equals == part.npos)
      return Status::error("--fix {}: expected KEY=VALUE, for example pipe=8",
                           quote(part));
    std::string_view key = part.substr(0, equals);
    if (!seen.insert(key).second)
      return Status::error("--fix: {} is given twice; keep one", quote(key));
    if (Status status = assign(plan, key, part.substr(equals + 1));
        !status.ok())
      return Status::error("--fix {}: {}", quote(key), status.message());
  }
  int64_t product = 1; // step by step, as it could overflow
  for (int64_t degree : {plan.pipe, plan.tensor, plan.context, plan.data}) {
    if (degree > gpus / product)
      return Status::error(
          "--fix: pipe * tensor * context * data are more than "
          "{} GPUs",
          gpus);
    product *= degree;
  }
  if (!seen.contains("data")) {
    if (!divides(product, gpus))
      return Status::error(
          "--fix: pipe * tensor * context = {} do not divide {} "
          "GPUs",
          product, gpus);
    plan.data = gpus / product;
  }
  if (!seen.contains("schedule") && plan.interleave > 1)
    plan.schedule = Schedule::Interleaved;
  if (!seen.contains("zero") && plan.data * plan.context == 1)
    plan.zero = 0;
  return plan;
}

} // namespace tessera::planner
