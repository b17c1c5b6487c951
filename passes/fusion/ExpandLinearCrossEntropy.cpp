#include "dialects/graph/Build.h"
#include "dialects/graph/HeadChunks.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/fusion/Fusion.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

namespace tessera {
#define GEN_PASS_DEF_EXPANDLINEARCROSSENTROPY
#include "passes/fusion/Passes.h.inc"
} // namespace tessera

// A constant weight, as of an adapter's base, has no gradient to add to.
static bool addsToGradient(Operation *op) {
  auto gradient = dyn_cast<LinearCrossEntropyGradOp>(op);
  return gradient && !gradient.getDWeight().use_empty();
}

static int64_t defaultBytes(Operation *op) {
  return headChunkBytes(tensorType(op->getOperand(1)).getNumElements(),
                        addsToGradient(op));
}

// [tokens, ...] → [chunks, tokens / chunks, ...]
static Value cut(Emitter &e, Value x, int64_t chunks) {
  SmallVector<int64_t> shape(shapeOf(x));
  shape[0] /= chunks;
  shape.insert(shape.begin(), chunks);
  return e.reshape(x, shape);
}

static void expand(LinearCrossEntropyOp op, int64_t chunks) {
  OpBuilder builder(op);
  Emitter e(builder, op.getLoc());
  Value inputs = cut(e, op.getInput(), chunks);
  Value targets = cut(e, op.getTargets(), chunks);
  // A sum grows from chunk to chunk; losses of targets each fill their part.
  RankedTensorType all = tensorType(op.getLoss()), one = all;
  const bool isSum = all.getRank() == 0;
  if (!isSum) {
    all = all.clone(shapeOf(targets));
    one = all.clone(shapeOf(targets).drop_front());
  }
  auto loop = builder.create<LoopOp>(
      op.getLoc(), chunks, e.zeros(all),
      [&](OpBuilder &b, Location loc, Value i, ValueRange carried) {
        Emitter inner(b, loc);
        auto chunk = b.create<LinearCrossEntropyOp>(
            loc, one, inner.dynamicSlice(inputs, i), op.getWeight(),
            inner.dynamicSlice(targets, i), op.getIgnoreAttr(),
            op.getCapAttr());
        Value next = isSum ? inner.add(carried[0], chunk.getLoss())
                           : b.create<DynamicUpdateOp>(loc, carried[0],
                                                       chunk.getLoss(), i);
        b.create<YieldOp>(loc, next);
      });
  op.getLoss().replaceAllUsesWith(
      e.reshape(loop.getResult(0), shapeOf(op.getLoss())));
  op.erase();
}

static void expand(LinearCrossEntropyGradOp op, int64_t chunks) {
  OpBuilder builder(op);
  Emitter e(builder, op.getLoc());
  Value inputs = cut(e, op.getInput(), chunks);
  Value targets = cut(e, op.getTargets(), chunks);
  const bool isOne = shapeOf(op.getCotangent()).empty();
  Value cotangents =
      isOne ? op.getCotangent() : cut(e, op.getCotangent(), chunks);
  auto f32 = builder.getF32Type();
  auto weightType = tensorType(op.getDWeight());
  Type sumType = weightType.getElementType().isF64()
                     ? Type(builder.getF64Type())
                     : Type(f32);
  auto sumOfWeights = RankedTensorType::get(weightType.getShape(), sumType);
  SmallVector<int64_t> chunkShape(shapeOf(inputs).drop_front());
  auto chunkType = RankedTensorType::get(
      chunkShape, tensorType(op.getDInput()).getElementType());
  auto allType =
      RankedTensorType::get(shapeOf(inputs), chunkType.getElementType());
  SmallVector<Value> inits{e.zeros(tensorType(op.getLoss())), e.zeros(allType)};
  if (addsToGradient(op))
    inits.push_back(e.zeros(sumOfWeights));
  auto loop = builder.create<LoopOp>(
      op.getLoc(), chunks, inits,
      [&](OpBuilder &b, Location loc, Value i, ValueRange carried) {
        Emitter inner(b, loc);
        auto chunk = b.create<LinearCrossEntropyGradOp>(
            loc, TypeRange{op.getLoss().getType(), chunkType, sumOfWeights},
            inner.dynamicSlice(inputs, i), op.getWeight(),
            inner.dynamicSlice(targets, i),
            isOne ? cotangents : inner.dynamicSlice(cotangents, i),
            op.getIgnoreAttr(), op.getCapAttr());
        SmallVector<Value> next{
            inner.add(carried[0], chunk.getLoss()),
            b.create<DynamicUpdateOp>(loc, carried[1], chunk.getDInput(), i)};
        if (addsToGradient(op))
          next.push_back(inner.add(carried[2], chunk.getDWeight()));
        b.create<YieldOp>(loc, next);
      });
  op.getLoss().replaceAllUsesWith(loop.getResult(0));
  op.getDInput().replaceAllUsesWith(
      e.reshape(loop.getResult(1), shapeOf(op.getInput())));
  if (addsToGradient(op))
    op.getDWeight().replaceAllUsesWith(
        e.convert(loop.getResult(2), weightType.getElementType()));
  op.erase();
}

namespace {

class ExpandLinearCrossEntropyPass
    : public tessera::impl::ExpandLinearCrossEntropyBase<
          ExpandLinearCrossEntropyPass> {
  using ExpandLinearCrossEntropyBase::ExpandLinearCrossEntropyBase;

  void runOnOperation() override {
    SmallVector<Operation *> ops;
    getOperation()->walk([&](Operation *op) {
      if (isa<LinearCrossEntropyOp, LinearCrossEntropyGradOp>(op))
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      int64_t tokens = shapeOf(op->getOperand(0))[0];
      int64_t chunks =
          countHeadChunks(tokens, shapeOf(op->getOperand(1))[0],
                          chunkBytes ? int64_t(chunkBytes) : defaultBytes(op));
      if (chunks == 1)
        continue;
      if (auto loss = dyn_cast<LinearCrossEntropyOp>(op))
        expand(loss, chunks);
      else
        expand(cast<LinearCrossEntropyGradOp>(op), chunks);
    }
  }
};

} // namespace
