// Verifies the postcondition of the phase `overlap`.
#include "dialects/dist/DistOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/overlap/BlockGraph.h"
#include "passes/overlap/Overlap.h"

using namespace mlir;
using namespace tessera;

namespace tessera {
#define GEN_PASS_DEF_VERIFYOVERLAP
#include "passes/overlap/Passes.h.inc"
} // namespace tessera

static LogicalResult verifyStarted(Operation *op) {
  auto pending = cast<TypedValue<dist::PendingType>>(op->getResult(0));
  if (!pending.hasOneUse() || !isa<dist::WaitOp>(*pending.user_begin()))
    return op->emitError("is started, but not waited for exactly once");
  if ((*pending.user_begin())->getBlock() != op->getBlock())
    return op->emitError(
        "is waited for in another block than the one that starts it");
  return success();
}

namespace {
class VerifyOverlapPass
    : public tessera::impl::VerifyOverlapBase<VerifyOverlapPass> {
  void runOnOperation() override {
    bool ok = true;
    getOperation().walk([&](Operation *op) {
      if (op->hasAttr(dist::kStartAttr)) {
        op->emitError("still has ")
            << dist::kStartAttr << "; run overlap-collectives before";
        ok = false;
      }
      if (overlap::isStart(op) &&
          isa<dist::PendingType>(op->getResult(0).getType()))
        ok &= succeeded(verifyStarted(op));
    });
    if (!ok)
      signalPassFailure();
  }
};
} // namespace
