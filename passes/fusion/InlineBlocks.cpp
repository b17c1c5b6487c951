#include "dialects/dist/PairAttr.h"
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/Extensions/InlinerExtension.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Transforms/InliningUtils.h"
#include "passes/fusion/Fusion.h"

using namespace mlir;
using namespace tessera;

namespace tessera {
#define GEN_PASS_DEF_INLINEBLOCKS
#include "passes/fusion/Passes.h.inc"
} // namespace tessera

// The ops between the call and `next` get its layer, and its half of a pair.
static void copyMarks(func::CallOp call, Operation *next) {
  for (StringRef name : {graph::kLayerAttr, dist::kPairAttr})
    if (Attribute mark = call->getAttr(name))
      for (Operation *op = call->getNextNode(); op != next;
           op = op->getNextNode())
        op->setAttr(name, mark);
}

namespace {

class InlineBlocksPass
    : public tessera::impl::InlineBlocksBase<InlineBlocksPass> {
  void getDependentDialects(DialectRegistry &registry) const override {
    func::registerInlinerExtension(registry);
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    InlinerInterface inliner(&getContext());
    // Inlining a block that calls another adds calls; `chain` detects
    // recursion.
    for (auto function : module.getOps<func::FuncOp>()) {
      if (function.isPrivate())
        continue;
      llvm::SmallSetVector<func::FuncOp, 4> chain;
      if (failed(inlineInto(function, symbols, inliner, chain)))
        return signalPassFailure();
    }
    for (auto function :
         llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
      if (function.isPrivate())
        function.erase();
  }

  LogicalResult inlineInto(func::FuncOp function, SymbolTable &symbols,
                           InlinerInterface &inliner,
                           llvm::SmallSetVector<func::FuncOp, 4> &chain) {
    if (!chain.insert(function))
      return function.emitError("calls itself: blocks cannot be recursive");
    SmallVector<func::CallOp> calls;
    function.walk([&](func::CallOp call) { calls.push_back(call); });
    for (func::CallOp call : calls) {
      auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
      if (!callee || callee.isExternal())
        return call.emitError() << "calls @" << call.getCallee()
                                << ", which has no body to inline";
      if (failed(inlineInto(callee, symbols, inliner, chain)))
        return failure();
      Operation *next = call->getNextNode();
      // Locations: the op's own, within the call's.
      if (failed(inlineCall(inliner, call, callee, &callee.getBody())))
        return call.emitError() << "calls @" << call.getCallee()
                                << ", which has ops that cannot be inlined";
      copyMarks(call, next);
      call.erase();
    }
    chain.pop_back();
    return success();
  }
};

} // namespace
