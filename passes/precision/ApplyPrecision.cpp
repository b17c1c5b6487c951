// The pass: where values are bf16 and where f32. The rules are in README.md.
#include "dialects/graph/Build.h"
#include "dialects/graph/PlainFunction.h"
#include "passes/precision/OpTraits.h"
#include "passes/precision/Precision.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::precision;

namespace tessera {
#define GEN_PASS_DEF_APPLYPRECISION
#include "passes/precision/Passes.h.inc"
} // namespace tessera

namespace {

bool isF32(Value value) {
  return isFloatTensor(value) &&
         graph::tensorType(value).getElementType().isF32();
}

// Vectors and scalars stay f32: they are few bytes, and norms, biases and
// statistics are what rounding hurts most.
bool isLarge(Value value) {
  return isF32(value) && graph::tensorType(value).getRank() >= 2;
}

/// One function, from its first op to its last.
class Narrowing {
public:
  Narrowing(func::FuncOp function, SymbolTableCollection &symbols, bool isBlock,
            bool roundRows)
      : function(function), symbols(symbols), isBlock(isBlock),
        roundRows(roundRows), traits(function), builder(function.getContext()) {
    narrowType = builder.getBF16Type();
  }

  LogicalResult run() {
    if (isBlock)
      for (Value argument : function.getArguments())
        if (isLarge(argument) && !traits.isPinned(argument))
          setElement(argument, narrowType);
    SmallVector<Operation *> ops;
    for (Operation &op : function.front())
      ops.push_back(&op);
    for (Operation *op : ops)
      if (failed(visit(op)))
        return failure();
    updateType(function);
    return success();
  }

private:
  //===--- the rules ------------------------------------------------------===//

  LogicalResult visit(Operation *op) {
    if (op->getNumRegions())
      return op->emitOpError(
          "cannot be given a precision; it must be made after apply-precision");
    if (isa<func::ReturnOp>(op)) {
      for (OpOperand &operand : op->getOpOperands())
        if (!isBlock || isKeptResult(function, operand.getOperandNumber()) ||
            !narrowLarge(operand))
          upcast(operand);
      return success();
    }
    if (isa<graph::ConvertOp>(op) || op->getNumOperands() == 0)
      return success();
    if (llvm::any_of(op->getResults(),
                     [&](Value result) { return traits.isPinned(result); })) {
      computeWide(op);
      return success();
    }
    switch (traits.classOf(op)) {
    case OpClass::elementwise:
    case OpClass::reduction:
    case OpClass::other:
      computeWide(op);
      break;
    case OpClass::movement:
      move(op);
      break;
    case OpClass::contraction:
      contract(op);
      break;
    case OpClass::gather:
      // Rows of the f32 table: more exact than rows of its copy. A block's own
      // table is an argument, which is narrow.
      setElement(op->getResult(0),
                 graph::tensorType(op->getOperand(0)).getElementType());
      if (roundRows && isLarge(op->getResult(0))) {
        narrowed[op->getResult(0)] = narrowCopy(op->getResult(0));
        return success();
      }
      break;
    case OpClass::composite:
      narrowInputs(op);
      break;
    case OpClass::rows:
      moveRows(op);
      break;
    case OpClass::call:
      passToBlock(op);
      return success();
    }
    for (Value result : op->getResults())
      settle(result);
    return success();
  }

  void computeWide(Operation *op) {
    for (OpOperand &operand : op->getOpOperands())
      upcast(operand);
  }

  // The element type is preserved; a conversion, if any, precedes the move
  // unless all its users compute in f32.
  void move(Operation *op) {
    Value result = op->getResult(0);
    bool wide =
        llvm::all_of(op->getOperands(),
                     [&](Value operand) {
                       return !isFloatTensor(operand) || isSmall(operand) ||
                              isStatistic(operand);
                     }) ||
        (llvm::any_of(op->getOperands(),
                      [&](Value operand) { return isF32(current(operand)); }) &&
         staysF32(result, isCheapResult(op)));
    for (OpOperand &operand : op->getOpOperands())
      if (wide)
        upcast(operand);
      else
        narrow(operand);
    if (!wide)
      setElement(result, narrowType);
  }

  void contract(Operation *op) {
    Value result = op->getResult(0);
    for (OpOperand &operand : op->getOpOperands())
      narrow(operand);
    if (isLarge(result) && !staysF32(result, /*cheap=*/false))
      setElement(result, narrowType);
  }

  // Weights stay what they are.
  void moveRows(Operation *op) {
    narrow(op->getOpOperand(0));
    setElement(op->getResult(0), narrowType);
    if (op->getNumOperands() > 2)
      upcast(op->getOpOperand(2));
  }

  // A result of an operand's type follows it; statistics keep theirs.
  void narrowInputs(Operation *op) {
    for (OpOperand &operand : op->getOpOperands()) {
      Type before = operand.get().getType();
      if (!narrowLarge(operand)) {
        upcast(operand);
        continue;
      }
      for (Value result : op->getResults())
        if (isLarge(result) && hasShapeOf(result, before))
          setElement(result, narrowType);
    }
  }

  static bool isKept(func::FuncOp callee, OpOperand &operand) {
    return callee &&
           callee.getArgAttr(operand.getOperandNumber(), graph::kKeepF32Attr);
  }

  static bool isKeptResult(func::FuncOp callee, unsigned index) {
    return callee && callee.getResultAttr(index, graph::kKeepF32Attr);
  }

  // A block's small arguments are f32 also if a movement made them of narrow
  // values.
  void passToBlock(Operation *call) {
    auto callee = symbols.lookupNearestSymbolFrom<func::FuncOp>(
        call, cast<func::CallOp>(call).getCalleeAttr());
    for (OpOperand &operand : call->getOpOperands())
      if (isKept(callee, operand) || !narrowLarge(operand))
        upcast(operand);
    for (OpResult result : call->getResults())
      if (isLarge(result) && !isKeptResult(callee, result.getResultNumber()))
        setElement(result, narrowType);
  }

  // A large f32 value that somebody stores is stored as bf16, and then
  // everybody reads that.
  void settle(Value result) {
    Operation *op = result.getDefiningOp();
    OpClass kind = traits.classOf(op);
    if (kind == OpClass::reduction || isStatisticResult(op))
      statistics.insert(result);
    if ((kind == OpClass::elementwise || kind == OpClass::movement) &&
        isCheapResult(op))
      cheap.insert(result);
    if (isLarge(result) && !isStatistic(result) &&
        !staysF32(result, cheap.contains(result)))
      narrowed[result] = narrowCopy(result);
  }

  //===--- what is known of values ----------------------------------------===//

  bool isSmall(Value value) const {
    return graph::tensorType(value).getRank() <= 1;
  }
  bool isStatistic(Value value) const {
    return statistics.contains(value) || traits.isPinned(value);
  }

  // Made of reductions only: means, variances and what follows from them.
  bool isStatisticResult(Operation *op) const {
    OpClass kind = traits.classOf(op);
    if (kind != OpClass::elementwise && kind != OpClass::movement)
      return false;
    return llvm::any_of(op->getOperands(),
                        [&](Value operand) { return isStatistic(operand); }) &&
           llvm::all_of(op->getOperands(), [&](Value operand) {
             return isStatistic(operand) || !traits.isActive(operand);
           });
  }

  // Elementwise in stored (bf16) values, constants, vectors and statistics: a
  // gradient that reads it computes it again.
  bool isCheapResult(Operation *op) const {
    return llvm::all_of(op->getOperands(), [&](Value operand) {
      return !isF32(current(operand)) || !traits.isActive(operand) ||
             isSmall(operand) || isStatistic(operand) ||
             cheap.contains(operand);
    });
  }

  // Whether the value need not be stored as bf16: all its readers compute in
  // f32 in the same kernel, and no gradient saves it; or the program returns
  // it, in f32, and then everybody reads that.
  bool staysF32(Value value, bool isCheap) const {
    auto returns = [](Operation *user) { return isa<func::ReturnOp>(user); };
    if (!isBlock && llvm::any_of(value.getUsers(), returns))
      return true;
    return !value.use_empty() &&
           llvm::all_of(value.getUsers(), [&](Operation *user) {
             if (returns(user))
               return false;
             switch (traits.classOf(user)) {
             case OpClass::elementwise:
             case OpClass::reduction:
               return isCheap || traits.isLinear(user);
             case OpClass::movement:
               return staysF32(user->getResult(0), isCheap);
             default:
               return false;
             }
           });
  }

  //===--- conversions ----------------------------------------------------===//

  static void setElement(Value value, Type element) {
    value.setType(graph::tensorType(value).clone(element));
  }

  static bool hasShapeOf(Value value, Type type) {
    return graph::tensorType(value).getShape() ==
           cast<RankedTensorType>(type).getShape();
  }

  Value current(Value value) const {
    Value copy = narrowed.lookup(value);
    return copy ? copy : value;
  }

  // Inserted after the definition, so that all later ops share one copy.
  Value narrowCopy(Value value) {
    Value &copy = copies[value];
    if (copy)
      return copy;
    if (Operation *op = value.getDefiningOp())
      builder.setInsertionPointAfter(op);
    else if (lastEntryCopy)
      builder.setInsertionPointAfter(lastEntryCopy);
    else
      builder.setInsertionPointToStart(&function.front());
    copy = graph::Emitter(builder, value.getLoc()).convert(value, narrowType);
    if (!value.getDefiningOp())
      lastEntryCopy = copy.getDefiningOp();
    return copy;
  }

  bool narrow(OpOperand &operand) {
    Value value = current(operand.get());
    if (isF32(value))
      value = narrowCopy(value);
    operand.set(value);
    return isFloatTensor(value);
  }

  bool narrowLarge(OpOperand &operand) {
    return isFloatTensor(operand.get()) && !isSmall(operand.get()) &&
           narrow(operand);
  }

  // One upcast for each reader: it is part of the reader's kernel.
  void upcast(OpOperand &operand) {
    Value value = current(operand.get());
    if (isFloatTensor(value) &&
        graph::tensorType(value).getElementType() == narrowType) {
      builder.setInsertionPoint(operand.getOwner());
      value = graph::Emitter(builder, value.getLoc())
                  .convert(value, builder.getF32Type());
    }
    operand.set(value);
  }

  func::FuncOp function;
  SymbolTableCollection &symbols;
  bool isBlock, roundRows;
  OpTraits traits;
  OpBuilder builder;
  Type narrowType;
  Operation *lastEntryCopy = nullptr;
  DenseMap<Value, Value> copies;   // f32 value → its one bf16 copy
  DenseMap<Value, Value> narrowed; // values that are read as their copy only
  DenseSet<Value> statistics, cheap;
};

struct ApplyPrecision : tessera::impl::ApplyPrecisionBase<ApplyPrecision> {
  using ApplyPrecisionBase::ApplyPrecisionBase;

  void runOnOperation() override {
    if (compute != recipe::Precision::Bf16)
      return;
    SymbolTableCollection symbols;
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (!hasPrecision(function))
        continue;
      if (failed(requirePlainFunction(function)) ||
          failed(Narrowing(function, symbols, function.isPrivate(), roundRows)
                     .run()))
        return signalPassFailure();
    }
  }
};

} // namespace
