#include "dialects/graph/Build.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "passes/fusion/Fusion.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

namespace tessera {
#define GEN_PASS_DEF_NORMALIZEREDUCTIONS
#include "passes/fusion/Passes.h.inc"
} // namespace tessera

static bool isEmpty(Value value) {
  return tensorType(value).getNumElements() == 0;
}

// Narrow floats are summed in f32 until the last step.
static Type accumulatorType(Type element) {
  return element.isBF16() || element.isF16()
             ? Type(Float32Type::get(element.getContext()))
             : element;
}

// dims = [..., r-1], not all: the trailing run of reduced dimensions becomes
// one, other reduced dimensions follow in a second step.
static LogicalResult splitReduction(ReduceOp op, PatternRewriter &rewriter) {
  ArrayRef<int64_t> dims = op.getDims();
  ArrayRef<int64_t> shape = tensorType(op.getInput()).getShape();
  int64_t rank = shape.size(), count = dims.size();
  if (count == rank || count == 1 || dims.back() != rank - 1)
    return failure();
  int64_t run = 1;
  while (run < count && dims[count - run - 1] == rank - run - 1)
    ++run;
  Emitter e(rewriter, op.getLoc());
  Type element = tensorType(op.getInput()).getElementType();
  bool two = run < count && op.getKind() == ReduceKind::sum;
  Value x = op.getInput();
  if (two)
    x = e.convert(x, accumulatorType(element));
  if (run > 1) {
    SmallVector<int64_t> merged(shape.drop_back(run));
    int64_t last = 1;
    for (int64_t size : shape.take_back(run))
      last *= size;
    merged.push_back(last);
    x = e.reshape(x, merged);
  }
  x = e.reduce(x, op.getKind(), {rank - run});
  x = e.reduce(x, op.getKind(), dims.drop_back(run));
  rewriter.replaceOp(op, e.convert(x, element));
  return success();
}

// A scatter adds in memory, so memory must have the type of its sums.
static LogicalResult upcastScatter(ScatterAddOp op, PatternRewriter &rewriter) {
  Type element = tensorType(op.getBase()).getElementType();
  if (accumulatorType(element) == element || isEmpty(op.getUpdates()))
    return failure();
  Emitter e(rewriter, op.getLoc());
  rewriter.modifyOpInPlace(op, [&] {
    Value base = e.convert(op.getBase(), accumulatorType(element));
    op.getBaseMutable().assign(base);
    op.getResult().setType(tensorType(base));
  });
  rewriter.setInsertionPointAfter(op);
  Value narrow = e.convert(op.getResult(), element);
  rewriter.replaceAllUsesExcept(op.getResult(), narrow, narrow.getDefiningOp());
  return success();
}

static bool isZeros(Operation *op) {
  return matchPattern(op, m_Zero()) || matchPattern(op, m_PosZeroFloat());
}

// An empty tensor is replaced by zeros, which no kernel has to write.
static LogicalResult dropEmpty(Operation *op, PatternRewriter &rewriter) {
  if (op->getNumResults() == 0 || !isMemoryEffectFree(op) || isa<LoopOp>(op) ||
      isZeros(op) || !llvm::all_of(op->getResults(), isEmpty))
    return failure();
  Emitter e(rewriter, op->getLoc());
  SmallVector<Value> constants;
  for (Value result : op->getResults())
    constants.push_back(e.zeros(tensorType(result)));
  rewriter.replaceOp(op, constants);
  return success();
}

template <typename Op>
static LogicalResult sumOfNothing(Op op, PatternRewriter &rewriter) {
  if (llvm::none_of(op->getOperands(), isEmpty))
    return failure();
  rewriter.replaceOp(
      op, Emitter(rewriter, op.getLoc()).zeros(tensorType(op.getResult())));
  return success();
}

namespace {

struct DropEmpty : RewritePattern {
  DropEmpty(MLIRContext *context)
      : RewritePattern(MatchAnyOpTypeTag(), 1, context) {}
  LogicalResult matchAndRewrite(Operation *op,
                                PatternRewriter &rewriter) const override {
    return dropEmpty(op, rewriter);
  }
};

class NormalizeReductionsPass
    : public tessera::impl::NormalizeReductionsBase<NormalizeReductionsPass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<DropEmpty>(&getContext());
    patterns.add(splitReduction);
    patterns.add(upcastScatter);
    patterns.add(sumOfNothing<ReduceOp>);
    patterns.add(sumOfNothing<EinsumOp>);
    patterns.add(sumOfNothing<GroupedMatmulOp>);
    patterns.add(sumOfNothing<GroupedOuterOp>);
    patterns.add(+[](PadOp op, PatternRewriter &rewriter) {
      return sumOfNothing(op, rewriter);
    });
    patterns.add(+[](ScatterAddOp op, PatternRewriter &rewriter) {
      if (!isEmpty(op.getUpdates()))
        return failure();
      rewriter.replaceOp(op, op.getBase());
      return success();
    });
    patterns.add(+[](ConcatOp op, PatternRewriter &rewriter) {
      SmallVector<Value> inputs;
      llvm::copy_if(op.getInputs(), std::back_inserter(inputs),
                    [](Value input) { return !isEmpty(input); });
      if (inputs.empty() || inputs.size() == op.getInputs().size())
        return failure();
      rewriter.modifyOpInPlace(op,
                               [&] { op.getInputsMutable().assign(inputs); });
      return success();
    });
    if (failed(
            applyPatternsAndFoldGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
