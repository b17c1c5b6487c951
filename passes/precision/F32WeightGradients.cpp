// The pass: moves the upcast of a weight's gradient to the op that computes it.
#include "dialects/graph/Build.h"
#include "dialects/graph/GraphExchangeOps.h"
#include "dialects/graph/PlainFunction.h"
#include "dialects/graph/Programs.h"
#include "mlir/IR/SymbolTable.h"
#include "passes/precision/OpTraits.h"
#include "passes/precision/Precision.h"

using namespace mlir;
using namespace tessera;

namespace tessera {
#define GEN_PASS_DEF_F32WEIGHTGRADIENTS
#include "passes/precision/Passes.h.inc"
} // namespace tessera

namespace {

RankedTensorType wideType(Value value) {
  return graph::tensorType(value).clone(Float32Type::get(value.getContext()));
}

bool isWide(Value value) { return value.getType() == wideType(value); }

bool isNarrowFloat(Value value) {
  Type element = graph::tensorType(value).getElementType();
  return isa<FloatType>(element) && element.getIntOrFloatBitWidth() < 32;
}

bool isView(Operation *op) {
  auto fusable = dyn_cast<graph::Fusable>(op);
  return fusable && fusable.isView();
}

class GradientWidener {
public:
  /// Upcasts the producers of returned value number `index` of `function`.
  void upcastResult(func::FuncOp function, unsigned index) {
    OpOperand &operand = function.front().getTerminator()->getOpOperand(index);
    operand.set(upcast(operand.get()));
  }

  /// Conversions of call results that stopped at the border of a function.
  llvm::DenseSet<Operation *> atBorder;

private:
  // The value in f32, without intermediate rounding if it has one use.
  Value upcast(Value value) {
    if (isWide(value))
      return descend(value);
    if (value.hasOneUse())
      if (Value made = makeWide(value))
        return made;
    OpBuilder builder(value.getContext());
    builder.setInsertionPointAfterValue(value);
    Value wide = graph::Emitter(builder, value.getLoc())
                     .convert(value, builder.getF32Type());
    if (value.getDefiningOp<func::CallOp>())
      atBorder.insert(wide.getDefiningOp());
    return wide;
  }

  // Through sums and views that are f32 already, to conversions to f32.
  Value descend(Value value) {
    Operation *op = value.getDefiningOp();
    if (!op)
      return value;
    if (auto convert = dyn_cast<graph::ConvertOp>(op))
      return withoutConversion(convert);
    if (auto scatter = dyn_cast<graph::ScatterAddOp>(op))
      addNarrowRows(scatter);
    else if (isa<graph::AddOp>(op) || isView(op))
      for (OpOperand &operand : op->getOpOperands())
        if (isWide(operand.get()))
          operand.set(descend(operand.get()));
    return value;
  }

  // The operand of the conversion in f32, if its op can make that; otherwise
  // the conversion's result.
  Value withoutConversion(graph::ConvertOp convert) {
    Value input = convert.getInput();
    if (!isNarrowFloat(input))
      return convert.getResult();
    if (Value made = input.hasOneUse() ? makeWide(input) : Value()) {
      convert.replaceAllUsesWith(made);
      convert.erase();
      return made;
    }
    if (input.getDefiningOp<func::CallOp>())
      atBorder.insert(convert);
    return convert.getResult();
  }

  // A scatter upcasts the rows that it adds.
  static void addNarrowRows(graph::ScatterAddOp scatter) {
    auto convert = scatter.getUpdates().getDefiningOp<graph::ConvertOp>();
    if (convert && isNarrowFloat(convert.getInput()))
      scatter.getUpdatesMutable().assign(convert.getInput());
  }

  // The op that computes `value` (which has no other uses), with an f32 result.
  // Null if the op does not support it.
  Value makeWide(Value value) {
    Operation *op = value.getDefiningOp();
    if (!op)
      return {};
    if (auto convert = dyn_cast<graph::ConvertOp>(op))
      return isWide(convert.getInput()) ? convert.getInput() : Value();
    if (auto head = dyn_cast<graph::LinearCrossEntropyGradOp>(op))
      return value == head.getDWeight() ? retyped(value) : Value();
    if (isa<graph::EinsumOp, graph::GroupedMatmulOp, graph::GroupedOuterOp>(op))
      return retyped(value);
    if (auto scatter = dyn_cast<graph::ScatterAddOp>(op)) {
      scatter.getBaseMutable().assign(upcast(scatter.getBase()));
      return retyped(value);
    }
    if (graph::isOverflowLoop(op))
      return makeWideSum(cast<graph::LoopOp>(op), value);
    auto reduce = dyn_cast<graph::ReduceOp>(op);
    if (isa<graph::AddOp>(op) || isView(op) ||
        (reduce && reduce.getKind() == graph::ReduceKind::sum)) {
      for (OpOperand &operand : op->getOpOperands())
        if (isNarrowFloat(operand.get()))
          operand.set(upcast(operand.get()));
      return retyped(value);
    }
    return {};
  }

  // A sum that further rounds of an exchange add to.
  Value makeWideSum(graph::LoopOp loop, Value value) {
    unsigned i = cast<OpResult>(value).getResultNumber();
    OpOperand &init = loop->getOpOperand(i),
              &next = loop.getYield()->getOpOperand(i);
    init.set(upcast(init.get()));
    retyped(loop.getCarried()[i]);
    next.set(upcast(next.get()));
    return retyped(value);
  }

  static Value retyped(Value value) {
    value.setType(wideType(value));
    return value;
  }
};

/// Results of a function that every caller upcasts are returned in f32.
class Borders {
public:
  explicit Borders(ModuleOp module) : module(module), symbols(module) {
    module.walk([&](func::CallOp call) {
      callers[symbols.lookup(call.getCallee())].push_back(call);
    });
  }

  void run(GradientWidener &widener) {
    while (liftOne(widener)) {
    }
  }

private:
  bool liftOne(GradientWidener &widener) {
    for (auto &[callee, calls] : callers) {
      auto function = dyn_cast_or_null<func::FuncOp>(callee);
      if (!function || !function.getBody().hasOneBlock())
        continue;
      for (unsigned i = 0; i < function.getNumResults(); ++i)
        if (canLift(calls, i, widener)) {
          lift(function, calls, i, widener);
          return true;
        }
    }
    return false;
  }

  static bool canLift(ArrayRef<func::CallOp> calls, unsigned index,
                      const GradientWidener &widener) {
    return llvm::all_of(calls, [&](func::CallOp call) {
      Value result = call.getResult(index);
      return result.hasOneUse() &&
             widener.atBorder.contains(*result.getUsers().begin());
    });
  }

  static void lift(func::FuncOp function, ArrayRef<func::CallOp> calls,
                   unsigned index, GradientWidener &widener) {
    for (func::CallOp call : calls) {
      Value result = call.getResult(index);
      Operation *convert = *result.getUsers().begin();
      widener.atBorder.erase(convert);
      result.setType(wideType(result));
      convert->replaceAllUsesWith(ValueRange(result));
      convert->erase();
    }
    widener.upcastResult(function, index);
    precision::updateType(function);
  }

  ModuleOp module;
  SymbolTable symbols;
  llvm::MapVector<Operation *, SmallVector<func::CallOp>> callers;
};

struct F32WeightGradients
    : tessera::impl::F32WeightGradientsBase<F32WeightGradients> {
  void runOnOperation() override {
    func::FuncOp gradients =
        graph::findProgram(getOperation(), graph::Program::gradients);
    if (!gradients || gradients.isExternal()) {
      getOperation().emitError() << "has no program 'gradients' with a body; "
                                    "differentiate makes it";
      return signalPassFailure();
    }
    if (failed(requirePlainFunction(gradients)))
      return signalPassFailure();
    GradientWidener widener;
    // Result 0 is the loss.
    for (unsigned i = 1; i < gradients.getNumResults(); ++i)
      widener.upcastResult(gradients, i);
    precision::updateType(gradients);
    Borders(getOperation()).run(widener);
  }
};

} // namespace
