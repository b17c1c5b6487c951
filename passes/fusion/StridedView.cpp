#include "passes/fusion/StridedView.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

static View denseView(Value base) {
  View view{base, 0, SmallVector<int64_t>(tensorType(base).getShape()), {}};
  view.strides.resize(view.shape.size());
  int64_t stride = 1;
  for (size_t i = view.shape.size(); i-- > 0;) {
    view.strides[i] = stride;
    stride *= view.shape[i];
  }
  return view;
}

// The strides of `view` under another shape: each run of new dimensions must be
// within a run of old ones that is evenly strided. Dimensions of size 1 do not
// matter.
static std::optional<View> reshapeView(const View &view,
                                       ArrayRef<int64_t> shape) {
  View result{view.base, view.offset, SmallVector<int64_t>(shape),
              SmallVector<int64_t>(shape.size(), 0)};
  size_t from = view.shape.size(), to = shape.size();
  while (to > 0) {
    // Grow both runs until they have as many elements.
    size_t toEnd = to, fromEnd = from;
    int64_t toCount = shape[--to], fromCount = 1;
    while (fromCount != toCount) {
      if (fromCount < toCount && from > 0)
        fromCount *= view.shape[--from];
      else if (toCount < fromCount && to > 0)
        toCount *= shape[--to];
      else
        return {};
    }
    int64_t stride = 0, expected = -1;
    for (size_t i = fromEnd; i-- > from;) {
      if (view.shape[i] == 1)
        continue;
      if (expected >= 0 && view.strides[i] != expected)
        return {};
      if (expected < 0)
        stride = view.strides[i];
      expected = view.strides[i] * view.shape[i];
    }
    for (size_t i = toEnd; i-- > to;) {
      result.strides[i] = stride;
      stride *= shape[i];
    }
  }
  return result;
}

std::optional<View>
tessera::traceView(Value value, llvm::function_ref<bool(Value)> isBuffer) {
  if (isBuffer(value))
    return denseView(value);
  Operation *op = value.getDefiningOp();
  if (!isa_and_present<ReshapeOp, TransposeOp, BroadcastOp, SliceOp>(op))
    return {};
  std::optional<View> input = traceView(op->getOperand(0), isBuffer);
  if (!input)
    return {};
  View view{input->base,
            input->offset,
            SmallVector<int64_t>(tensorType(value).getShape()),
            {}};
  view.strides.assign(view.shape.size(), 0);
  if (auto reshape = dyn_cast<ReshapeOp>(op))
    return reshapeView(*input, view.shape);
  if (auto transpose = dyn_cast<TransposeOp>(op))
    for (auto [i, dim] : llvm::enumerate(transpose.getPermutation()))
      view.strides[i] = input->strides[dim];
  else if (auto broadcast = dyn_cast<BroadcastOp>(op))
    for (auto [i, dim] : llvm::enumerate(broadcast.getDims()))
      view.strides[dim] = input->strides[i];
  else
    for (auto [i, start] : llvm::enumerate(cast<SliceOp>(op).getStart())) {
      view.strides[i] = input->strides[i];
      view.offset += start * input->strides[i];
    }
  return view;
}
