#include "compiler/api/ProgramTimes.h"
#include "compiler/artifact/KernelTraffic.h"
#include "compiler/report/Machine.h"
#include "dialects/dist/DistOps.h"
#include "dialects/graph/GraphOps.h"
#include "dialects/plan/PlanOps.h"
#include "hardware/CollectiveCost.h"
#include "parallelism/planner/KernelCost.h"
#include "passes/kernels/Tiling.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::planner;

namespace {

/// What one instance of a kernel does.
struct KernelWork {
  double flops = 0, bytes = 0, peak = 0;
  bool usesTensorCores = false;
};

class Replayer {
public:
  Replayer(ModuleOp module, const Cluster &cluster, const MeshPlan &plan)
      : gpu(cluster.gpu), costs(cluster.gpu), collectives(cluster),
        peaks(report::machineOf(cluster).peaks) {
    // Kernels of a target are in a module of its own.
    module.walk(
        [&](tile::KernelOp kernel) { kernels[kernel.getSymName()] = kernel; });
    int64_t stride = 1; // the last axis varies fastest
    for (auto [axis, size] :
         {std::pair<StringRef, int64_t>("tensor", plan.tensor),
          {"context", plan.context},
          {"expert", plan.expert},
          {"data", plan.data},
          {"replicate", plan.replicate},
          {dist::kPipeAxis, plan.pipe}}) {
      axes[axis] = {size, stride};
      stride *= size;
    }
  }

  StepSeconds run(plan::ProgramOp program) {
    Block &body = program.getBody().front();
    for (Operation &op : body)
      if (isOfLayer(&op)) {
        first = first ? first : &op;
        last = &op;
      }
    isOutside = true;
    block(body, 1);
    return seconds;
  }

private:
  static bool isOfLayer(Operation *op) {
    return op
        ->walk([](Operation *inner) {
          return inner->hasAttr(graph::kLayerAttr) ? WalkResult::interrupt()
                                                   : WalkResult::advance();
        })
        .wasInterrupted();
  }

  void block(Block &body, double times);
  void step(Operation &op, double times);
  void add(Operation &op, double elapsed);
  const KernelWork &workOf(StringRef kernel);
  double launchSeconds(plan::LaunchOp launch);
  double collectiveSeconds(plan::CollectiveOp one);
  RankGroup groupOf(ArrayAttr names) const;

  llvm::StringMap<tile::KernelOp> kernels;
  const Gpu &gpu;
  KernelCost costs;
  CollectiveCost collectives;
  hardware::Peaks peaks;
  llvm::StringMap<RankGroup> axes;
  llvm::StringMap<KernelWork> works;
  DenseMap<Attribute, double> linkFree; ///< by axes
  DenseMap<Value, double> ends;         ///< of started collectives
  Operation *first = nullptr, *last = nullptr;
  graph::LayerAttr current; ///< of the last op that has one
  bool isOutside = false;
  double now = 0;
  StepSeconds seconds;
};

} // namespace

// A wait is of its collective's layer. One that has no layer, between ops that
// have one, belongs to them: the time of a layer grows with the layers.
void Replayer::add(Operation &op, double elapsed) {
  Operation *named = &op;
  if (auto wait = dyn_cast<plan::WaitOp>(op))
    named = wait.getCollective();
  auto layer = named->getAttrOfType<graph::LayerAttr>(graph::kLayerAttr);
  if (!layer && isa<plan::WaitOp>(op) && !isOutside)
    layer = current;
  if (auto own = op.getAttrOfType<graph::LayerAttr>(graph::kLayerAttr))
    current = own;
  if (layer)
    (layer.isForward() ? seconds.forward : seconds.backward) += elapsed;
  else
    (isOutside ? seconds.outside : seconds.between) += elapsed;
}

void Replayer::block(Block &body, double times) {
  for (Operation &op : body) {
    if (&op == first)
      isOutside = false;
    step(op, times);
    if (&op == last)
      isOutside = true;
  }
}

void Replayer::step(Operation &op, double times) {
  const double before = now;
  if (auto loop = dyn_cast<plan::LoopOp>(op)) {
    if (loop.getCount()) // only for rows that a buffer had no room for
      return;
    const auto trip = static_cast<double>(loop.getTrip());
    block(loop.getBody().front(), times * trip);
    now += (trip - 1) * (now - before);
    return;
  }
  if (auto launch = dyn_cast<plan::LaunchOp>(op)) {
    now += launchSeconds(launch);
  } else if (auto copy = dyn_cast<plan::CopyOp>(op)) {
    const auto bytes = static_cast<double>(
        plan::byteSize(cast<MemRefType>(copy.getTo().getType())));
    now += costs.elementwise(2 * bytes);
  } else if (auto fill = dyn_cast<plan::FillOp>(op)) {
    const auto bytes = static_cast<double>(
        plan::byteSize(cast<MemRefType>(fill.getTo().getType())));
    now += costs.elementwise(bytes);
  } else if (auto one = dyn_cast<plan::CollectiveOp>(op)) {
    double &link = linkFree[one.getAxes()];
    link = std::max(link, now) + collectiveSeconds(one);
    if (one.getTicket())
      ends[one.getTicket()] = link;
    else
      now = link;
  } else if (auto wait = dyn_cast<plan::WaitOp>(op)) {
    now = std::max(now, ends.lookup(wait.getTicket()));
  }
  add(op, times * (now - before));
}

const KernelWork &Replayer::workOf(StringRef name) {
  auto [entry, isNew] = works.try_emplace(name);
  KernelWork &work = entry->second;
  tile::KernelOp kernel = kernels.lookup(name);
  if (!isNew || !kernel)
    return work;
  if (auto flops = kernel->getAttrOfType<IntegerAttr>(kKernelFlopsAttr))
    work.flops = static_cast<double>(flops.getInt());
  work.bytes = static_cast<double>(countTraffic(kernel));
  work.usesTensorCores =
      kernel
          ->walk([](Operation *op) {
            return isa<tile::MmaOp, tile::MmaStagedOp, tile::MmaAsyncOp>(op)
                       ? WalkResult::interrupt()
                       : WalkResult::advance();
          })
          .wasInterrupted();
  const bool isNarrow = llvm::any_of(kernel.getBuffers(), [](Value buffer) {
    Type type = cast<MemRefType>(buffer.getType()).getElementType();
    return type.isBF16() || type.isF16();
  });
  work.peak = !work.usesTensorCores ? peaks.fp32
              : isNarrow            ? peaks.bf16
                                    : peaks.tf32;
  return work;
}

double Replayer::launchSeconds(plan::LaunchOp launch) {
  const KernelWork &work = workOf(launch.getKernel());
  const auto instances = static_cast<double>(launch.getBlocks().size());
  double blocks = 0;
  for (int64_t each : launch.getBlocks())
    blocks += static_cast<double>(each);
  double bytes = work.bytes * instances;
  if (bytes == 0)
    for (Value buffer : launch.getBuffers())
      bytes += static_cast<double>(
          plan::byteSize(cast<MemRefType>(buffer.getType())));
  double arithmetic = 0;
  if (work.usesTensorCores)
    arithmetic = costs.blocks(blocks, work.flops * instances, work.peak);
  else if (work.flops > 0)
    arithmetic = work.flops * instances / (work.peak * gpu.sustainedClock);
  return std::max(arithmetic, costs.elementwise(bytes, 0)) + gpu.launch;
}

// Ranks along several axes; between axes that are not adjacent it is a group
// at the distance of the nearest.
RankGroup Replayer::groupOf(ArrayAttr names) const {
  RankGroup group{1, std::numeric_limits<int64_t>::max()};
  for (auto name : names.getAsRange<StringAttr>()) {
    const RankGroup axis = axes.lookup(name.getValue());
    group.size *= axis.size;
    group.stride = std::min(group.stride, axis.stride);
  }
  return group;
}

double Replayer::collectiveSeconds(plan::CollectiveOp one) {
  auto bytesOf = [](Value buffer) {
    return static_cast<double>(
        plan::byteSize(cast<MemRefType>(buffer.getType())));
  };
  const double from = bytesOf(one.getFrom()), to = bytesOf(one.getTo());
  const RankGroup group = groupOf(one.getAxes());
  using Kind = plan::CollectiveKind;
  switch (one.getKind()) {
  case Kind::all_gather:
    return collectives.seconds(Collective::AllGather, to, group);
  case Kind::reduce_scatter:
    return collectives.seconds(Collective::ReduceScatter, from, group);
  case Kind::all_reduce:
    return collectives.seconds(Collective::AllReduce, from, group);
  case Kind::permute:
    for (auto name : one.getAxes().getAsRange<StringAttr>())
      if (name.getValue() == dist::kPipeAxis)
        return 0;
    return collectives.send(from, group.stride);
  default: // to all, or rows of which a buffer holds more than there are
    return collectives.seconds(Collective::AllToAll, std::min(from, to), group);
  }
}

StepSeconds tessera::replayStep(ModuleOp module, const Cluster &cluster,
                                const MeshPlan &plan) {
  for (auto program : module.getOps<plan::ProgramOp>())
    if (program.getSymName() == "train_step")
      return Replayer(module, cluster, plan).run(program);
  return {};
}
