// The pass assign-stages: the stage of each block, and the pipeline schedule.
#include "dialects/graph/Programs.h"
#include "parallelism/pipeline/Check.h"
#include "parallelism/pipeline/Generate.h"
#include "passes/stages/ProgramCut.h"
#include "passes/stages/Stages.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace tessera;

namespace tessera {
#define GEN_PASS_DEF_ASSIGNSTAGES
#include "passes/stages/Passes.h.inc"
} // namespace tessera

//===--- the blocks of a program ------------------------------------------===//

namespace {
/// The calls of one program's blocks, and the ops around them.
struct Layers {
  SmallVector<func::CallOp> forward, backward; ///< by layer; or null
  SmallVector<func::CallOp> before; ///< in earlier loops over the microbatches
  int64_t flopsBefore = 0, flopsAfter = 0;
};
} // namespace

static graph::LayerAttr layerOf(Operation *op) {
  return op->getAttrOfType<graph::LayerAttr>(graph::kLayerAttr);
}

static LogicalResult readLayers(ArrayRef<func::CallOp> calls, Layers &layers) {
  for (func::CallOp call : calls) {
    graph::LayerAttr layer = layerOf(call);
    auto index = static_cast<size_t>(layer.getIndex());
    if (layers.forward.size() <= index) {
      layers.forward.resize(index + 1);
      layers.backward.resize(index + 1);
    }
    auto &known = layer.isForward() ? layers.forward : layers.backward;
    if (known[index])
      return call.emitError("is a second call of ")
             << layer << "; pipeline parallelism requires one of each";
    known[index] = call;
  }
  auto missing = llvm::find(layers.forward, func::CallOp());
  if (missing != layers.forward.end())
    return calls.front()->emitError("has no call of layer ")
           << missing - layers.forward.begin() << " in its program";
  return success();
}

// Blocks that an earlier loop calls: only forward, each on the stage of its
// layer.
static LogicalResult readBefore(ArrayRef<func::CallOp> calls, Layers &layers) {
  if (!isa<graph::LoopOp>(calls.front()->getParentOp()))
    return calls.front()->emitError(
        "a block is outside of loops over microbatches, but others of its "
        "program are inside; set batch.accumulate to 2 or more");
  for (func::CallOp call : calls) {
    graph::LayerAttr layer = layerOf(call);
    if (!layer.isForward() ||
        layer.getIndex() >= static_cast<int64_t>(layers.forward.size()))
      return call.emitError("is of ")
             << layer << ", which the last loop does not call forward";
    layers.before.push_back(call);
  }
  return success();
}

// If several loops call blocks, the last one is the step's. The others count
// something before it, as moe.balance: global does.
static LogicalResult readProgram(func::FuncOp function, Layers &layers) {
  llvm::MapVector<Block *, SmallVector<func::CallOp>> locations;
  function.walk([&](func::CallOp call) {
    if (layerOf(call))
      locations[call->getBlock()].push_back(call);
  });
  if (locations.empty())
    return success();
  auto [step, calls] = locations.back();
  if (graph::isProgram(function, graph::Program::train_step) &&
      !isa<graph::LoopOp>(step->getParentOp()))
    return function.emitError("a pipeline requires several microbatches: set "
                              "batch.accumulate to the axis's size or more");
  if (failed(readLayers(calls, layers)))
    return failure();
  for (auto &[body, others] : llvm::drop_end(locations))
    if (failed(readBefore(others, layers)))
      return failure();
  bool afterBlock = false;
  function.walk([&](Operation *op) {
    afterBlock |= layerOf(op) && op->getBlock() == step;
    auto costed = dyn_cast<graph::Costed>(op);
    bool isCounted =
        op->getBlock() == step || !locations.contains(op->getBlock());
    if (costed && isCounted)
      (afterBlock ? layers.flopsAfter : layers.flopsBefore) +=
          costed.getFlops();
  });
  return success();
}

//===--- stages -----------------------------------------------------------===//

// How many layers each stage has: contiguous, at least one; the longest stage
// is as short as possible, and then all as equal as possible.
static SmallVector<size_t> cutEvenly(ArrayRef<double> costs, size_t stages) {
  size_t layers = costs.size();
  auto sum = [&](size_t from, size_t to) {
    double total = 0;
    for (size_t i = from; i < to; ++i)
      total += costs[i];
    return total;
  };
  constexpr double kNever = std::numeric_limits<double>::infinity();
  double longest = kNever;
  SmallVector<size_t> sizes;
  // least[s][n]: the first n layers on s stages; first by the longest stage,
  // then, none being longer than that, by the sum of squares.
  for (bool squares : {false, true}) {
    std::vector<std::vector<double>> least(
        stages + 1, std::vector<double>(layers + 1, kNever));
    std::vector<std::vector<size_t>> last(stages + 1,
                                          std::vector<size_t>(layers + 1));
    least[0][0] = 0;
    for (size_t s = 1; s <= stages; ++s)
      for (size_t n = s; n <= layers; ++n)
        for (size_t before = s - 1; before < n; ++before) {
          double own = sum(before, n);
          if (own > longest * (1 + 1e-9))
            continue;
          double all = squares ? least[s - 1][before] + own * own
                               : std::max(least[s - 1][before], own);
          if (all < least[s][n])
            least[s][n] = all, last[s][n] = n - before;
        }
    longest = std::min(longest, least[stages][layers]);
    sizes.assign(stages, 0);
    for (size_t s = stages, n = layers; s > 0; n -= sizes[--s])
      sizes[s - 1] = last[s][n];
  }
  return sizes;
}

namespace {
struct AssignStages : tessera::impl::AssignStagesBase<AssignStages> {
  using Base::Base;

  void runOnOperation() override {
    auto meshes = getOperation().getOps<dist::MeshOp>();
    if (meshes.empty())
      return markAllAnalysesPreserved();
    dist::AxisAttr axis = (*meshes.begin()).getAxis(dist::kPipeAxis);
    if (!axis || axis.getSize() == 1)
      return markAllAnalysesPreserved();
    if (failed(readPrograms()) || failed(findSchedule(axis.getSize())) ||
        failed(mark()))
      signalPassFailure();
  }

private:
  LogicalResult readPrograms() {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (!function.isPublic())
        continue;
      Layers layers;
      if (failed(readProgram(function, layers)))
        return failure();
      if (!layers.forward.empty())
        programs.emplace_back(function, std::move(layers));
    }
    if (programs.empty())
      return getOperation().emitError("has no blocks for pipeline stages");
    size_t count = programs.front().second.forward.size();
    for (auto &[function, layers] : programs)
      if (layers.forward.size() != count)
        return function.emitError("has ")
               << layers.forward.size() << " blocks, @"
               << programs.front().first.getName() << " has " << count;
    return success();
  }

  // Iterations of the loop with the blocks of @train_step.
  int64_t microbatches() {
    for (auto &[function, layers] : programs)
      if (graph::isProgram(function, graph::Program::train_step))
        return static_cast<int64_t>(
            cast<graph::LoopOp>(layers.forward[0]->getParentOp()).getTrip());
    return 1;
  }

  LogicalResult findSchedule(int64_t ranks) {
    int64_t count = microbatches();
    StatusOr<pipeline::Schedule> found = make(ranks, count);
    if (!found.ok())
      return getOperation().emitError("schedule: ") << found.message();
    plan = found.take();
    if (plan.forwardOnly)
      return getOperation().emitError("schedule: ")
             << plan.name << " has only forwards, but a step has backwards too";
    if (plan.ranks != ranks || plan.microbatches != count)
      return getOperation().emitError("schedule: it is for ")
             << plan.ranks << " ranks and " << plan.microbatches
             << " microbatches, but the axis pipe has " << ranks
             << " and batch.accumulate is " << count;
    if (plan.replicas != 1)
      return getOperation().emitError("schedule: ")
             << plan.name
             << " keeps two copies of the parameters, which is not supported; "
                "use dualpipev, which keeps one";
    return success();
  }

  // CSV has newlines, a name has none.
  StatusOr<pipeline::Schedule> make(int64_t ranks, int64_t microbatches) const {
    if (StringRef(schedule).contains('\n')) {
      StatusOr<pipeline::Schedule> table =
          pipeline::parseCsv(schedule, "the table");
      if (!table.ok())
        return table;
      if (table->isLowered())
        return Status::error("leave transfers out of the table");
      Status status = pipeline::check(*table);
      return status.ok() ? std::move(table) : status;
    }
    const pipeline::Policy *policy = pipeline::findPolicy(StringRef(schedule));
    pipeline::Shape shape;
    shape.ranks = static_cast<int>(ranks);
    shape.microbatches = static_cast<int>(microbatches);
    shape.chunks = chunks   ? static_cast<int>(chunks)
                   : policy ? policy->minChunks
                            : 1;
    return pipeline::generate(StringRef(schedule), shape);
  }

  // Costs of layers are from the first program, which has them in one
  // direction.
  LogicalResult mark() {
    Layers &first = programs.front().second;
    SmallVector<double> costs;
    SymbolTableCollection symbols;
    for (func::CallOp call : first.forward)
      costs.push_back(1.0 +
                      static_cast<double>(stages::flopsOf(call, symbols)));
    costs.front() += static_cast<double>(first.flopsBefore);
    costs.back() += static_cast<double>(first.flopsAfter);
    if (Status status = pipeline::checkStages(
            plan.stages, static_cast<int64_t>(costs.size()));
        !status.ok())
      return getOperation().emitError(status.message());
    SmallVector<size_t> sizes = cutEvenly(costs, plan.stages);
    SmallVector<int64_t> stageOf; // of each layer
    for (auto [stage, size] : llvm::enumerate(sizes))
      stageOf.append(size, static_cast<int64_t>(stage));
    Builder builder(&getContext());
    for (auto &[function, layers] : programs)
      for (auto [layer, stage] : llvm::enumerate(stageOf)) {
        auto number = builder.getI64IntegerAttr(stage);
        layers.forward[layer]->setAttr(dist::kForwardStageAttr, number);
        if (func::CallOp backward = layers.backward[layer])
          backward->setAttr(dist::kBackwardStageAttr, number);
      }
    getOperation()->setAttr(dist::kScheduleAttr,
                            builder.getStringAttr(pipeline::toCsv(plan)));
    return markForwards(stageOf);
  }

  // Loops before the step's, and those of an evaluation, have the forwards of
  // the step's schedule, in its order.
  LogicalResult markForwards(ArrayRef<int64_t> stageOf) {
    Builder builder(&getContext());
    for (auto &[function, layers] : programs) {
      for (func::CallOp call : layers.before) {
        call->setAttr(
            dist::kForwardStageAttr,
            builder.getI64IntegerAttr(stageOf[layerOf(call).getIndex()]));
        if (failed(markLoop(cast<graph::LoopOp>(call->getParentOp()))))
          return failure();
      }
      auto loop = dyn_cast<graph::LoopOp>(layers.forward[0]->getParentOp());
      bool isBackward = llvm::any_of(layers.backward, [](func::CallOp call) {
        return static_cast<bool>(call);
      });
      if (loop && !isBackward && failed(markLoop(loop)))
        return failure();
    }
    return success();
  }

  LogicalResult markLoop(graph::LoopOp loop) {
    if (loop.getTrip() != static_cast<uint64_t>(plan.microbatches))
      return loop.emitError("runs ")
             << loop.getTrip() << " microbatches, but a step has "
             << plan.microbatches;
    loop->setAttr(dist::kScheduleAttr,
                  StringAttr::get(&getContext(),
                                  pipeline::toCsv(pipeline::forwardsOf(plan))));
    return success();
  }

  std::vector<std::pair<func::FuncOp, Layers>> programs;
  pipeline::Schedule plan;
};
} // namespace
