// Constants and re-indexing.
#include "compiler/interpreter/Evaluators.h"
#include "dialects/graph/GraphOps.h"

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::interpreter;

using Result = llvm::Expected<Tensor>;

static Result evaluateConstant(ConstantOp op, Operands) {
  auto elements = cast<DenseElementsAttr>(op.getValue());
  Tensor result(resultShape(op));
  Type type = elements.getElementType();
  bool zeroExtended = type.isInteger(1) || type.isUnsignedInteger();
  size_t i = 0;
  if (isa<FloatType>(type))
    for (const APFloat &value : elements.getValues<APFloat>())
      result.data[i++] = value.convertToDouble();
  else
    for (const APInt &value : elements.getValues<APInt>())
      result.data[i++] = zeroExtended
                             ? static_cast<double>(value.getZExtValue())
                             : static_cast<double>(value.getSExtValue());
  return result;
}

static Result evaluateIota(IotaOp op, Operands) {
  Tensor result(resultShape(op));
  forEachIndex(result.shape, [&](ArrayRef<int64_t> i) {
    result.at(i) = static_cast<double>(i[op.getDim()]);
  });
  return result;
}

static Result evaluateReshape(ReshapeOp op, Operands in) {
  return Tensor(resultShape(op), in[0]->data);
}

static Result evaluateTranspose(TransposeOp op, Operands in) {
  Tensor result(resultShape(op));
  SmallVector<int64_t> from(result.shape.size());
  forEachIndex(result.shape, [&](ArrayRef<int64_t> i) {
    for (auto [dim, source] : llvm::enumerate(op.getPermutation()))
      from[source] = i[dim];
    result.at(i) = in[0]->at(from);
  });
  return result;
}

static Result evaluateBroadcast(BroadcastOp op, Operands in) {
  Tensor result(resultShape(op));
  SmallVector<int64_t> from(in[0]->shape.size());
  forEachIndex(result.shape, [&](ArrayRef<int64_t> i) {
    for (auto [source, dim] : llvm::enumerate(op.getDims()))
      from[source] = i[dim];
    result.at(i) = in[0]->at(from);
  });
  return result;
}

static SmallVector<int64_t> plus(ArrayRef<int64_t> a, ArrayRef<int64_t> b) {
  SmallVector<int64_t> sum(a);
  for (size_t dim = 0; dim < sum.size(); ++dim)
    sum[dim] += b[dim];
  return sum;
}

static Result evaluateSlice(SliceOp op, Operands in) {
  Tensor result(resultShape(op));
  forEachIndex(result.shape, [&](ArrayRef<int64_t> i) {
    result.at(i) = in[0]->at(plus(i, op.getStart()));
  });
  return result;
}

static Result evaluatePad(PadOp op, Operands in) {
  Tensor result(resultShape(op));
  forEachIndex(in[0]->shape, [&](ArrayRef<int64_t> i) {
    result.at(plus(i, op.getLow())) = in[0]->at(i);
  });
  return result;
}

static Result evaluateConcat(ConcatOp op, Operands in) {
  Tensor result(resultShape(op));
  SmallVector<int64_t> start(result.shape.size(), 0);
  for (const Tensor *input : in) {
    forEachIndex(input->shape, [&](ArrayRef<int64_t> i) {
      result.at(plus(i, start)) = input->at(i);
    });
    start[op.getDim()] += input->shape[op.getDim()];
  }
  return result;
}

// The range of elements of entry `index` of the first dimension.
static llvm::Expected<int64_t> entryOffset(Operation *op, const Tensor &whole,
                                           const Tensor &index, int64_t entry) {
  auto i = static_cast<int64_t>(index.data[0]);
  if (i < 0 || i >= whole.shape[0])
    return fail(op, "index " + llvm::Twine(i) +
                        " is outside the first dimension of " +
                        llvm::Twine(whole.shape[0]));
  return i * entry;
}

static Result evaluateDynamicSlice(DynamicSliceOp op, Operands in) {
  Tensor result(resultShape(op));
  llvm::Expected<int64_t> offset =
      entryOffset(op, *in[0], *in[1], result.size());
  if (!offset)
    return offset.takeError();
  std::copy_n(in[0]->data.begin() + *offset, result.size(),
              result.data.begin());
  return result;
}

static Result evaluateDynamicUpdate(DynamicUpdateOp op, Operands in) {
  Tensor result = *in[0];
  llvm::Expected<int64_t> offset =
      entryOffset(op, result, *in[2], in[1]->size());
  if (!offset)
    return offset.takeError();
  std::copy(in[1]->data.begin(), in[1]->data.end(),
            result.data.begin() + *offset);
  return result;
}

void tessera::interpreter::addShapeEvaluators(EvaluatorTable &table) {
  table.add(evaluateConstant);
  table.add(evaluateIota);
  table.add(evaluateReshape);
  table.add(evaluateTranspose);
  table.add(evaluateBroadcast);
  table.add(evaluateSlice);
  table.add(evaluatePad);
  table.add(evaluateConcat);
  table.add(evaluateDynamicSlice);
  table.add(evaluateDynamicUpdate);
}
