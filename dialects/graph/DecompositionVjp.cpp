// The gradient of a composite from those of its primitives.
#include "dialects/graph/GraphComposite.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace tessera::graph;

static bool isFloat(Value value) {
  return isa<FloatType>(tensorType(value).getElementType());
}

namespace {
/// A reverse sweep over the primitives of one composite.
class Sweep {
public:
  Sweep(OpBuilder &builder, Operation *composite, ArrayRef<Operation *> made)
      : builder(builder), made(made) {
    auto isActive = [&](Value value) { return active.contains(value); };
    for (Value operand : composite->getOperands())
      if (isFloat(operand))
        active.insert(operand);
    for (Operation *op : made)
      if (llvm::any_of(op->getOperands(), isActive))
        for (Value result : op->getResults())
          if (isFloat(result))
            active.insert(result);
  }

  /// Adds a cotangent; null: none.
  void add(Value value, Value cotangent) {
    if (!cotangent || !active.contains(value))
      return;
    Value &sum = sums[value];
    sum =
        sum ? Emitter(builder, value.getLoc()).add(sum, cotangent) : cotangent;
  }

  void run() {
    for (Operation *op : llvm::reverse(made)) {
      SmallVector<Value> given;
      for (Value result : op->getResults())
        given.push_back(sums.lookup(result));
      if (llvm::none_of(given, [](Value value) { return bool(value); }))
        continue;
      SmallVector<Value> gradients =
          cast<Differentiable>(op).buildVjp(builder, given);
      for (auto [operand, gradient] :
           llvm::zip_equal(op->getOperands(), gradients))
        add(operand, gradient);
    }
  }

  Value of(Value value) const { return sums.lookup(value); }

private:
  OpBuilder &builder;
  ArrayRef<Operation *> made; ///< in order
  llvm::DenseSet<Value> active;
  DenseMap<Value, Value> sums;
};
} // namespace

SmallVector<Value>
tessera::graph::detail::vjpOfDecomposition(Decomposable op, OpBuilder &builder,
                                           ValueRange cotangents) {
  // What is made is between its neighbors at the insertion point.
  Block *block = builder.getInsertionBlock();
  auto next = builder.getInsertionPoint();
  Operation *before = next == block->begin() ? nullptr : &*std::prev(next);
  SmallVector<Value> results = op.decompose(builder);
  SmallVector<Operation *> made;
  for (auto it = before ? std::next(before->getIterator()) : block->begin();
       it != next; ++it)
    made.push_back(&*it);
  Sweep sweep(builder, op, made);
  for (auto [result, cotangent] : llvm::zip_equal(results, cotangents))
    sweep.add(result, cotangent);
  sweep.run();
  // A value that is two operands has its gradient once.
  llvm::DenseSet<Value> counted;
  SmallVector<Value> gradients;
  for (Value operand : op->getOperands())
    gradients.push_back(counted.insert(operand).second ? sweep.of(operand)
                                                       : Value());
  return gradients;
}
