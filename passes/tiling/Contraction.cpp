// Contraction clusters: one einsum, and the elementwise ops that run on its
// accumulators.
#include "passes/tiling/Contraction.h"
#include "passes/tiling/ClusterLaunch.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

// The product reads its operands until the last block is done: they share no
// memory with a result, though the epilogue may use them too. Positions in
// `reuse` are among the inputs that have buffers.
static void forbidReuse(LaunchSpec &spec, const ContractionPlan &plan,
                        unsigned inputs) {
  llvm::SmallBitVector used(inputs);
  used.set(plan.lhs.argument);
  used.set(plan.rhs.argument);
  for (const ExprNode &node : plan.expression.pieces.front().nodes)
    if (node.kind == ExprNode::load)
      used.set(node.argument);
  auto positionOf = [&](unsigned argument) -> int64_t {
    return llvm::count_if(used.set_bits(),
                          [&](unsigned other) { return other < argument; });
  };
  int64_t lhs = positionOf(plan.lhs.argument),
          rhs = positionOf(plan.rhs.argument);
  SmallVector<int64_t> kept;
  for (size_t i = 0; i < spec.reuse.size(); i += 2)
    if (spec.reuse[i] != lhs && spec.reuse[i] != rhs)
      kept.append({spec.reuse[i], spec.reuse[i + 1]});
  spec.reuse = std::move(kept);
}

llvm::Expected<SmallVector<Value>>
tessera::tileContraction(ClusterOp cluster, TilingContext &context) {
  llvm::Expected<ContractionPlan> plan =
      planContraction(cluster, context.target());
  if (!plan)
    return plan.takeError();
  Block &body = cluster.getBody().front();
  SmallVector<Value> operands{body.getArgument(plan->lhs.argument),
                              body.getArgument(plan->rhs.argument)};
  ClusterLaunch launch(cluster, plan->expression, tile::Skeleton::contraction,
                       cluster.getResultTypes(), operands);
  launch.spec.key = plan->key();
  launch.spec.blocks = plan->blocks();
  forbidReuse(launch.spec, *plan, cluster.getInputs().size());
  launch.spec.build = [&](tile::KernelOp kernel, const TileTarget &target,
                          OpBuilder &builder) {
    if (target.gpu)
      return emitGpuContraction(*plan, cluster, kernel,
                                launch.argumentBuffers(kernel),
                                launch.resultBuffers(kernel), target, builder);
    return emitContraction(*plan, cluster, kernel,
                           launch.argumentBuffers(kernel),
                           launch.resultBuffers(kernel), target, builder);
  };
  return launch.emit(context);
}
