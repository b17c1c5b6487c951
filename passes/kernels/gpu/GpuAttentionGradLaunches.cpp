// The launches of attention's gradient: their kernels, tiles and buffers.
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/gpu/GpuAttentionGrad.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::gpu;

// Rows of a block of the kernel of delta.
static constexpr int64_t kDeltaRows = 16;

//===--- parts ------------------------------------------------------------===//

static llvm::StringRef suffixOf(GradPart part) {
  switch (part) {
  case GradPart::delta:
    return "_delta";
  case GradPart::keysAndValues:
    return "_keys_values";
  case GradPart::values:
    return "_values";
  case GradPart::keys:
    return "_keys";
  case GradPart::queries:
    return "_queries";
  }
  llvm_unreachable("all parts are handled");
}

// Matmuls of a part; the whole gradient needs five. Separate parts recompute
// the scores.
static int64_t contractionsOf(GradPart part) {
  switch (part) {
  case GradPart::delta:
    return 0;
  case GradPart::keysAndValues: // q kᵀ, dO vᵀ, pᵀ dO, dSᵀ q
    return 4;
  case GradPart::values: // q kᵀ, pᵀ dO
    return 2;
  case GradPart::keys:    // q kᵀ, dO vᵀ, dSᵀ q
  case GradPart::queries: // q kᵀ, dO vᵀ, dS k
    return 3;
  }
  llvm_unreachable("all parts are handled");
}

SmallVector<GradPart> gpu::gradParts(tile::AttentionGradPlanAttr kernels) {
  if (kernels.getSeparate())
    return {GradPart::delta, GradPart::values, GradPart::keys,
            GradPart::queries};
  return {GradPart::delta, GradPart::keysAndValues, GradPart::queries};
}

static AttentionSizes sizesOf(GradPart part, const BackwardPlan &plan) {
  int64_t headDim = plan.shape.headDim;
  if (part == GradPart::delta)
    return {kDeltaRows, 0, static_cast<int64_t>(llvm::alignTo(headDim, 64))};
  tile::AttentionGradPlanAttr kernels = plan.kernels;
  int64_t dim = paddedColumns(headDim);
  if (part == GradPart::queries)
    return {kernels.getDqQueries(), kernels.getDqKeys(), dim};
  return {kernels.getDkvQueries(), kernels.getDkvKeys(), dim};
}

static int64_t blocksOf(GradPart part, const BackwardPlan &plan) {
  const AttentionShape &shape = plan.shape;
  AttentionSizes tile = sizesOf(part, plan);
  bool overKeys = part != GradPart::delta && part != GradPart::queries;
  return overKeys ? shape.batch * shape.kvHeads *
                        llvm::divideCeil(shape.keys, tile.keys)
                  : shape.batch * shape.heads *
                        llvm::divideCeil(shape.tokens, tile.queries);
}

//===--- choices ----------------------------------------------------------===//

SmallVector<tile::AttentionGradPlanAttr>
gpu::stagedGradKernels(const AttentionShape &shape, Type element,
                       const TileTarget &target) {
  // Registers of a thread: a tile of sums takes half as many as it has columns.
  // Both gradients are in one kernel if that leaves enough for scores.
  // A mask with first keys needs more than one without, and with last keys more
  // for each query.
  int64_t budget = element.isBF16() ? 176
                   : shape.hasFirst ? 56
                                    : 72,
          sums = paddedColumns(shape.headDim),
          room = budget - (shape.hasLast ? 24 : 0);
  bool together = sums + 32 <= budget;
  auto mostFor = [&](int64_t taken) -> int64_t {
    return taken + 64 <= room ? 64 : taken + 32 <= room ? 32 : 16;
  };
  SmallVector<tile::AttentionGradPlanAttr> kernels;
  for (bool separate : {!together, true})
    for (const AttentionSizes &ofKeys :
         attentionSizes(shape, element, 2, mostFor(separate ? sums / 2 : sums),
                        /*keysStationary=*/true, target.sharedBytes))
      for (const AttentionSizes &ofQueries :
           attentionSizes(shape, element, 2, mostFor(sums / 2),
                          /*keysStationary=*/false, target.sharedBytes)) {
        tile::Engine engine = engineOfStaged(ofKeys.keys, element, target);
        if (engine == engineOfStaged(ofQueries.queries, element, target))
          kernels.push_back(tile::AttentionGradPlanAttr::get(
              element.getContext(), engine, ofKeys.queries, ofKeys.keys,
              ofQueries.queries, ofQueries.keys, separate));
      }
  return kernels;
}

using GradPlan = tile::AttentionGradPlanAttr;
static const PlanField<GradPlan> kFields[] = {
    {"the engine ", " cannot multiply these operands",
     [](GradPlan plan) { return stringifyEngine(plan.getEngine()).str(); }},
    {"separate = ", " with this engine",
     [](GradPlan plan) {
       return std::string(plan.getSeparate() ? "true" : "false");
     }},
    {"dkv of ", "",
     [](GradPlan plan) {
       return tileText(plan.getDkvQueries(), plan.getDkvKeys());
     }},
    {"dq of ", "", [](GradPlan plan) {
       return tileText(plan.getDqQueries(), plan.getDqKeys());
     }}};

static Type elementOfProducts(graph::ClusterOp cluster,
                              const BackwardOperands &o) {
  return operandType(elementOf(cluster, o.query),
                     operandType(elementOf(cluster, o.key),
                                 operandType(elementOf(cluster, o.value),
                                             elementOf(cluster, o.cotangent))));
}

llvm::Expected<GradPlan> tessera::chooseGpuAttentionGrad(
    graph::ClusterOp cluster, const BackwardOperands &operands,
    const AttentionShape &shape, const TileTarget &target) {
  Type element = elementOfProducts(cluster, operands);
  SmallVector<GradPlan> kernels =
      pipelinedGradKernels(shape, operands, element, target);
  llvm::append_range(kernels, stagedGradKernels(shape, element, target));
  if (kernels.empty())
    return attentionTooLarge(shape);
  llvm::Expected<GradPlan> wanted = wantedPlan<GradPlan>(cluster);
  if (!wanted)
    return wanted.takeError();
  if (!*wanted)
    return kernels.front();
  return findKernel<GradPlan>(kernels, *wanted, kFields);
}

SmallVector<ClusterPlan::Launch>
tessera::gpuGradLaunches(graph::ClusterOp cluster, const BackwardPlan &plan) {
  SmallVector<ClusterPlan::Launch> launches;
  for (GradPart part : gradParts(plan.kernels)) {
    AttentionSizes tile = sizesOf(part, plan);
    bool multiplies = part != GradPart::delta;
    launches.push_back(
        {(cluster.getName() + suffixOf(part)).str(),
         multiplies ? stringifyEngine(plan.kernels.getEngine()).str() : "", "",
         "", multiplies ? tileText(tile.queries, tile.keys) : "",
         blocksOf(part, plan)});
  }
  return launches;
}

//===--- launches ---------------------------------------------------------===//

namespace {

/// One launch: its buffers, in order, and their meaning for the gradient.
struct GradLaunch {
  using Field = Value GradBuffers::*;

  LaunchSpec spec;
  SmallVector<Value> inputs;
  SmallVector<Type> outputs;
  SmallVector<std::pair<Field, unsigned>> bindings;
  SmallVector<unsigned> written; ///< results of the cluster, in buffer order

  unsigned add(Value input, tile::Access access) {
    spec.buffers.push_back(bufferType(input.getType()));
    spec.access.push_back(access);
    inputs.push_back(input);
    if (access == tile::Access::read_write)
      outputs.push_back(input.getType());
    return spec.buffers.size() - 1;
  }
  unsigned addResult(Type type) {
    spec.buffers.push_back(bufferType(type));
    spec.access.push_back(tile::Access::write);
    outputs.push_back(type);
    return spec.buffers.size() - 1;
  }
};

/// Makes the launches of one cluster.
class GradTiler {
public:
  GradTiler(graph::ClusterOp cluster, const BackwardPlan &plan,
            TilingContext &context)
      : cluster(cluster), plan(plan), o(plan.operands), shape(plan.shape),
        context(context), element(elementOfProducts(cluster, plan.operands)),
        results(cluster.getNumResults()) {}

  llvm::Expected<SmallVector<Value>> run();

private:
  llvm::Error launch(GradPart part);
  void addOperands(GradLaunch &l, GradPart part);
  void addResults(GradLaunch &l, GradPart part);
  void emit(GradPart part, const GradLaunch &l, tile::KernelOp kernel,
            OpBuilder &builder) const;

  graph::ClusterOp cluster;
  const BackwardPlan &plan;
  const BackwardOperands &o;
  const AttentionShape &shape;
  TilingContext &context;
  Type element;
  Value delta;                ///< [B, H, T], once it is computed
  SmallVector<Value> results; ///< of the cluster, as far as written
};

} // namespace

void GradTiler::addOperands(GradLaunch &l, GradPart part) {
  llvm::DenseMap<unsigned, unsigned> ofArgument;
  auto take = [&](GradLaunch::Field field, unsigned argument) {
    auto [it, isNew] = ofArgument.try_emplace(argument);
    if (isNew)
      it->second = l.add(cluster.getInputs()[argument], tile::Access::read);
    l.bindings.push_back({field, it->second});
  };
  take(&GradBuffers::cotangent, o.cotangent.argument);
  if (part == GradPart::delta)
    return take(&GradBuffers::output, o.output.argument);
  take(&GradBuffers::query, o.query.argument);
  take(&GradBuffers::key, o.key.argument);
  take(&GradBuffers::value, o.value.argument);
  take(&GradBuffers::lse, o.lse.argument);
  if (o.start.isThere)
    take(&GradBuffers::start, o.start.argument);
  if (o.first)
    take(&GradBuffers::first, o.first->argument);
  if (o.last)
    take(&GradBuffers::last, o.last->argument);
  l.bindings.push_back({&GradBuffers::delta, l.add(delta, tile::Access::read)});
}

// If several gradients share a result, later launches keep its contents.
// Results that already exist are operands, and come first.
void GradTiler::addResults(GradLaunch &l, GradPart part) {
  if (part == GradPart::delta) {
    auto type = RankedTensorType::get({shape.batch, shape.heads, shape.tokens},
                                      Float32Type::get(cluster.getContext()));
    l.bindings.push_back({&GradBuffers::delta, l.addResult(type)});
    return;
  }
  SmallVector<std::pair<GradLaunch::Field, unsigned>> gradients;
  if (part == GradPart::keysAndValues || part == GradPart::values)
    gradients.push_back({&GradBuffers::dValue, o.dValue.result});
  if (part == GradPart::keysAndValues || part == GradPart::keys)
    gradients.push_back({&GradBuffers::dKey, o.dKey.result});
  if (part == GradPart::queries)
    gradients.push_back({&GradBuffers::dQuery, o.dQuery.result});
  llvm::DenseMap<unsigned, unsigned> ofResult;
  for (bool exists : {true, false})
    for (auto [field, result] : gradients) {
      if (bool(results[result]) != exists)
        continue;
      auto [it, isNew] = ofResult.try_emplace(result);
      if (isNew) {
        it->second = exists ? l.add(results[result], tile::Access::read_write)
                            : l.addResult(cluster.getResult(result).getType());
        l.written.push_back(result);
      }
      l.bindings.push_back({field, it->second});
    }
}

void GradTiler::emit(GradPart part, const GradLaunch &l, tile::KernelOp kernel,
                     OpBuilder &builder) const {
  GradBuffers buffers;
  for (auto [field, buffer] : l.bindings)
    buffers.*field = kernel.getBuffers()[buffer];
  GpuAttention common(builder, kernel.getLoc(), shape, sizesOf(part, plan),
                      element);
  bool isPipelined = plan.kernels.getEngine() == tile::Engine::warp_specialized;
  if (part == GradPart::delta)
    GpuGrad(common, kernel, o, buffers).emitDelta();
  else if (part == GradPart::queries)
    (isPipelined ? emitPipelinedQueries : emitStagedQueries)(common, kernel, o,
                                                             buffers);
  else
    (isPipelined ? emitPipelinedKeys : emitStagedKeys)(common, kernel, o,
                                                       buffers);
}

llvm::Error GradTiler::launch(GradPart part) {
  GradLaunch l;
  l.spec.name = (cluster.getName() + suffixOf(part)).str();
  l.spec.skeleton = tile::Skeleton::attention_grad;
  l.spec.summary = summarize(cluster);
  l.spec.flops = cluster.getFlops() / 5 * contractionsOf(part);
  l.spec.key = bodyKey(cluster) + suffixOf(part).str() + planKey(plan.kernels);
  addOperands(l, part);
  addResults(l, part);
  l.spec.blocks = blocksOf(part, plan);
  l.spec.build = [&, part](tile::KernelOp kernel, const TileTarget &,
                           OpBuilder &builder) -> llvm::Error {
    emit(part, l, kernel, builder);
    return llvm::Error::success();
  };
  auto launched = context.launch(cluster, l.spec, l.inputs, l.outputs);
  if (!launched)
    return launched.takeError();
  if (part == GradPart::delta)
    delta = launched->front();
  for (auto [result, value] : llvm::zip(l.written, *launched))
    results[result] = value;
  return llvm::Error::success();
}

llvm::Expected<SmallVector<Value>> GradTiler::run() {
  for (GradPart part : gradParts(plan.kernels))
    if (llvm::Error error = launch(part))
      return std::move(error);
  return results;
}

llvm::Expected<SmallVector<Value>>
tessera::tileGpuAttentionGrad(graph::ClusterOp cluster,
                              const BackwardPlan &plan,
                              TilingContext &context) {
  return GradTiler(cluster, plan, context).run();
}
