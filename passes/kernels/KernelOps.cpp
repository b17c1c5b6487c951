#include "passes/kernels/KernelOps.h"

using namespace mlir;
using namespace tessera;

Value KernelOps::index(int64_t value) const {
  return b.create<arith::ConstantIndexOp>(loc, value);
}

ValueRange KernelOps::forRange(Value begin, Value end, Value step,
                               ValueRange init, Body body) const {
  auto loop = b.create<scf::ForOp>(loc, begin, end, step, init);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Values next = body(loop.getInductionVar(), loop.getRegionIterArgs());
  if (!init.empty()) // otherwise the builder has made the terminator
    b.create<scf::YieldOp>(loc, next);
  return loop.getResults();
}

KernelOps::Values KernelOps::ifElse(Value condition, TypeRange results,
                                    llvm::function_ref<Values()> yes,
                                    llvm::function_ref<Values()> no) const {
  auto branch = b.create<scf::IfOp>(loc, results, condition, true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  b.create<scf::YieldOp>(loc, yes());
  b.setInsertionPointToStart(branch.elseBlock());
  b.create<scf::YieldOp>(loc, no());
  return llvm::to_vector_of<Value>(branch.getResults());
}

void KernelOps::ifTrue(Value condition, llvm::function_ref<void()> body) const {
  auto branch = b.create<scf::IfOp>(loc, condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenBlock()->getTerminator());
  body();
}
