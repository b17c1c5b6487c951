#include "passes/kernels/KernelOps.h"

using namespace mlir;
using namespace tessera;

Value KernelOps::index(int64_t value) const {
  return b.create<arith::ConstantIndexOp>(loc, value);
}

Value KernelOps::add(Value x, Value y) const {
  return b.createOrFold<arith::AddIOp>(loc, x, y);
}
Value KernelOps::sub(Value x, Value y) const {
  return b.createOrFold<arith::SubIOp>(loc, x, y);
}
Value KernelOps::mul(Value x, int64_t y) const {
  return b.createOrFold<arith::MulIOp>(loc, x, index(y));
}
Value KernelOps::div(Value x, int64_t y) const {
  return b.createOrFold<arith::DivUIOp>(loc, x, index(y));
}
Value KernelOps::rem(Value x, int64_t y) const {
  return b.createOrFold<arith::RemUIOp>(loc, x, index(y));
}
Value KernelOps::min(Value x, Value y) const {
  return b.createOrFold<arith::MinSIOp>(loc, x, y);
}
Value KernelOps::max(Value x, Value y) const {
  return b.createOrFold<arith::MaxSIOp>(loc, x, y);
}
Value KernelOps::compare(arith::CmpIPredicate predicate, Value x,
                         Value y) const {
  return b.create<arith::CmpIOp>(loc, predicate, x, y);
}

Value KernelOps::splat(double value, ArrayRef<int64_t> shape) const {
  auto type = VectorType::get(shape, b.getF32Type());
  return b.create<arith::ConstantOp>(
      loc, DenseElementsAttr::get(type, static_cast<float>(value)));
}

void KernelOps::forRange(Value begin, Value end, int64_t step,
                         llvm::function_ref<void(Value)> body) const {
  forRange(begin, end, step, ValueRange(), [&](Value i, ValueRange) {
    body(i);
    return Values();
  });
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
