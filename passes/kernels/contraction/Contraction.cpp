// Contraction and grouped clusters: one matmul, and its epilogue of elementwise
// ops on the accumulators.
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/KernelChoice.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

// The product reads its operands (and the offsets of groups) until the last
// block is done, so they share no memory with a result, even if the epilogue
// uses them too. Positions in `reuse` are among the inputs that have buffers.
static void forbidReuse(LaunchSpec &spec, const ContractionPlan &plan,
                        unsigned inputs) {
  llvm::SmallBitVector used(inputs);
  bool readsLeft = !plan.quant || !plan.quant->readsIntegers();
  if (readsLeft)
    used.set(plan.lhs.argument);
  used.set(plan.rhs.argument);
  if (plan.groups)
    used.set(plan.groups->argument);
  if (plan.quant && plan.quant->scales)
    used.set(*plan.quant->scales);
  for (const ExprNode &node : plan.expression.pieces.front().nodes)
    if (node.kind == ExprNode::load)
      used.set(node.argument);
  auto positionOf = [&](unsigned argument) -> int64_t {
    return llvm::count_if(used.set_bits(),
                          [&](unsigned other) { return other < argument; });
  };
  int64_t lhs = readsLeft ? positionOf(plan.lhs.argument) : -1,
          rhs = positionOf(plan.rhs.argument),
          groups = plan.groups ? positionOf(plan.groups->argument) : -1,
          scales = plan.quant && plan.quant->scales
                       ? positionOf(*plan.quant->scales)
                       : -1;
  SmallVector<int64_t> kept;
  for (size_t i = 0; i < spec.reuse.size(); i += 2)
    if (spec.reuse[i] != lhs && spec.reuse[i] != rhs &&
        spec.reuse[i] != groups && spec.reuse[i] != scales)
      kept.append({spec.reuse[i], spec.reuse[i + 1]});
  spec.reuse = std::move(kept);
}

llvm::Expected<SmallVector<Value>>
tessera::tileContraction(ClusterOp cluster, TilingContext &context) {
  llvm::Expected<KernelChoice> choice = chooseContraction(cluster, context);
  if (!choice)
    return choice.takeError();
  const ContractionPlan *plan = &choice->plan;
  Block &body = cluster.getBody().front();
  SmallVector<Value> operands{body.getArgument(plan->rhs.argument)};
  bool integers = plan->quant && plan->quant->readsIntegers();
  if (!integers)
    operands.push_back(body.getArgument(plan->lhs.argument));
  if (plan->groups)
    operands.push_back(body.getArgument(plan->groups->argument));
  if (plan->quant && plan->quant->scales)
    operands.push_back(body.getArgument(*plan->quant->scales));
  ClusterLaunch launch(cluster, plan->expression,
                       plan->groups ? tile::Skeleton::grouped
                                    : tile::Skeleton::contraction,
                       cluster.getResultTypes(), operands);
  launch.spec.key = plan->key();
  launch.spec.blocks = plan->blocks();
  forbidReuse(launch.spec, *plan, cluster.getInputs().size());
  if (integers) {
    llvm::Expected<Value> rows = launchIntegerRows(*plan, cluster, context);
    if (!rows)
      return rows.takeError();
    launch.addInput(*rows);
  }
  if (plan->packed) {
    llvm::Expected<Value> rows = launchPackedRows(*plan, cluster, context);
    if (!rows)
      return rows.takeError();
    launch.addInput(*rows);
  }
  auto buildOf = [&](const ContractionPlan &of) -> BuildKernel {
    return [&](tile::KernelOp kernel, const TileTarget &target,
               OpBuilder &builder) {
      auto emit = target.gpu ? emitGpuContraction : emitContraction;
      return emit(of, cluster, kernel, launch.argumentBuffers(kernel),
                  launch.resultBuffers(kernel), target, builder);
    };
  };
  launch.spec.build = buildOf(*plan);
  std::vector<ContractionPlan> others;
  if (context.isGpu() && !choice->byHand)
    others = otherGpuGrids(*plan, context.target(), context.emitsAllVariants());
  for (const ContractionPlan &other : others)
    launch.spec.variants.push_back({"_" + std::to_string(other.blockRows) +
                                        "x" +
                                        std::to_string(other.blockColumns),
                                    other.blocks(), buildOf(other)});
  launch.spec.terms = plan->terms();
  return launch.emit(context);
}
