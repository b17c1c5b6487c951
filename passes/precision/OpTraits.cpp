// Linearity by asking the op for its gradient, class by asking its interfaces.
#include "passes/precision/OpTraits.h"
#include "dialects/graph/Build.h"
#include "dialects/graph/GraphExchangeOps.h"
#include "dialects/graph/GraphQuantOps.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::precision;

bool tessera::precision::hasPrecision(func::FuncOp function) {
  if (function.isExternal() || function.isPrivate())
    return !function.isExternal();
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (auto role =
            function.getArgAttrOfType<graph::RoleAttr>(i, graph::kRoleAttr))
      if (role.getValue() == graph::Role::parameter)
        return true;
  return false;
}

// Inspects the ops that `build` inserts after `op`, then erases them.
template <typename Build, typename Inspect>
static auto tryOut(Operation *op, Build build, Inspect inspect) {
  Operation *end = op->getNextNode();
  OpBuilder builder(op->getContext());
  builder.setInsertionPointAfter(op);
  SmallVector<Value> values = build(builder);
  SmallVector<Operation *> made;
  for (Operation *it = op->getNextNode(); it != end; it = it->getNextNode())
    made.push_back(it);
  auto answer = inspect(values, made);
  for (Operation *it : llvm::reverse(made))
    it->erase();
  return answer;
}

// Ops among `made` that `values` depend on.
static llvm::DenseSet<Operation *> slice(ArrayRef<Value> values,
                                         ArrayRef<Operation *> made) {
  llvm::DenseSet<Operation *> needed;
  for (Value value : values)
    if (value && value.getDefiningOp())
      needed.insert(value.getDefiningOp());
  for (Operation *op : llvm::reverse(made))
    if (needed.contains(op))
      for (Value operand : op->getOperands())
        if (Operation *source = operand.getDefiningOp())
          needed.insert(source);
  return needed;
}

static bool computeLinear(graph::Differentiable op,
                          const llvm::DenseSet<Value> &active) {
  auto isKept = [&](Value value) {
    return active.contains(value) &&
           (value.getDefiningOp() == op.getOperation() ||
            llvm::is_contained(op->getOperands(), value));
  };
  return tryOut(
      op,
      [&](OpBuilder &builder) {
        graph::Emitter e(builder, op.getLoc());
        SmallVector<Value> cotangents;
        for (Value result : op->getResults())
          cotangents.push_back(e.zeros(graph::tensorType(result)));
        SmallVector<Value> gradients = op.buildVjp(builder, cotangents);
        // Gradients of inactive operands do not count.
        for (auto [gradient, operand] :
             llvm::zip_equal(gradients, op->getOperands()))
          if (!active.contains(operand))
            gradient = Value();
        return gradients;
      },
      [&](ArrayRef<Value> gradients, ArrayRef<Operation *> made) {
        llvm::DenseSet<Operation *> needed = slice(gradients, made);
        return llvm::none_of(gradients, isKept) &&
               llvm::all_of(made, [&](Operation *it) {
                 return !needed.contains(it) ||
                        llvm::none_of(it->getOperands(), isKept);
               });
      });
}

static bool isScalarBroadcast(Operation *op) {
  auto broadcast = dyn_cast<graph::BroadcastOp>(op);
  return broadcast && graph::tensorType(broadcast.getInput()).getRank() == 0;
}

// A composite, such as dropout, whose primitives are all elementwise.
static bool decomposesElementwise(graph::Decomposable op) {
  return tryOut(
      op, [&](OpBuilder &builder) { return op.decompose(builder); },
      [&](ArrayRef<Value>, ArrayRef<Operation *> made) {
        return llvm::all_of(made, [](Operation *it) {
          return isa<graph::Elementwise, graph::RandomOp>(it) ||
                 it->getNumOperands() == 0 || isScalarBroadcast(it);
        });
      });
}

static OpClass computeClass(Operation *op) {
  if (isa<func::CallOp>(op))
    return OpClass::call;
  if (isa<graph::Elementwise>(op))
    return OpClass::elementwise;
  if (isa<graph::GroupedMatmulOp, graph::GroupedOuterOp>(op))
    return OpClass::contraction;
  // Dequantized rows of a cache are treated like other operands of attention.
  if (isa<graph::DequantizeRowsOp>(op))
    return OpClass::contraction;
  if (isa<graph::DispatchRowsOp, graph::CombineRowsOp, graph::SendRowsOp,
          graph::ReturnRowsOp>(op))
    return OpClass::rows;
  if (isa<graph::TakeAlongAxisOp>(op))
    return OpClass::movement;
  // What only says where something goes compares numbers as they are.
  if (op->getNumResults() && llvm::none_of(op->getResults(), isFloatTensor))
    return OpClass::other;
  if (auto composite = dyn_cast<graph::Decomposable>(op))
    return decomposesElementwise(composite) ? OpClass::elementwise
                                            : OpClass::composite;
  // Rows that are put elsewhere stay what they are.
  if (auto scatter = dyn_cast<graph::RowScatter>(op);
      scatter && !scatter.adds())
    return OpClass::movement;
  auto fusable = dyn_cast<graph::Fusable>(op);
  if (!fusable || op->getNumOperands() == 0)
    return OpClass::other;
  switch (fusable.getClusterKind()) {
  case graph::ClusterKind::contraction:
    return OpClass::contraction;
  case graph::ClusterKind::gather:
    return OpClass::gather;
  case graph::ClusterKind::row:
  case graph::ClusterKind::column:
  case graph::ClusterKind::reduce_all:
    return OpClass::reduction;
  case graph::ClusterKind::elementwise:
    return llvm::any_of(op->getOperands(), isFloatTensor) ? OpClass::movement
                                                          : OpClass::other;
  default:
    return OpClass::other;
  }
}

void OpTraits::findPinned(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments())
    if (function.getArgAttr(argument.getArgNumber(), graph::kKeepF32Attr))
      pinned.insert(argument);
  for (Operation &op : function.front()) {
    OpClass kind = classOf(&op);
    if (kind == OpClass::call || kind == OpClass::rows)
      continue;
    auto isOne = [&](Value value) { return isPinned(value); };
    auto isNoOther = [&](Value value) {
      return !isFloatTensor(value) || isPinned(value) || !isActive(value);
    };
    bool has = llvm::any_of(op.getOperands(), isOne);
    // Rows that are put into a pinned tensor are those of that.
    auto scatter = dyn_cast<graph::RowScatter>(op);
    bool isKept = op.hasAttr(graph::kKeepF32Attr) ||
                  (scatter && isPinned(scatter.getBase()));
    if (isKept || (has && (kind == OpClass::contraction ||
                           llvm::all_of(op.getOperands(), isNoOther))))
      for (Value result : op.getResults())
        if (isFloatTensor(result))
          pinned.insert(result);
  }
}

OpTraits::OpTraits(func::FuncOp function) {
  auto isActive = [&](Value value) { return active.contains(value); };
  for (Value argument : function.getArguments())
    if (isFloatTensor(argument))
      active.insert(argument);
  SmallVector<Operation *> ops;
  for (Operation &op : function.front()) {
    ops.push_back(&op);
    if (llvm::any_of(op.getOperands(), isActive))
      for (Value result : op.getResults())
        if (isFloatTensor(result))
          active.insert(result);
  }
  for (Operation *op : ops) {
    auto differentiable = dyn_cast<graph::Differentiable>(op);
    bool linear = differentiable && llvm::any_of(op->getOperands(), isActive)
                      ? computeLinear(differentiable, active)
                      : true;
    entries[op] = {computeClass(op), linear};
  }
  findPinned(function);
}

void precision::updateType(func::FuncOp function) {
  Block &body = function.front();
  function.setType(FunctionType::get(function.getContext(),
                                     body.getArgumentTypes(),
                                     body.getTerminator()->getOperandTypes()));
}
