#include "compiler/api/ProgramProbe.h"
#include "compiler/api/ProgramMemory.h"
#include "compiler/report/Json.h"
#include "dialects/dist/DistOps.h"
#include "dialects/graph/GraphOps.h"
#include "hardware/CollectiveCost.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "models/HfConfig.h"
#include "parallelism/pipeline/Generate.h"
#include "parallelism/pipeline/Lower.h"
#include "parallelism/pipeline/Simulate.h"
#include "parallelism/pipeline/SteadyState.h"
#include <algorithm>
#include <array>
#include <future>
#include <map>
#include <set>

using namespace mlir;
using namespace tessera;
using namespace tessera::planner;

/// A rank of a compiled program.
struct ProgramProbe::Rank {
  int64_t stage = 0; ///< its number in the pipeline
  RankMemory memory;
  StepSeconds step;
  double layers = 0;   ///< of all its stages
  double inFlight = 0; ///< the most layers times microbatches that it keeps
  /// The most layers times microbatches between backward for inputs and for
  /// weights: a program keeps both inputs and gradients of these.
  double waiting = 0;
};

// Programs with fewer layers than this are compiled as they are.
static constexpr int64_t kShallow = 20;
// Depths without a pipeline: deep enough that the peak is where it is in deeper
// ones (with 4 layers it can still be in the head), and a multiple of the
// periods in which buckets of collectives are filled.
static constexpr int64_t kDepths[] = {8, 16};
// Seconds of a pipeline's program that is compiled as it is.
static constexpr double kAffordable = 1.5;
// Chunks of the programs from which one with more is extrapolated.
static constexpr int64_t kFewChunks = 3, kMoreChunks = 4;

//===--- the model --------------------------------------------------------===//

// Layers with and without experts, or with other windows, need other bytes, and
// so do mixers and attention.
static bool areAlike(const models::ModelSpec &spec) {
  auto isConstant = [](const auto &each) {
    return each.empty() || std::ranges::count(each, each.front()) ==
                               static_cast<std::ptrdiff_t>(each.size());
  };
  return !spec.stateSpace && isConstant(spec.windows) &&
         (!spec.moe || isConstant(spec.moe->sparse));
}

// config.json of the same model with fewer layers.
static std::string withLayers(const std::string &config, int64_t layers) {
  report::Json json = report::Json::parse(config);
  for (const char *key : {"num_hidden_layers", "n_layer"})
    if (json.contains(key))
      json[key] = layers;
  if (json.contains("max_window_layers") &&
      json["max_window_layers"].is_number_integer())
    json["max_window_layers"] =
        std::min(layers, json["max_window_layers"].get<int64_t>());
  if (json.contains("layer_types") && json["layer_types"].is_array())
    json["layer_types"].erase(json["layer_types"].begin() + layers,
                              json["layer_types"].end());
  return json.dump();
}

StatusOr<ProgramProbe> ProgramProbe::create(CompileRequest request,
                                            const MeshPlan &plan,
                                            Cluster cluster) {
  StatusOr<models::LoadedConfig> loaded = models::loadHfConfig(request.spec);
  if (!loaded.ok())
    return loaded.status();
  ProgramProbe probe;
  probe.request = std::move(request);
  probe.request.cluster = ratesOf(cluster);
  probe.plan = plan;
  probe.cluster = std::move(cluster);
  probe.hidden = loaded->spec.hidden;
  probe.config = loaded->text;
  probe.whole = {loaded->spec.layers, plan.chunks, plan.accumulate};
  probe.isUniform = areAlike(loaded->spec);
  probe.isSparse = loaded->spec.moe.has_value();
  return probe;
}

//===--- extents ----------------------------------------------------------===//

StatusOr<pipeline::Schedule>
ProgramProbe::scheduleOf(const ProgramExtent &extent) const {
  return pipeline::generate(name(plan.schedule),
                            {static_cast<int>(plan.pipe),
                             static_cast<int>(extent.microbatches),
                             static_cast<int>(extent.chunks)});
}

// The forwards and backwards that a rank's program has: one trip of its loop.
static int64_t countWritten(const pipeline::InstructionList &list) {
  const pipeline::SteadyState steady = pipeline::findSteadyState(list);
  int64_t count = 0;
  for (size_t k = 0; k < list.size(); ++k)
    if (!steady.trips || k < steady.begin + steady.length || k >= steady.end())
      count += pipeline::isCompute(list[k].op);
  return count;
}

// Copies of a layer's forward or backward in the programs of the ranks that are
// compiled: all, or the ends (run may add a rank or two between them).
double ProgramProbe::copies(const ProgramExtent &extent, bool isWhole) const {
  pipeline::LowerOptions options;
  options.costs.asyncTransfers = false;
  StatusOr<pipeline::Schedule> schedule = scheduleOf(extent);
  if (schedule.ok())
    schedule = pipeline::lower(*schedule, options);
  if (!schedule.ok())
    return 0; // compilation says why
  int64_t count = 0;
  for (size_t rank = 0; rank < schedule->lists.size(); ++rank)
    if (isWhole || rank == 0 || rank + 1 == schedule->lists.size())
      count += countWritten(schedule->lists[rank]);
  return static_cast<double>(count * extent.layers) /
         static_cast<double>(plan.pipe * extent.chunks);
}

// On a processor of 2023, measured: a layer with experts is ten times as many
// ops, and overlapped products of tensor ranks come in pieces. Without a
// pipeline microbatches are a loop: a layer's forward, backward and update.
double ProgramProbe::cost(const ProgramExtent &extent, bool isWhole) const {
  const double copy = (isSparse ? 0.025 : 0.0025) * (plan.tensor > 1 ? 1.5 : 1);
  if (!isPipeline())
    return 0.15 + 3 * copy * static_cast<double>(extent.layers);
  return 0.1 + copy * copies(extent, isWhole);
}

bool ProgramProbe::isAffordable() const {
  return cost(whole, /*isWhole=*/true) <= kAffordable;
}

// Otherwise the fullest alone.
bool ProgramProbe::compilesAllRanks() const {
  return extents().size() == 1 &&
         (whole.chunks == 1 || !isUniform || isAffordable());
}

double ProgramProbe::cost() const {
  const bool isWhole = compilesAllRanks();
  double sum = 0;
  for (const ProgramExtent &extent : extents())
    sum += cost(extent, isWhole);
  return sum;
}

std::vector<ProgramExtent> ProgramProbe::extents() const {
  ProgramExtent one = whole;
  if (!isUniform)
    return {one};
  if (!isPipeline()) {
    if (!isSparse || one.layers <= kShallow)
      return {one};
    return {{kDepths[0], 1, one.microbatches},
            {kDepths[1], 1, one.microbatches}};
  }
  // All microbatches: most are in a loop, in which other tensors live than in a
  // schedule that is written out.
  const int64_t stages = plan.pipe * one.chunks, rest = one.layers / stages;
  if (one.chunks == 1 && !isAffordable() && rest > 1)
    return {{plan.pipe, 1, one.microbatches},
            {(rest > 3 ? 3 : 2) * plan.pipe, 1, one.microbatches}};
  // With fewer chunks, or fewer layers in each, the peak can be at another
  // moment: with the last gradients, not with the first. Up to seven chunks the
  // program itself has no more layers than these two.
  if (one.chunks > kFewChunks + kMoreChunks && !isAffordable())
    return {{kFewChunks * rest * plan.pipe, kFewChunks, one.microbatches},
            {kMoreChunks * rest * plan.pipe, kMoreChunks, one.microbatches}};
  return {one};
}

CompileRequest ProgramProbe::requestFor(const ProgramExtent &extent) const {
  CompileRequest result = request;
  MeshPlan mesh = plan;
  mesh.chunks = extent.chunks;
  mesh.accumulate = extent.microbatches;
  for (std::string &key : recipeKeys(mesh))
    result.set.push_back(std::move(key));
  result.mesh = meshText(mesh);
  if (extent.layers != whole.layers)
    result.configText = withLayers(config, extent.layers);
  result.onlyPlan = true;
  result.isTrial = true;
  result.onlyStep = true;
  result.cache = "off";
  return result;
}

//===--- compilation ------------------------------------------------------===//

// How many layers each stage has, as passes/stages cuts the model.
StatusOr<std::vector<int64_t>>
ProgramProbe::stageLayers(const ProgramExtent &extent) const {
  std::vector<int64_t> layers(static_cast<size_t>(plan.pipe * extent.chunks));
  CompileRequest cut = requestFor(extent);
  cut.onlyStep = false;
  cut.to = "shard";
  cut.planned = [&](ModuleOp module, int64_t) {
    for (auto function : module.getOps<func::FuncOp>()) {
      if (function.getName() != "eval_step")
        continue;
      function.walk([&](func::CallOp call) {
        if (auto stage =
                call->getAttrOfType<IntegerAttr>(dist::kForwardStageAttr))
          ++layers[static_cast<size_t>(stage.getInt())];
      });
    }
  };
  llvm::Expected<CompileSummary> summary = compile(cut);
  if (!summary)
    return Status::error("{}", llvm::toString(summary.takeError()));
  return layers;
}

StatusOr<ProgramProbe::Ranks>
ProgramProbe::compileAt(const ProgramExtent &extent,
                        std::vector<int64_t> stages) const {
  Ranks ranks;
  std::map<int64_t, StepSeconds> steps; ///< by rank
  CompileRequest one = requestFor(extent);
  one.onlyStages = std::move(stages);
  one.planned = [&](ModuleOp module, int64_t rank) {
    steps[rank] = replayStep(module, cluster, plan);
  };
  one.accept = [&](llvm::ArrayRef<RankMemory> all) {
    const int64_t stageRanks = plan.devices() / plan.pipe;
    for (const RankMemory &memory : all)
      ranks.push_back({memory.rank / stageRanks, memory, steps[memory.rank]});
    return llvm::Error::success();
  };
  llvm::Expected<CompileSummary> summary = compile(one);
  if (!summary)
    return Status::error("{}", llvm::toString(summary.takeError()));
  return ranks;
}

// The most layers times microbatches that a rank keeps from F to B, or W; or
// only from B to W.
static double mostInFlight(const pipeline::Schedule &schedule, size_t rank,
                           const std::vector<int64_t> &layers,
                           pipeline::Op from = pipeline::Op::Forward) {
  using pipeline::Op;
  int64_t held = 0, most = 0;
  for (const pipeline::Instruction &each : schedule.lists[rank]) {
    if (!pipeline::isCompute(each.op))
      continue;
    const int64_t own = layers[static_cast<size_t>(each.work.stage)];
    const bool ends = each.op == Op::BackwardWeight ||
                      (from == Op::Forward && each.op != Op::BackwardInput);
    if (each.op == from)
      most = std::max(most, held += own);
    else if (each.op != Op::Forward && ends)
      held -= own;
  }
  return static_cast<double>(most);
}

// Adds layers to ranks, and returns the layers of each stage.
StatusOr<std::vector<int64_t>>
ProgramProbe::addLayers(const ProgramExtent &extent, Ranks &ranks) const {
  if (!isPipeline()) {
    for (Rank &rank : ranks)
      rank.layers = static_cast<double>(extent.layers);
    return std::vector{extent.layers};
  }
  StatusOr<std::vector<int64_t>> layers = stageLayers(extent);
  if (!layers.ok())
    return layers;
  StatusOr<pipeline::Schedule> schedule = scheduleOf(extent);
  if (!schedule.ok())
    return schedule.status();
  for (Rank &rank : ranks) {
    for (size_t stage = 0; stage < layers->size(); ++stage)
      if (schedule->placement[stage] == rank.stage)
        rank.layers += static_cast<double>((*layers)[stage]);
    rank.inFlight =
        mostInFlight(*schedule, static_cast<size_t>(rank.stage), *layers);
    rank.waiting = mostInFlight(*schedule, static_cast<size_t>(rank.stage),
                                *layers, pipeline::Op::BackwardInput);
  }
  return layers;
}

//===--- extrapolation ----------------------------------------------------===//

// A value of the one or two points of a stage, at `layers` of its rank. What is
// in flight grows with them.
template <typename Ranks, typename Value>
static double extrapolated(const Ranks &ranks, double layers, Value value) {
  const auto &one = ranks.front(), &other = ranks.back();
  const auto first = static_cast<double>(value(one));
  if (one.layers == other.layers)
    return first;
  return first + (static_cast<double>(value(other)) - first) *
                     (layers - one.layers) / (other.layers - one.layers);
}

// The cost of one microbatch at each stage: what was replayed of a layer, and
// of the ops before the first and after the last.
static pipeline::Costs stageCosts(const std::vector<int64_t> &layers,
                                  double forward, double backward,
                                  double before, double after) {
  pipeline::Costs costs;
  costs.stages.clear();
  for (size_t stage = 0; stage < layers.size(); ++stage) {
    pipeline::StageCost cost;
    const auto count = static_cast<double>(layers[stage]);
    cost.forward = count * forward + (stage == 0 ? before : 0);
    cost.backward = count * backward + (stage + 1 == layers.size() ? after : 0);
    // Gradients of weights are half of a backward pass's products.
    cost.backwardInput = cost.backwardWeight = cost.backward / 2;
    costs.stages.push_back(cost);
  }
  return costs;
}

StatusOr<double>
ProgramProbe::stepSeconds(const std::map<int64_t, Ranks> &points,
                          const Ranks &wanted,
                          const std::vector<int64_t> &layers) const {
  auto at = [&](int64_t stage, auto value) {
    return extrapolated(points.at(stage),
                        wanted[static_cast<size_t>(stage)].layers, value);
  };
  if (!isPipeline())
    return at(0, [](const Rank &rank) { return rank.step.total(); });
  const auto microbatches = static_cast<double>(extents().back().microbatches);
  const Rank &first = points.begin()->second.back(),
             &last = points.rbegin()->second.back();
  const double share = 1 / (microbatches * first.layers);
  pipeline::Costs costs = stageCosts(
      layers, first.step.forward * share, first.step.backward * share,
      first.step.between / microbatches, last.step.between / microbatches);
  const double bytes = 2 * static_cast<double>(plan.micro * plan.sequence) *
                       static_cast<double>(hidden) /
                       static_cast<double>(plan.devices() / plan.pipe);
  for (pipeline::StageCost &stage : costs.stages)
    stage.outputBytes = bytes;
  costs.link.perByte =
      CollectiveCost(cluster).send(bytes, plan.devices() / plan.pipe) / bytes;
  // The compiler's own schedule, with these costs.
  StatusOr<pipeline::Schedule> schedule = scheduleOf(whole);
  if (!schedule.ok())
    return schedule.status();
  StatusOr<pipeline::Simulation> run = pipeline::simulate(*schedule, costs);
  if (!run.ok())
    return run.status();
  double outside = 0;
  for (const auto &[stage, ranks] : points)
    outside = std::max(
        outside, at(stage, [](const Rank &rank) { return rank.step.outside; }));
  return run->makespan + outside;
}

// The ends of a pipeline, and ranks between them that have more layers, or more
// in flight or waiting for their weights' gradients, than the first.
template <typename Ranks>
static std::vector<int64_t> fullestStages(const Ranks &ranks) {
  std::set<int64_t> stages{ranks.front().stage, ranks.back().stage};
  auto addFullest = [&](auto measure) {
    auto fullest = std::ranges::max_element(ranks, {}, measure);
    if (measure(*fullest) > measure(ranks.front()))
      stages.insert(fullest->stage);
  };
  addFullest([](const auto &rank) { return rank.layers; });
  addFullest([](const auto &rank) { return rank.inFlight; });
  addFullest([](const auto &rank) { return rank.waiting; });
  return {stages.begin(), stages.end()};
}

StatusOr<std::map<int64_t, ProgramProbe::Ranks>>
ProgramProbe::compileExtents(const Ranks &wanted) const {
  const std::vector<ProgramExtent> all = extents();
  const std::vector<int64_t> stages =
      compilesAllRanks() ? std::vector<int64_t>() : fullestStages(wanted);
  std::vector<std::future<StatusOr<Ranks>>> compiled;
  for (const ProgramExtent &extent : all)
    compiled.push_back(std::async(std::launch::async, [&, extent] {
      StatusOr<Ranks> ranks = compileAt(extent, stages);
      if (!ranks.ok())
        return ranks;
      StatusOr<std::vector<int64_t>> added = addLayers(extent, *ranks);
      return added.ok() ? std::move(ranks) : StatusOr<Ranks>(added.status());
    }));
  std::map<int64_t, Ranks> points;
  Status failed;
  for (auto &future : compiled) {
    StatusOr<Ranks> ranks = future.get();
    if (!ranks.ok()) {
      if (failed.ok())
        failed = ranks.status();
      continue;
    }
    for (Rank &rank : *ranks)
      points[rank.stage].push_back(rank);
  }
  if (!failed.ok())
    return failed;
  return points;
}

StatusOr<ProbedProgram> ProgramProbe::run() const {
  Ranks wanted;
  for (int64_t stage = 0; stage < plan.pipe; ++stage)
    wanted.push_back({stage, {}, {}, 0, 0, 0});
  StatusOr<std::vector<int64_t>> layers = addLayers(whole, wanted);
  if (!layers.ok())
    return layers.status();
  auto points = compileExtents(wanted);
  if (!points.ok())
    return points.status();
  std::vector<RankMemory> memories;
  for (const auto &[stage, ranks] : *points) {
    const double to = wanted[static_cast<size_t>(stage)].layers;
    RankMemory memory = ranks.back().memory;
    memory.state = static_cast<int64_t>(extrapolated(
        ranks, to, [](const Rank &rank) { return rank.memory.state; }));
    memory.arena = static_cast<int64_t>(extrapolated(
        ranks, to, [](const Rank &rank) { return rank.memory.arena; }));
    memories.push_back(memory);
  }
  StatusOr<double> seconds = stepSeconds(*points, wanted, *layers);
  if (!seconds.ok())
    return seconds.status();
  return ProbedProgram{fullestRank(memories), extents().front() == whole,
                       *seconds};
}
