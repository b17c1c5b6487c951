// Which stage computes which block, and in which order ranks do it.
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/pipeline/Check.h"
#include "passes/pipeline/Generate.h"
#include "passes/pipeline/ProgramCut.h"
#include "passes/pipeline/Stages.h"
#include "passes/sharding/Factors.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace tessera;

namespace tessera {
#define GEN_PASS_DEF_ASSIGNSTAGES
#include "passes/pipeline/Passes.h.inc"
} // namespace tessera

//===--- the blocks of a program ------------------------------------------===//

namespace {
/// The calls of one program's blocks, in order, and what stands around them.
struct Layers {
  SmallVector<func::CallOp> forward, backward; ///< of each layer; or null
  int64_t flopsBefore = 0, flopsBehind = 0;
};
} // namespace

// Parameters that a value is made of without a block.
static void addParameters(Value value, llvm::SetVector<StringAttr> &names,
                          llvm::DenseSet<Value> &seen) {
  if (!seen.insert(value).second)
    return;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
    if (!function)
      return;
    unsigned i = argument.getArgNumber();
    auto role = function.getArgAttrOfType<graph::RoleAttr>(i, graph::kRoleAttr);
    if (role && role.getValue() == graph::Role::parameter)
      names.insert(function.getArgAttrOfType<StringAttr>(i, graph::kStateAttr));
    return;
  }
  if (!isa<func::CallOp>(value.getDefiningOp()))
    for (Value operand : value.getDefiningOp()->getOperands())
      addParameters(operand, names, seen);
}

// A block's backward is the call that reads parameters of a forward call again.
static LogicalResult readLayers(func::FuncOp function, Layers &layers) {
  llvm::DenseMap<StringAttr, size_t> owner;
  WalkResult walk = function.walk([&](Operation *op) {
    auto call = dyn_cast<func::CallOp>(op);
    if (!call || sharding::isPointwiseCall(call)) {
      if (auto costed = dyn_cast<graph::Costed>(op))
        (layers.forward.empty() ? layers.flopsBefore : layers.flopsBehind) +=
            costed.getFlops();
      return WalkResult::advance();
    }
    if (!layers.forward.empty() &&
        layers.forward.front()->getBlock() != call->getBlock()) {
      call.emitError("the blocks of @")
          << function.getName() << " are in two loops, as with moe.balance: "
          << "global; a pipeline has one";
      return WalkResult::interrupt();
    }
    llvm::SetVector<StringAttr> names;
    llvm::DenseSet<Value> seen;
    for (Value operand : call.getOperands())
      addParameters(operand, names, seen);
    // Embeddings come with the first block and the loss's gradient alike.
    SmallVector<size_t> matches(layers.forward.size());
    for (StringAttr name : names)
      if (auto layer = owner.find(name); layer != owner.end())
        ++matches[layer->second];
    auto best = llvm::max_element(matches);
    if (best == matches.end() || *best == 0) {
      for (StringAttr name : names)
        owner[name] = layers.forward.size();
      layers.forward.push_back(call);
      layers.backward.emplace_back();
      return WalkResult::advance();
    }
    func::CallOp &backward = layers.backward[best - matches.begin()];
    if (backward) {
      call.emitError("a third block reads the parameters of one; a pipeline "
                     "cuts models whose blocks have parameters of their own");
      return WalkResult::interrupt();
    }
    backward = call;
    return WalkResult::advance();
  });
  return failure(walk.wasInterrupted());
}

//===--- the cut ----------------------------------------------------------===//

// How many layers each stage has: contiguous, at least one, the longest stage
// as short as possible and then all as equal as possible.
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
      if (failed(readLayers(function, layers)))
        return failure();
      if (!layers.forward.empty())
        programs.emplace_back(function, std::move(layers));
    }
    if (programs.empty())
      return getOperation().emitError(
          "has no blocks that a pipeline could cut");
    size_t count = programs.front().second.forward.size();
    for (auto &[function, layers] : programs)
      if (layers.forward.size() != count)
        return function.emitError("has ")
               << layers.forward.size() << " blocks, @"
               << programs.front().first.getName() << " has " << count;
    return success();
  }

  // Turns of the loop around the blocks of @train_step.
  FailureOr<int64_t> microbatches() {
    auto step = getOperation().lookupSymbol<func::FuncOp>("train_step");
    if (!step)
      return 1;
    for (auto &[function, layers] : programs)
      if (function == step)
        if (auto loop =
                dyn_cast<graph::LoopOp>(layers.forward[0]->getParentOp()))
          return static_cast<int64_t>(loop.getTrip());
    return step.emitError("a pipeline wants several microbatches: set "
                          "batch.accumulate to the axis's size or more");
  }

  LogicalResult findSchedule(int64_t ranks) {
    FailureOr<int64_t> count = microbatches();
    if (failed(count))
      return failure();
    StatusOr<pipeline::Schedule> found = make(ranks, *count);
    if (!found.ok())
      return getOperation().emitError("schedule: ") << found.message();
    plan = found.take();
    if (plan.ranks != ranks || plan.microbatches != *count)
      return getOperation().emitError("schedule: the table is for ")
             << plan.ranks << " ranks and " << plan.microbatches
             << " microbatches; the axis pipe has " << ranks
             << " and batch.accumulate is " << *count;
    if (plan.replicas != 1)
      return getOperation().emitError("schedule: ")
             << plan.name << " keeps two copies of the parameters, which no "
             << "program does";
    for (const pipeline::InstructionList &list : plan.lists)
      for (const pipeline::Instruction &each : list)
        if (each.op == pipeline::Op::Overlap)
          return getOperation().emitError("schedule: ")
                 << pipeline::toString(each)
                 << ": programs do one thing after the other";
    return success();
  }

  // A table has several lines, a name none.
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

  // The first program says what layers cost: it has them in one direction.
  LogicalResult mark() {
    Layers &first = programs.front().second;
    SmallVector<double> costs;
    for (func::CallOp call : first.forward)
      costs.push_back(1.0 +
                      static_cast<double>(stages::flopsOf(
                          getOperation().lookupSymbol(call.getCallee()))));
    costs.front() += static_cast<double>(first.flopsBefore);
    costs.back() += static_cast<double>(first.flopsBehind);
    if (costs.size() < static_cast<size_t>(plan.stages))
      return getOperation().emitError("a pipeline of ")
             << plan.stages << " stages wants as many blocks, the model has "
             << costs.size();
    SmallVector<size_t> sizes = cutEvenly(costs, plan.stages);
    Builder builder(&getContext());
    for (auto &[function, layers] : programs) {
      size_t layer = 0;
      for (auto [stage, size] : llvm::enumerate(sizes))
        for (size_t i = 0; i < size; ++i, ++layer) {
          auto number = builder.getI64IntegerAttr(stage);
          layers.forward[layer]->setAttr(dist::kForwardStageAttr, number);
          if (func::CallOp backward = layers.backward[layer])
            backward->setAttr(dist::kBackwardStageAttr, number);
        }
    }
    getOperation()->setAttr(dist::kScheduleAttr,
                            builder.getStringAttr(pipeline::toCsv(plan)));
    return success();
  }

  std::vector<std::pair<func::FuncOp, Layers>> programs;
  pipeline::Schedule plan;
};
} // namespace
