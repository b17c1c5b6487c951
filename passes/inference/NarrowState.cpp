// The pass: state that only inference reads, in the type in which it is read.
#include "dialects/graph/Build.h"
#include "passes/inference/Inference.h"
#include "passes/precision/OpTraits.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::precision;

namespace tessera {
#define GEN_PASS_DEF_NARROWSTATE
#include "passes/inference/Passes.h.inc"
} // namespace tessera

static bool isNarrowed(Type type, DictionaryAttr attributes) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  auto role = attributes ? attributes.getAs<graph::RoleAttr>(graph::kRoleAttr)
                         : graph::RoleAttr();
  return role && !attributes.contains(graph::kKeepF32Attr) && tensor &&
         tensor.getRank() >= 2 && tensor.getElementType().isF32() &&
         (role.getValue() == graph::Role::parameter ||
          role.getValue() == graph::Role::cache);
}

// Makes the argument bf16. Readers of f32 get a conversion; rows of a table are
// converted after they are gathered.
static void narrowArgument(BlockArgument argument, OpBuilder &builder) {
  RankedTensorType wide = graph::tensorType(argument);
  Type narrow = builder.getBF16Type();
  argument.setType(wide.clone(narrow));
  for (OpOperand &use : llvm::make_early_inc_range(argument.getUses())) {
    Operation *user = use.getOwner();
    auto convert = dyn_cast<graph::ConvertOp>(user);
    if (convert &&
        graph::tensorType(convert.getResult()).getElementType() == narrow) {
      convert.getResult().replaceAllUsesWith(argument);
      convert.erase();
      continue;
    }
    builder.setInsertionPoint(user);
    graph::Emitter e(builder, user->getLoc());
    auto rows = dyn_cast<graph::EmbeddingOp>(user);
    if (rows && use.getOperandNumber() == 0) {
      Value picked = e.embedding(argument, rows.getIds());
      rows.getResult().replaceAllUsesWith(
          e.convert(picked, wide.getElementType()));
      rows.erase();
    } else {
      use.set(e.convert(argument, wide.getElementType()));
    }
  }
}

static void narrowResult(OpOperand &returned, OpBuilder &builder) {
  Type narrow = builder.getBF16Type();
  auto convert = returned.get().getDefiningOp<graph::ConvertOp>();
  if (convert &&
      graph::tensorType(convert.getInput()).getElementType() == narrow)
    return returned.set(convert.getInput());
  builder.setInsertionPoint(returned.getOwner());
  graph::Emitter e(builder, returned.get().getLoc());
  returned.set(e.convert(returned.get(), narrow));
}

namespace {

struct NarrowState : tessera::impl::NarrowStateBase<NarrowState> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isPrivate())
        narrow(function);
  }

  static void narrow(func::FuncOp function) {
    OpBuilder builder(function.getContext());
    for (BlockArgument argument : function.getArguments())
      if (isNarrowed(argument.getType(),
                     function.getArgAttrDict(argument.getArgNumber())))
        narrowArgument(argument, builder);
    Operation *end = function.front().getTerminator();
    for (OpOperand &returned : end->getOpOperands())
      if (isNarrowed(returned.get().getType(),
                     function.getResultAttrDict(returned.getOperandNumber())))
        narrowResult(returned, builder);
    updateType(function);
  }
};

} // namespace
