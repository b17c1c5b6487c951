// Activity and the reverse sweep.
#include "passes/autodiff/Reverse.h"
#include "dialects/graph/Build.h"
#include "dialects/graph/GraphExchangeOps.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::autodiff;

// Operands, and what regions use of the values around them.
static bool usesActive(Operation &op, const ActiveSet &active) {
  auto isActive = [&](Value value) { return active.contains(value); };
  llvm::SetVector<Value> captured;
  getUsedValuesDefinedAbove(op.getRegions(), captured);
  return llvm::any_of(op.getOperands(), isActive) ||
         llvm::any_of(captured, isActive);
}

void tessera::autodiff::markActive(Block &block, ActiveSet &active) {
  for (Operation &op : block)
    if (usesActive(op, active) && !op.hasAttr(graph::kStopGradientAttr))
      for (Value result : op.getResults())
        if (isFloatTensor(result))
          active.insert(result);
}

void ReverseSweep::add(Value value, Value cotangent) {
  Value &sum = cotangents[value];
  sum = sum ? graph::Emitter(builder, value.getLoc()).add(sum, cotangent)
            : cotangent;
}

FailureOr<SmallVector<Value>>
ReverseSweep::differentiate(Operation *op, ArrayRef<Value> results,
                            CallVjp callVjp) {
  if (auto call = dyn_cast<func::CallOp>(op))
    return callVjp(builder, call, results);
  // Its rounds have their own gradient (OverflowRounds.h).
  if (graph::isOverflowLoop(op))
    return SmallVector<Value>(results);
  auto differentiable = dyn_cast<graph::Differentiable>(op);
  if (!differentiable)
    return op->emitOpError("has no gradient and stands between the loss and a "
                           "parameter; expand or differentiate it by hand");
  return differentiable.buildVjp(builder, results);
}

LogicalResult ReverseSweep::run(ArrayRef<Operation *> ops, CallVjp callVjp) {
  for (Operation *op : llvm::reverse(ops)) {
    SmallVector<Value> results;
    for (Value result : op->getResults())
      results.push_back(active.contains(result) ? cotangent(result) : Value());
    if (llvm::none_of(results, [](Value value) { return value; }))
      continue;
    FailureOr<SmallVector<Value>> operands =
        differentiate(op, results, callVjp);
    if (failed(operands))
      return failure();
    for (auto [operand, gradient] :
         llvm::zip_equal(op->getOperands(), *operands))
      if (gradient && active.contains(operand))
        add(operand, gradient);
  }
  return success();
}
