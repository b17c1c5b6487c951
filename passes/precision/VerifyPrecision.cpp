// The postcondition of precision.
#include "dialects/graph/PlainFunction.h"
#include "passes/precision/OpTraits.h"
#include "passes/precision/Precision.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::precision;

namespace tessera {
#define GEN_PASS_DEF_VERIFYPRECISION
#include "passes/precision/Passes.h.inc"
} // namespace tessera

// f32 of rank 2 or more: what a bf16 model neither stores nor exchanges.
static bool isWide(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return tensor.getElementType().isF32() && tensor.getRank() >= 2;
}

static LogicalResult verifyFp32(func::FuncOp function) {
  WalkResult result = function.walk([](Operation *op) {
    auto isNarrow = [](Value value) {
      if (!isFloatTensor(value))
        return false;
      Type element = graph::tensorType(value).getElementType();
      return !element.isF32() && !element.isF64();
    };
    auto blockHas = [&](Block &block) {
      return llvm::any_of(block.getArguments(), isNarrow);
    };
    bool found = llvm::any_of(op->getResults(), isNarrow);
    for (Region &region : op->getRegions())
      found |= llvm::any_of(region, blockHas);
    if (!found)
      return WalkResult::advance();
    op->emitOpError(
        "has a float narrower than f32, but the compute type is fp32");
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

static LogicalResult verifyOps(func::FuncOp function) {
  OpTraits traits(function);
  for (Operation &op : function.front()) {
    if (op.getNumRegions())
      return op.emitOpError("has a region; loops are made after precision");
    OpClass kind = traits.classOf(&op);
    if (kind != OpClass::contraction && kind != OpClass::composite)
      continue;
    if (llvm::any_of(op.getResults(),
                     [&](Value result) { return traits.isPinned(result); }))
      continue;
    for (auto [i, type] : llvm::enumerate(op.getOperandTypes()))
      if (isWide(type))
        return op.emitOpError("operand ")
               << i << " is " << type << ", but the compute type is bf16";
  }
  return success();
}

static LogicalResult verifySignature(func::FuncOp function) {
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes())) {
    auto role = function.getArgAttrOfType<graph::RoleAttr>(i, graph::kRoleAttr);
    bool isMaster = role && role.getValue() == graph::Role::parameter &&
                    !function.getArgAttr(i, graph::kFrozenAttr);
    if (isMaster && !cast<RankedTensorType>(type).getElementType().isF32())
      return function.emitOpError("parameter ")
             << i << " is " << type << ", but master weights are f32";
    if (function.isPrivate() && isWide(type) &&
        !function.getArgAttr(i, graph::kKeepF32Attr))
      return function.emitOpError("argument ")
             << i << " is " << type << ", but blocks take bf16";
  }
  if (function.isPrivate())
    for (auto [i, type] : llvm::enumerate(function.getResultTypes()))
      if (isWide(type) && !function.getResultAttr(i, graph::kKeepF32Attr))
        return function.emitOpError("result ")
               << i << " is " << type << ", but blocks return bf16";
  return success();
}

namespace {

struct VerifyPrecision : tessera::impl::VerifyPrecisionBase<VerifyPrecision> {
  using VerifyPrecisionBase::VerifyPrecisionBase;

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (failed(verify(function)))
        return signalPassFailure();
  }

  LogicalResult verify(func::FuncOp function) {
    if (compute != recipe::Precision::Bf16)
      return verifyFp32(function);
    if (!hasPrecision(function))
      return success();
    if (failed(requirePlainFunction(function)) ||
        failed(verifySignature(function)))
      return failure();
    return verifyOps(function);
  }
};

} // namespace
