// The three recomputation policies.
#include "passes/autodiff/Residuals.h"
#include "dialects/graph/GraphOps.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::autodiff;

static int64_t bytesOf(Value value) { return graph::detail::countBytes(value); }

static bool isView(Operation *op) {
  auto fusable = dyn_cast<graph::Fusable>(op);
  return fusable && fusable.isView();
}

static bool isUpcast(Operation *op) {
  auto convert = dyn_cast<graph::ConvertOp>(op);
  return convert && bytesOf(convert.getResult()) > bytesOf(convert.getInput());
}

// Elementwise in constants and indices, such as a causal mask.
static bool isGenerated(Operation *op) {
  return (isa<graph::Elementwise>(op) || isView(op)) &&
         llvm::all_of(op->getOperands(), [](Value operand) {
           Operation *source = operand.getDefiningOp();
           return source &&
                  (source->getNumOperands() == 0 || isGenerated(source));
         });
}

// Costs nothing where it is fused into its user.
static bool isFree(Operation *op) {
  return op->getNumOperands() == 0 || isa<graph::RandomOp>(op) || isView(op) ||
         isUpcast(op) || isGenerated(op);
}

// Whether `value` is computed elementwise from upcasts, arguments, constants
// and smaller values; `sawUpcast` is set if there was an upcast.
static bool comesFromNarrow(Value value, int64_t elements, bool &sawUpcast) {
  Operation *op = value.getDefiningOp();
  if (!op || op->getNumOperands() == 0)
    return true;
  if (isUpcast(op))
    return sawUpcast = true;
  if (!isa<graph::Elementwise>(op) && !isView(op))
    return graph::tensorType(value).getNumElements() < elements;
  return llvm::all_of(op->getOperands(), [&](Value operand) {
    return comesFromNarrow(operand, elements, sawUpcast);
  });
}

// An f32 value inside a chain of elementwise ops that starts at bf16 values.
// The forward kernel never stores it, and storing it would cost more than twice
// the bytes of what it comes from.
static bool isWideOfNarrow(Value value) {
  bool sawUpcast = false;
  return isa<graph::Elementwise>(value.getDefiningOp()) &&
         graph::tensorType(value).getElementTypeBitWidth() >= 32 &&
         comesFromNarrow(value, graph::tensorType(value).getNumElements(),
                         sawUpcast) &&
         sawUpcast;
}

// A contraction or attention, or a value computed from one without other uses:
// saving it costs no more, and less is recomputed.
static bool endsContraction(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return false;
  if (isa<func::CallOp>(op))
    return true;
  if (auto fusable = dyn_cast<graph::Fusable>(op))
    if (fusable.getClusterKind() == graph::ClusterKind::contraction ||
        fusable.getClusterKind() == graph::ClusterKind::grouped ||
        fusable.getClusterKind() == graph::ClusterKind::attention)
      return true;
  return llvm::any_of(op->getOperands(), [&](Value operand) {
    return operand.hasOneUse() && bytesOf(value) <= bytesOf(operand) &&
           endsContraction(operand);
  });
}

bool ResidualPlan::recomputes(Value value) const {
  Operation *op = value.getDefiningOp();
  if (!isForward(op))
    return false;
  switch (policy) {
  case recipe::Recompute::None:
    return isFree(op) || isWideOfNarrow(value);
  case recipe::Recompute::Selective:
    return !endsContraction(value);
  case recipe::Recompute::Full:
    return true;
  }
  llvm_unreachable("all policies are listed");
}

void ResidualPlan::require(Value value) {
  if (!recomputes(value)) {
    saved.insert(value);
    return;
  }
  Operation *op = value.getDefiningOp();
  if (!recomputed.insert(op).second)
    return;
  llvm::SetVector<Value> inputs(op->operand_begin(), op->operand_end());
  getUsedValuesDefinedAbove(op->getRegions(), inputs);
  for (Value input : inputs)
    require(input);
}
