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

std::optional<GradSizes> gpu::chooseStagedGrad(const AttentionShape &shape,
                                               Type element,
                                               const TileTarget &target) {
  // Registers of a thread: a tile of sums takes half as many as it has columns.
  // Both gradients are in one kernel if that leaves enough for scores.
  int64_t budget = element.isBF16() ? 176 : 72,
          sums = paddedColumns(shape.headDim);
  bool together = sums + 32 <= budget;
  auto mostFor = [&](int64_t taken) -> int64_t {
    return taken + 64 <= budget ? 64 : taken + 32 <= budget ? 32 : 16;
  };
  auto ofKeys = chooseAttentionSizes(shape, element, 2,
                                     mostFor(together ? sums : sums / 2), true,
                                     target.sharedBytes),
       ofQueries = chooseAttentionSizes(shape, element, 2, mostFor(sums / 2),
                                        false, target.sharedBytes);
  if (!ofKeys || !ofQueries)
    return std::nullopt;
  return GradSizes{*ofKeys, *ofQueries, together, /*isPipelined=*/false};
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
  GradTiler(graph::ClusterOp cluster, const BackwardOperands &o,
            const AttentionShape &shape, TilingContext &context)
      : cluster(cluster), o(o), shape(shape), context(context),
        results(cluster.getNumResults()) {}

  llvm::Expected<SmallVector<Value>> run();

private:
  llvm::Error launch(GradPart part);
  void addOperands(GradLaunch &l, GradPart part);
  void addResults(GradLaunch &l, GradPart part);
  AttentionSizes sizesOf(GradPart part) const;
  void emit(GradPart part, const GradLaunch &l, tile::KernelOp kernel,
            OpBuilder &builder) const;
  Type elementOf(const AttentionOperand &operand) {
    return graph::tensorType(cluster.getInputs()[operand.argument])
        .getElementType();
  }

  graph::ClusterOp cluster;
  const BackwardOperands &o;
  const AttentionShape &shape;
  TilingContext &context;
  Type element;
  GradSizes sizes;
  Value delta;                ///< [B, H, T], once it is computed
  SmallVector<Value> results; ///< of the cluster, as far as written
};

} // namespace

AttentionSizes GradTiler::sizesOf(GradPart part) const {
  if (part == GradPart::delta)
    return {kDeltaRows, 0,
            static_cast<int64_t>(llvm::alignTo(shape.headDim, 64))};
  return part == GradPart::queries ? sizes.ofQueries : sizes.ofKeys;
}

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
  GpuAttention common(builder, kernel.getLoc(), shape, sizesOf(part), element);
  if (part == GradPart::delta)
    GpuGrad(common, kernel, o, buffers).emitDelta();
  else if (part == GradPart::queries)
    (sizes.isPipelined ? emitPipelinedQueries
                       : emitStagedQueries)(common, kernel, o, buffers);
  else
    (sizes.isPipelined ? emitPipelinedKeys : emitStagedKeys)(common, kernel, o,
                                                             buffers);
}

llvm::Error GradTiler::launch(GradPart part) {
  GradLaunch l;
  l.spec.name = (cluster.getName() + suffixOf(part)).str();
  l.spec.skeleton = tile::Skeleton::attention_grad;
  l.spec.summary = summarize(cluster);
  l.spec.flops = cluster.getFlops() / 5 * contractionsOf(part);
  l.spec.key = bodyKey(cluster) + suffixOf(part).str();
  addOperands(l, part);
  addResults(l, part);
  bool overKeys = part != GradPart::delta && part != GradPart::queries;
  AttentionSizes tile = sizesOf(part);
  l.spec.blocks = overKeys ? shape.batch * shape.kvHeads *
                                 llvm::divideCeil(shape.keys, tile.keys)
                           : shape.batch * shape.heads *
                                 llvm::divideCeil(shape.tokens, tile.queries);
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
  element = operandType(
      elementOf(o.query),
      operandType(elementOf(o.key),
                  operandType(elementOf(o.value), elementOf(o.cotangent))));
  std::optional<GradSizes> chosen =
      choosePipelinedGrad(shape, o, element, context.target());
  if (!chosen)
    chosen = chooseStagedGrad(shape, element, context.target());
  if (!chosen)
    return attentionTooLarge(shape);
  sizes = *chosen;
  SmallVector<GradPart> parts{GradPart::delta};
  if (sizes.together)
    parts.push_back(GradPart::keysAndValues);
  else
    parts.append({GradPart::values, GradPart::keys});
  parts.push_back(GradPart::queries);
  for (GradPart part : parts)
    if (llvm::Error error = launch(part))
      return std::move(error);
  return results;
}

llvm::Expected<SmallVector<Value>> tessera::tileGpuAttentionGrad(
    graph::ClusterOp cluster, const BackwardOperands &operands,
    const AttentionShape &shape, TilingContext &context) {
  return GradTiler(cluster, operands, shape, context).run();
}
