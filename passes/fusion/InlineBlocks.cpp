#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "passes/fusion/Fusion.h"

using namespace mlir;
using namespace tessera;

namespace tessera {
#define GEN_PASS_DEF_INLINEBLOCKS
#include "passes/fusion/Passes.h.inc"
} // namespace tessera

// Inlines the body of `callee` at `call`. Locations: the op's own, within the
// call's.
static void inlineCall(func::CallOp call, func::FuncOp callee) {
  OpBuilder builder(call);
  Block &body = callee.getBody().front();
  IRMapping mapping;
  mapping.map(body.getArguments(), call.getOperands());
  for (Operation &op : body.without_terminator()) {
    Operation *copy = builder.clone(op, mapping);
    copy->walk([&](Operation *inner) {
      inner->setLoc(CallSiteLoc::get(inner->getLoc(), call.getLoc()));
    });
  }
  SmallVector<Value> results;
  for (Value value : body.getTerminator()->getOperands())
    results.push_back(mapping.lookupOrDefault(value));
  call.replaceAllUsesWith(results);
  call.erase();
}

namespace {

class InlineBlocksPass
    : public tessera::impl::InlineBlocksBase<InlineBlocksPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    // Inlining a block that calls another adds calls; `chain` detects
    // recursion.
    for (auto function : module.getOps<func::FuncOp>()) {
      if (function.isPrivate())
        continue;
      llvm::SmallSetVector<func::FuncOp, 4> chain;
      if (failed(inlineInto(function, symbols, chain)))
        return signalPassFailure();
    }
    for (auto function :
         llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
      if (function.isPrivate())
        function.erase();
  }

  LogicalResult inlineInto(func::FuncOp function, SymbolTable &symbols,
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
      if (failed(inlineInto(callee, symbols, chain)))
        return failure();
      inlineCall(call, callee);
    }
    chain.pop_back();
    return success();
  }
};

} // namespace
