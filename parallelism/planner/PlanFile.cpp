#include "parallelism/planner/PlanFile.h"

#include <array>
#include <tuple>

#include "hardware/YamlSections.h"
#include "parallelism/pipeline/Generate.h"
#include "runtime/support/Text.h"

namespace tessera::planner {
namespace {

constexpr int64_t maxFileBytes = 1 << 14;
constexpr int64_t mostDevices = int64_t(1) << 20; // as of --mesh
constexpr int64_t mostBytes = int64_t(1) << 50;
constexpr size_t mostTiers = 8;
constexpr int64_t mostParameters = int64_t(1) << 50;

constexpr Schedule schedules[] = {Schedule::OneF1B, Schedule::Interleaved,
                                  Schedule::ZeroBubbleH1};
constexpr recipe::Recompute recomputes[] = {recipe::Recompute::None,
                                            recipe::Recompute::Selective,
                                            recipe::Recompute::Full};
constexpr recipe::Precision precisions[] = {
    recipe::Precision::Fp32, recipe::Precision::Bf16, recipe::Precision::Fp64};
constexpr int64_t stages[] = {0, 1, 2, 3};

std::string_view name(int64_t zero) {
  constexpr std::string_view digits = "0123";
  return digits.substr(size_t(zero), 1);
}

Status checkSchedule(Schedule schedule, int64_t pipe, int64_t microbatches,
                     int64_t chunks) {
  if (pipe == 1)
    return Status::success();
  return pipeline::checkShape(
      *pipeline::findPolicy(name(schedule)),
      {int(pipe), int(std::min(microbatches, mostDevices)), int(chunks)});
}

/// One of `all` by its name.
template <typename Value, size_t count>
YamlKey choice(std::string_view key, Value &to, const Value (&all)[count]) {
  return {key, true, [&to, &all](const YAML::Node &node) -> Status {
            std::string given;
            TESSERA_RETURN_IF_ERROR(yamlScalar(node, given));
            std::array<std::string_view, count> names;
            for (size_t i = 0; i < count; ++i) {
              names[i] = name(all[i]);
              if (given == names[i]) {
                to = all[i];
                return Status::success();
              }
            }
            return Status::error("{} is none of {}", quote(given),
                                 choices(names));
          }};
}

class Reader : YamlSections {
public:
  using YamlSections::YamlSections;

  StatusOr<PlanFile> read(const YAML::Node &document) {
    PlanFile file;
    MeshPlan &plan = file.plan;
    using Batch = recipe::Recipe::Batch;
    std::vector<YamlKey> keys = {
        {"model", true,
         [&](const YAML::Node &node) { return readModel(node, file); }},
        {"cluster", true,
         [&](const YAML::Node &node) { return readCluster(node, file); }},
        yamlTarget("target", file.target, true),
        {"mesh", true,
         [&](const YAML::Node &node) { return readMesh(node, plan); }},
        yamlInteger("expert_tensor", plan.expertTensor, mostDevices, false),
        choice("zero", plan.zero, stages),
        choice("schedule", plan.schedule, schedules),
        yamlInteger("chunks", plan.chunks, mostDevices),
        yamlInteger("micro", plan.micro, Batch::mostSequences),
        yamlInteger("accumulate", plan.accumulate, Batch::mostSequences),
        yamlInteger("sequence", plan.sequence, Batch::mostLength),
        choice("recompute", plan.recompute, recomputes),
        choice("precision", plan.precision, precisions),
        {"predicted", false, [&](const YAML::Node &node) {
           return readPrediction(node, file.predicted);
         }}};
    TESSERA_RETURN_IF_ERROR(section(document, "", keys));
    if (Status status = check(plan); !status.ok())
      return Status::error("{}: {}", this->file, status.message());
    return file;
  }

private:
  Status readModel(const YAML::Node &node, PlanFile &file) {
    return section(
        node, "model.",
        {yamlText("name", file.model),
         yamlInteger("parameters", file.parameters, mostParameters)});
  }

  Status readCluster(const YAML::Node &node, PlanFile &file) {
    hardware::ClusterRates &cluster = file.cluster;
    return section(
        node, "cluster.",
        {yamlText("name", cluster.name),
         yamlQuantity("flops", cluster.device.flops, Unit::FlopsPerSecond),
         yamlQuantity("memory", cluster.device.bytes, Unit::BytesPerSecond),
         yamlQuantity("launch", cluster.launch, Unit::Seconds),
         {"links", true, [&](const YAML::Node &links) {
            return readLinks(links, cluster.links);
          }}});
  }

  Status readLinks(const YAML::Node &node, std::vector<hardware::Tier> &to) {
    if (!node.IsSequence() || node.size() == 0 || node.size() > mostTiers)
      return Status::error("must be a list of 1 to {} tiers, nearest first",
                           mostTiers);
    int64_t before = 0;
    for (const YAML::Node &each : node) {
      hardware::Tier &tier = to.emplace_back();
      TESSERA_RETURN_IF_ERROR(section(
          each, "links.",
          {yamlInteger("span", tier.span, mostDevices, false),
           yamlQuantity("bandwidth", tier.link.bytes, Unit::BytesPerSecond),
           yamlQuantity("latency", tier.link.latency, Unit::Seconds)}));
      const bool isLast = to.size() == node.size();
      if (isLast ? tier.span != 0 : tier.span <= before)
        return Status::error("spans grow, and the last tier has none: it "
                             "connects all devices");
      before = tier.span;
    }
    return Status::success();
  }

  Status readMesh(const YAML::Node &node, MeshPlan &plan) {
    return section(
        node, "mesh.",
        {yamlInteger("pipe", plan.pipe, mostDevices, false),
         yamlInteger("replicate", plan.replicate, mostDevices, false),
         yamlInteger("data", plan.data, mostDevices, false),
         yamlInteger("expert", plan.expert, mostDevices, false),
         yamlInteger("context", plan.context, mostDevices, false),
         yamlInteger("tensor", plan.tensor, mostDevices, false)});
  }

  Status readPrediction(const YAML::Node &node, Prediction &predicted) {
    return section(
        node, "predicted.",
        {yamlQuantity("step_seconds", predicted.stepSeconds, Unit::Count,
                      false),
         yamlInteger("state_bytes", predicted.stateBytes, mostBytes, false),
         yamlInteger("arena_bytes", predicted.arenaBytes, mostBytes, false)});
  }

  /// Rules between keys.
  static Status check(const MeshPlan &plan) {
    int64_t devices = 1; // step by step, as the product could overflow
    for (int64_t size : {plan.pipe, plan.replicate, plan.data, plan.expert,
                         plan.context, plan.tensor}) {
      if (size > mostDevices / devices)
        return Status::error("key 'mesh': more than {} devices", mostDevices);
      devices *= size;
    }
    if (plan.expertTensor > 1 && plan.expertTensor != plan.tensor)
      return Status::error("key 'expert_tensor': {} is neither 1 nor tensor, "
                           "{}",
                           plan.expertTensor, plan.tensor);
    if (plan.zero > 0 && plan.data * plan.expert * plan.context == 1)
      return Status::error("key 'zero': {} shards over data, expert and "
                           "context, which are 1; give 0",
                           plan.zero);
    if (plan.pipe == 1 &&
        (plan.chunks > 1 || plan.schedule != Schedule::OneF1B))
      return Status::error("key 'schedule': a mesh without pipe has schedule "
                           "1f1b and 1 chunk");
    if (Status status = checkSchedule(plan.schedule, plan.pipe, plan.accumulate,
                                      plan.chunks);
        !status.ok())
      return Status::error("key 'schedule': {}", status.message());
    return recipe::checkBatch({plan.micro, plan.accumulate, plan.sequence});
  }
};

std::optional<recipe::Recompute> recipeName(Recompute recompute) {
  switch (recompute) {
  case Recompute::None:
    return recipe::Recompute::None;
  case Recompute::Selective:
    return recipe::Recompute::Selective;
  case Recompute::Full:
    return recipe::Recompute::Full;
  case Recompute::Attention:
    break;
  }
  return std::nullopt;
}

} // namespace

Recompute recomputeOf(recipe::Recompute recompute) {
  switch (recompute) {
  case recipe::Recompute::None:
    return Recompute::None;
  case recipe::Recompute::Full:
    return Recompute::Full;
  case recipe::Recompute::Selective:
    return Recompute::Selective;
  }
  return Recompute::None;
}

Workload workloadOf(const ModelShape &model, const recipe::Recipe &recipe) {
  Workload workload;
  workload.sequence = recipe.batch.sequence;
  workload.globalBatch = recipe.batch.micro * recipe.batch.accumulate;
  workload.compiled = true;
  workload.exchangedRows = recipe.moe.buffer;
  workload.dropout =
      recipe.dropout.rate ? *recipe.dropout.rate > 0 : model.dropout;
  workload.flashAttention = !workload.dropout; // which is not fused
  workload.countsBefore =
      model.experts > 0 && recipe.moe.balance == recipe::BalanceScope::Global;
  workload.precision = recipe.compute;
  const bool narrow = recipe.compute == recipe::Precision::Bf16;
  const double state = recipe.compute == recipe::Precision::Fp64 ? 8 : 4;
  workload.elementBytes = narrow ? 2 : state;
  workload.gradientBytes = state;
  // Weights that are not narrow are their own masters.
  double moments = 2 * state;
  if (recipe.optimizer.name == recipe::OptimizerKind::Sgd)
    moments = recipe.optimizer.momentum > 0 ? state : 0;
  workload.optimizerBytes = (narrow ? state : 0) + moments;
  return workload;
}

std::string whyNotCompiled(const ModelShape &model, const Workload &workload,
                           const ParallelPlan &plan) {
  if (workload.fp8)
    return "precision fp8: the compiler computes in fp32, bf16 or fp64";
  if (!recipeName(plan.recompute))
    return fmt::format("recompute = {}: a recipe has none, selective or full",
                       name(plan.recompute));
  if (plan.evenStages)
    return "stages = even: the compiler balances stages";
  if (model.experts > 0 && plan.expertTensor != plan.tensor &&
      (plan.expertTensor != 1 || plan.expert % plan.tensor != 0))
    return fmt::format("expert-tensor = {}: experts are sharded over tensor = "
                       "{} as other layers are, or, with 1, distributed over "
                       "a multiple of its ranks",
                       plan.expertTensor, plan.tensor);
  if (plan.data % (plan.replicate * plan.expertData()) != 0)
    return fmt::format("expert = {}: a mesh's experts span data ranks of a "
                       "replica, which are {} / {}{}",
                       plan.expert, plan.data, plan.replicate,
                       plan.foldsTensor() ? ", and all tensor ranks" : "");
  if (plan.zero > 0 && plan.shardRanks() == 1)
    return fmt::format("zero = {}: a mesh shards state over data and context "
                       "ranks of a replica, which are 1",
                       plan.zero);
  const int64_t batches = microbatches(plan, workload);
  Status status =
      recipe::checkBatch({plan.micro * plan.data, batches, workload.sequence});
  if (status.ok())
    status = pipeline::checkStages(plan.pipe * plan.interleave, model.layers);
  if (status.ok())
    status = checkSchedule(plan.schedule, plan.pipe, batches, plan.interleave);
  return status.ok() ? "" : std::string(status.message());
}

MeshPlan meshPlanOf(const Workload &workload, const ParallelPlan &plan) {
  MeshPlan mesh;
  mesh.pipe = plan.pipe;
  mesh.replicate = plan.replicate;
  mesh.expert = plan.expertData();
  mesh.data = plan.data / (plan.replicate * mesh.expert);
  mesh.context = plan.context;
  mesh.tensor = plan.tensor;
  mesh.expertTensor = plan.foldsTensor() ? 1 : 0;
  mesh.zero = plan.zero;
  mesh.schedule = plan.schedule;
  mesh.chunks = plan.interleave;
  mesh.micro = plan.micro * plan.data;
  mesh.accumulate = microbatches(plan, workload);
  mesh.sequence = workload.sequence;
  mesh.recompute = recipeName(plan.recompute).value_or(recipe::Recompute::None);
  mesh.precision = workload.precision;
  return mesh;
}

std::string meshText(const MeshPlan &plan) {
  std::string text;
  auto add = [&](std::string_view key, auto value) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, value);
  };
  for (const auto &[axis, size] : {std::pair("pipe", plan.pipe),
                                   {"replicate", plan.replicate},
                                   {"data", plan.data},
                                   {"expert", plan.expert},
                                   {"context", plan.context},
                                   {"tensor", plan.tensor}})
    if (size > 1)
      add(axis, size);
  if (plan.expertTensor > 0 && plan.tensor > 1)
    add("expert_tensor", plan.expertTensor);
  if (plan.schedule != Schedule::OneF1B)
    add("schedule", name(plan.schedule));
  if (plan.chunks > 1)
    add("chunks", plan.chunks);
  if (plan.zero > 0)
    add("zero", plan.zero);
  return text;
}

std::vector<std::string> recipeKeys(const MeshPlan &plan) {
  return {fmt::format("batch.micro={}", plan.micro),
          fmt::format("batch.accumulate={}", plan.accumulate),
          fmt::format("batch.sequence={}", plan.sequence),
          fmt::format("recompute={}", name(plan.recompute)),
          fmt::format("precision.compute={}", name(plan.precision))};
}

/// A name as a YAML string that holds anything.
static std::string yamlString(std::string_view text) {
  std::string result = "'";
  for (char c : oneLine(text))
    result += c == '\'' ? "''" : std::string(1, c);
  return result + "'";
}

std::string printPlanFile(const PlanFile &file) {
  const MeshPlan &plan = file.plan;
  const std::string cluster =
      fmt::format("{{name: {}, {}}}", yamlString(file.cluster.name),
                  printRates(file.cluster));
  std::string text = fmt::format(
      "# tessera compile SPEC --plan FILE -o OUTPUT\n"
      "model: {{name: {}, parameters: {}}}\n"
      "cluster: {}\n"
      "target: {}\n"
      "mesh: {{pipe: {}, replicate: {}, data: {}, expert: {}, context: {}, "
      "tensor: {}}}\n"
      "{}zero: {}\n"
      "schedule: {}\n"
      "chunks: {}\n"
      "micro: {} # sequences of a microbatch, of all ranks\n"
      "accumulate: {}\n"
      "sequence: {}\n"
      "recompute: {}\n"
      "precision: {}\n",
      yamlString(file.model), file.parameters, cluster, yamlString(file.target),
      plan.pipe, plan.replicate, plan.data, plan.expert, plan.context,
      plan.tensor,
      plan.expertTensor > 0
          ? fmt::format("expert_tensor: {}\n", plan.expertTensor)
          : "",
      plan.zero, name(plan.schedule), plan.chunks, plan.micro, plan.accumulate,
      plan.sequence, name(plan.recompute), name(plan.precision));
  const Prediction &predicted = file.predicted;
  if (predicted == Prediction())
    return text;
  text += "predicted:\n";
  if (predicted.stepSeconds > 0)
    text += fmt::format("  step_seconds: {}\n", predicted.stepSeconds);
  if (predicted.stateBytes > 0)
    text += fmt::format("  state_bytes: {}\n", predicted.stateBytes);
  if (predicted.arenaBytes > 0)
    text += fmt::format("  arena_bytes: {}\n", predicted.arenaBytes);
  return text;
}

StatusOr<PlanFile> parsePlanFile(std::string_view text,
                                 const std::string &file) {
  if (text.size() > size_t(maxFileBytes))
    return Status::error("{}: is larger than {} bytes", file, maxFileBytes);
  StatusOr<PlanFile> plan = PlanFile();
  Status status = recipe::readYaml(text, file, [&](const YAML::Node &document) {
    plan = Reader(file).read(document);
    return plan.status();
  });
  if (!status.ok())
    return status;
  return plan;
}

StatusOr<PlanFile> loadPlanFile(const std::string &path) {
  StatusOr<std::string> text = readTextFile(path, maxFileBytes);
  if (!text.ok())
    return text.status();
  return parsePlanFile(*text, path);
}

} // namespace tessera::planner
