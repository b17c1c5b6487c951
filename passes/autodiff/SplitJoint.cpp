// Cuts a joint function into the block's forward and backward function.
#include "mlir/Transforms/RegionUtils.h"
#include "passes/autodiff/BlockGradients.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::autodiff;

namespace {

class Splitter {
public:
  Splitter(const JointFunction &joint, func::FuncOp original,
           recipe::Recompute policy)
      : joint(joint), original(original), block(function().front()),
        plan(policy, joint.forward) {
    collectBackward();
    planResiduals();
  }

  func::FuncOp makeForward() {
    func::FuncOp result = makeFunction(".forward", original.getArgumentTypes(),
                                       forwardResultTypes());
    IRMapping map;
    for (auto [from, to] :
         llvm::zip(block.getArguments(), result.getArguments()))
      map.map(from, to);
    OpBuilder builder = OpBuilder::atBlockBegin(&result.front());
    for (Operation *op : joint.forward)
      builder.clone(*op, map);
    SmallVector<Value> values(block.getTerminator()->getOperands());
    llvm::append_range(values, extras);
    finish(builder, values, map);
    return result;
  }

  func::FuncOp makeBackward() {
    SmallVector<Value> arguments;
    for (BlockGradient::Residual residual : residuals)
      arguments.push_back(valueOf(residual));
    llvm::append_range(arguments, joint.cotangents);
    func::FuncOp result =
        makeFunction(".backward", TypeRange(ValueRange(arguments)),
                     TypeRange(ValueRange(joint.gradients)));
    IRMapping map;
    for (auto [from, to] : llvm::zip(arguments, result.getArguments()))
      map.map(from, to);
    OpBuilder builder = OpBuilder::atBlockBegin(&result.front());
    for (Operation *op : joint.forward)
      if (plan.isRecomputed(op))
        builder.clone(*op, map);
    for (Operation *op : backward)
      builder.clone(*op, map);
    finish(builder, joint.gradients, map);
    return result;
  }

  SmallVector<BlockGradient::Residual> residuals;

private:
  func::FuncOp function() const { return joint.function; }
  ValueRange results() const { return block.getTerminator()->getOperands(); }

  void collectBackward() {
    llvm::DenseSet<Operation *> forward(joint.forward.begin(),
                                        joint.forward.end());
    for (Operation &op : block.without_terminator())
      if (!forward.contains(&op))
        backward.push_back(&op);
  }

  // Everything the backward ops take from the forward pass.
  llvm::SetVector<Value> forwardValues() {
    llvm::SetVector<Value> used(joint.gradients.begin(), joint.gradients.end());
    for (Operation *op : backward) {
      used.insert(op->operand_begin(), op->operand_end());
      getUsedValuesDefinedAbove(op->getRegions(), used);
    }
    llvm::DenseSet<Operation *> own(backward.begin(), backward.end());
    used.remove_if([&](Value value) {
      Operation *op = value.getDefiningOp();
      return (op && own.contains(op)) ||
             llvm::is_contained(joint.cotangents, value);
    });
    return used;
  }

  // Residuals in the order arguments, results, other forward values.
  void planResiduals() {
    for (Value value : forwardValues())
      plan.require(value);
    for (unsigned i = 0; i < original.getNumArguments(); ++i)
      if (plan.isSaved(block.getArgument(i)))
        residuals.push_back({true, i});
    llvm::SmallPtrSet<Value, 8> returned;
    for (auto [i, value] : llvm::enumerate(results()))
      if (plan.isSaved(value) && value.getDefiningOp() &&
          returned.insert(value).second)
        residuals.push_back({false, static_cast<unsigned>(i)});
    for (Operation *op : joint.forward)
      for (Value value : op->getResults())
        if (plan.isSaved(value) && !returned.contains(value)) {
          residuals.push_back(
              {false, static_cast<unsigned>(results().size() + extras.size())});
          extras.push_back(value);
        }
  }

  Value valueOf(BlockGradient::Residual residual) {
    if (residual.isArgument)
      return block.getArgument(residual.index);
    return residual.index < results().size()
               ? results()[residual.index]
               : extras[residual.index - results().size()];
  }

  SmallVector<Type> forwardResultTypes() {
    SmallVector<Type> types(original.getResultTypes());
    llvm::append_range(types, ValueRange(extras).getTypes());
    return types;
  }

  func::FuncOp makeFunction(StringRef suffix, TypeRange arguments,
                            TypeRange results) {
    auto type = FunctionType::get(original.getContext(), arguments, results);
    auto result = func::FuncOp::create(
        original.getLoc(), (original.getName() + suffix).str(), type,
        SmallVector<NamedAttribute>(original->getDiscardableAttrs()));
    result.setPrivate();
    result.addEntryBlock();
    return result;
  }

  static void finish(OpBuilder &builder, ArrayRef<Value> values,
                     IRMapping &map) {
    SmallVector<Value> mapped;
    for (Value value : values)
      mapped.push_back(map.lookup(value));
    builder.create<func::ReturnOp>(builder.getBlock()->getParentOp()->getLoc(),
                                   mapped);
  }

  const JointFunction &joint;
  func::FuncOp original;
  Block &block;
  ResidualPlan plan;
  SmallVector<Operation *> backward;
  SmallVector<Value> extras; // saved values that the block does not return
};

} // namespace

BlockGradient tessera::autodiff::splitJoint(JointFunction joint,
                                            func::FuncOp original,
                                            ArrayRef<unsigned> wanted,
                                            recipe::Recompute policy,
                                            SymbolTable &symbols) {
  BlockGradient result;
  Splitter splitter(joint, original, policy);
  result.forward = splitter.makeForward();
  result.backward = splitter.makeBackward();
  result.residuals = splitter.residuals;
  result.differentiated = joint.differentiated;
  result.wanted.assign(wanted.begin(), wanted.end());
  auto at = std::next(Block::iterator(original));
  symbols.insert(result.backward, at);
  symbols.insert(result.forward, Block::iterator(result.backward));
  symbols.erase(joint.function);
  return result;
}
