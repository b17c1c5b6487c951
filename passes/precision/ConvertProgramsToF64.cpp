// The pass: f64 for f32, once programs are whole. Rules of gradients and of
// bf16 need to know nothing of a third type that way.
#include "dialects/graph/Build.h"
#include "passes/precision/OpTraits.h"
#include "passes/precision/Precision.h"
#include "runtime/train/Hyper.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::precision;

namespace tessera {
#define GEN_PASS_DEF_CONVERTPROGRAMSTOF64
#include "passes/precision/Passes.h.inc"
} // namespace tessera

static bool isF32(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getElementType().isF32();
}

static Type toF64(Type type) {
  return isF32(type) ? cast<RankedTensorType>(type).clone(
                           Float64Type::get(type.getContext()))
                     : type;
}

// What the host writes or reads as f32: the hyperparameters, and inputs and
// outputs that are more than a number.
static bool staysNarrow(Type type, DictionaryAttr attributes) {
  if (!attributes)
    return false;
  auto state = attributes.getAs<StringAttr>(graph::kStateAttr);
  bool isPort = attributes.contains(graph::kInputAttr) ||
                attributes.contains(graph::kOutputAttr);
  return (state && state.getValue() == kHyperTensor) ||
         (isPort && cast<RankedTensorType>(type).getRank() > 0);
}

static LogicalResult convertConstant(graph::ConstantOp op) {
  auto values = dyn_cast<DenseFPElementsAttr>(op.getValue());
  if (!values)
    return op.emitOpError("has values that cannot be made f64; give them as "
                          "dense<...>");
  Type f64 = Float64Type::get(op.getContext());
  op.setValueAttr(
      cast<ElementsAttr>(values.mapValues(f64, [](const APFloat &value) {
        bool inexact;
        APFloat wide = value;
        wide.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven,
                     &inexact);
        return wide.bitcastToAPInt();
      })));
  return success();
}

// Readers get the value in f64.
static void convertAfter(Value value, OpBuilder &builder) {
  Value wide = graph::Emitter(builder, value.getLoc())
                   .convert(value, builder.getF64Type());
  value.replaceAllUsesExcept(wide, wide.getDefiningOp());
}

namespace {

struct ConvertProgramsToF64
    : tessera::impl::ConvertProgramsToF64Base<ConvertProgramsToF64> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (failed(convertFunction(function)))
        return signalPassFailure();
  }

  static LogicalResult convertFunction(func::FuncOp function) {
    if (function.isExternal())
      return function.emitOpError("has no body to be computed in f64");
    OpBuilder builder(function.getContext());
    SmallVector<Operation *> ops;
    function.front().walk([&](Operation *op) { ops.push_back(op); });
    for (Operation *op : ops)
      if (failed(convertResults(op, builder)))
        return failure();
    convertArguments(function, builder);
    narrowReturned(function, builder);
    updateType(function);
    return success();
  }

  static LogicalResult convertResults(Operation *op, OpBuilder &builder) {
    for (Region &region : op->getRegions())
      for (Block &block : region)
        for (BlockArgument argument : block.getArguments())
          argument.setType(toF64(argument.getType()));
    if (isa<graph::RandomOp>(op)) {
      builder.setInsertionPointAfter(op);
      convertAfter(op->getResult(0), builder);
      return success();
    }
    if (auto constant = dyn_cast<graph::ConstantOp>(op);
        constant && isF32(constant.getType()) &&
        failed(convertConstant(constant)))
      return failure();
    for (Value result : op->getResults())
      result.setType(toF64(result.getType()));
    return success();
  }

  static void convertArguments(func::FuncOp function, OpBuilder &builder) {
    builder.setInsertionPointToStart(&function.front());
    for (BlockArgument argument : function.getArguments())
      if (!staysNarrow(argument.getType(),
                       function.getArgAttrDict(argument.getArgNumber())))
        argument.setType(toF64(argument.getType()));
      else if (isF32(argument.getType()))
        convertAfter(argument, builder);
  }

  static void narrowReturned(func::FuncOp function, OpBuilder &builder) {
    Operation *end = function.front().getTerminator();
    builder.setInsertionPoint(end);
    for (OpOperand &returned : end->getOpOperands()) {
      unsigned number = returned.getOperandNumber();
      if (isF32(function.getResultTypes()[number]) &&
          staysNarrow(function.getResultTypes()[number],
                      function.getResultAttrDict(number)))
        returned.set(graph::Emitter(builder, returned.get().getLoc())
                         .convert(returned.get(), builder.getF32Type()));
    }
  }
};

} // namespace
