// Which functions need a gradient, and the joint function of each.
#include "passes/autodiff/BlockGradients.h"
#include "dialects/graph/Build.h"
#include "dialects/graph/PlainFunction.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "passes/autodiff/OverflowRounds.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::autodiff;

func::FuncOp BlockGradients::calleeOf(func::CallOp call) {
  return symbols.lookup<func::FuncOp>(call.getCallee());
}

static ActiveSet activeValues(func::FuncOp function,
                              const llvm::BitVector &wanted) {
  ActiveSet active;
  for (unsigned index : wanted.set_bits())
    active.insert(function.getArgument(index));
  markActive(function.front(), active);
  return active;
}

LogicalResult BlockGradients::analyze(func::FuncOp root,
                                      ArrayRef<unsigned> wanted) {
  auto &rootWanted = wantedArguments[root];
  rootWanted.resize(root.getNumArguments());
  for (unsigned index : wanted)
    rootWanted.set(index);
  SmallVector<func::FuncOp> changed{root};
  while (!changed.empty()) {
    func::FuncOp function = changed.pop_back_val();
    ActiveSet active = activeValues(function, wantedArguments[function]);
    for (auto call : function.front().getOps<func::CallOp>()) {
      func::FuncOp callee = calleeOf(call);
      if (!callee || callee.isExternal())
        return call.emitOpError() << "calls '" << call.getCallee()
                                  << "', which has no body to differentiate";
      if (failed(requirePlainFunction(callee)))
        return failure();
      llvm::BitVector before = wantedArguments[callee];
      llvm::BitVector after = before;
      after.resize(callee.getNumArguments());
      for (auto [index, operand] : llvm::enumerate(call.getOperands()))
        if (active.contains(operand))
          after.set(index);
      if (after == before)
        continue;
      wantedArguments[callee] = after;
      changed.push_back(callee);
    }
  }
  return success();
}

//===--- calls ----------------------------------------------------------===//

LogicalResult BlockGradients::replaceCall(func::CallOp call,
                                          Operation *&replacement) {
  func::FuncOp callee = calleeOf(call);
  if (wantedArguments[callee].none())
    return success();
  FailureOr<BlockGradient *> gradient = gradientOf(callee);
  if (failed(gradient))
    return failure();
  OpBuilder builder(call);
  auto forward = builder.create<func::CallOp>(
      call.getLoc(), (*gradient)->forward, call.getOperands());
  forward->setDiscardableAttrs(call->getDiscardableAttrDictionary());
  call.replaceAllUsesWith(
      forward.getResults().take_front(call.getNumResults()));
  call.erase();
  forwardCalls[forward] = *gradient;
  replacement = forward;
  return success();
}

LogicalResult BlockGradients::replaceCalls(JointFunction &joint) {
  for (Operation *&op : joint.forward)
    if (auto call = dyn_cast<func::CallOp>(op))
      if (failed(replaceCall(call, op)))
        return failure();
  return success();
}

FailureOr<SmallVector<Value>>
BlockGradients::differentiateCall(OpBuilder &builder, func::CallOp call,
                                  ArrayRef<Value> cotangents) {
  const BlockGradient &gradient = *forwardCalls.at(call);
  graph::Emitter e(builder, call.getLoc());
  SmallVector<Value> operands;
  for (BlockGradient::Residual residual : gradient.residuals)
    operands.push_back(residual.isArgument ? call.getOperand(residual.index)
                                           : call.getResult(residual.index));
  for (unsigned result : gradient.differentiated)
    operands.push_back(cotangents[result] ? cotangents[result]
                                          : e.zeros(graph::tensorType(
                                                call.getResult(result))));
  auto backward =
      builder.create<func::CallOp>(call.getLoc(), gradient.backward, operands);
  if (auto layer = call->getAttrOfType<graph::LayerAttr>(graph::kLayerAttr))
    backward->setAttr(graph::kLayerAttr,
                      graph::LayerAttr::get(builder.getContext(),
                                            layer.getIndex(),
                                            graph::Direction::backward));
  SmallVector<Value> result(call.getNumOperands());
  for (auto [index, value] :
       llvm::zip_equal(gradient.wanted, backward.getResults()))
    result[index] = value;
  return result;
}

FailureOr<BlockGradient *> BlockGradients::gradientOf(func::FuncOp function) {
  auto [entry, isNew] = gradients.try_emplace(function);
  if (!isNew) {
    if (!entry->second)
      return function.emitOpError("calls itself; a block's depth must be known "
                                  "at compile time");
    return entry->second.get();
  }
  FailureOr<JointFunction> joint =
      makeJoint(function, (function.getName() + ".joint").str());
  if (failed(joint))
    return failure();
  SmallVector<unsigned> wanted(wantedArguments[function].set_bits());
  auto gradient = std::make_unique<BlockGradient>(
      splitJoint(std::move(*joint), function, wanted, policy, symbols));
  return (gradients[function] = std::move(gradient)).get();
}

//===--- the joint function ---------------------------------------------===//

// What buildVjp made for operands that need no gradient.
static void eraseDead(Block &block, ArrayRef<Operation *> forward,
                      ArrayRef<Value> kept) {
  llvm::DenseSet<Operation *> untouched(forward.begin(), forward.end());
  for (Value value : kept)
    if (Operation *op = value.getDefiningOp())
      untouched.insert(op);
  SmallVector<Operation *> ops;
  for (Operation &op : block.without_terminator())
    ops.push_back(&op);
  for (Operation *op : llvm::reverse(ops))
    if (!untouched.contains(op) && isOpTriviallyDead(op))
      op->erase();
}

FailureOr<JointFunction> BlockGradients::makeJoint(func::FuncOp function,
                                                   StringRef name) {
  JointFunction joint;
  joint.function = function.clone();
  joint.function.setName(name);
  symbols.insert(joint.function, std::next(Block::iterator(function)));
  Block &block = joint.function.front();
  for (Operation &op : block.without_terminator())
    joint.forward.push_back(&op);
  if (failed(replaceCalls(joint)))
    return failure();

  ActiveSet active = activeValues(joint.function, wantedArguments[function]);
  Operation *terminator = block.getTerminator();
  OpBuilder builder(terminator);
  ReverseSweep sweep(builder, active);
  for (auto [index, result] : llvm::enumerate(terminator->getOperands())) {
    if (!isFloatTensor(result) ||
        joint.function.getResultAttr(index, graph::kMetricAttr))
      continue;
    unsigned position = joint.function.getNumArguments();
    joint.function.insertArgument(position, result.getType(), {},
                                  result.getLoc());
    Value cotangent = joint.function.getArgument(position);
    joint.cotangents.push_back(cotangent);
    joint.differentiated.push_back(index);
    if (active.contains(result))
      sweep.add(result, cotangent);
  }
  auto callVjp = [this](OpBuilder &b, func::CallOp call,
                        ArrayRef<Value> cotangents) {
    return differentiateCall(b, call, cotangents);
  };
  if (failed(sweep.run(joint.forward, callVjp)))
    return failure();

  for (unsigned index : wantedArguments[function].set_bits()) {
    Value argument = block.getArgument(index);
    Value gradient = sweep.cotangent(argument);
    joint.gradients.push_back(gradient
                                  ? gradient
                                  : graph::Emitter(builder, argument.getLoc())
                                        .zeros(graph::tensorType(argument)));
  }
  eraseDead(block, joint.forward, joint.gradients);
  addGradientRounds(block, joint.forward, joint.gradients);
  return joint;
}
