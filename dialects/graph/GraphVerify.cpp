// Verifiers of constants, re-indexing, conversions, contractions, reductions,
// gather, scatter and random numbers.
#include "dialects/graph/GraphVerify.h"
#include "dialects/graph/Einsum.h"

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::graph::detail;

//===--- shared checks --------------------------------------------------===//

static std::string text(ArrayRef<int64_t> shape) {
  std::string result = "[";
  for (auto [i, size] : llvm::enumerate(shape))
    result += (i ? ", " : "") + std::to_string(size);
  return result + "]";
}

LogicalResult tessera::graph::detail::expectShape(Operation *op, StringRef what,
                                                  RankedTensorType type,
                                                  ArrayRef<int64_t> shape) {
  if (type.getShape() == shape)
    return success();
  return op->emitOpError() << "expects " << what << " of shape " << text(shape)
                           << ", got " << text(type.getShape());
}

LogicalResult tessera::graph::detail::expectRank(Operation *op, StringRef what,
                                                 RankedTensorType type,
                                                 int64_t rank) {
  if (type.getRank() == rank)
    return success();
  return op->emitOpError() << "expects " << what << " of rank " << rank
                           << ", got " << type;
}

LogicalResult tessera::graph::detail::expectSameElement(
    Operation *op, StringRef firstName, RankedTensorType first,
    StringRef secondName, RankedTensorType second) {
  if (first.getElementType() == second.getElementType())
    return success();
  return op->emitOpError() << "expects one element type for " << firstName
                           << " and " << secondName << ", got "
                           << first.getElementType() << " and "
                           << second.getElementType();
}

LogicalResult tessera::graph::detail::expectSameOrWider(Operation *op,
                                                        StringRef narrowName,
                                                        RankedTensorType narrow,
                                                        StringRef wideName,
                                                        RankedTensorType wide) {
  Type from = narrow.getElementType(), to = wide.getElementType();
  if (from == to || from.getIntOrFloatBitWidth() < to.getIntOrFloatBitWidth())
    return success();
  return op->emitOpError() << "expects " << wideName
                           << " in the element type of " << narrowName
                           << " or a wider one, got " << to << " for " << from;
}

LogicalResult tessera::graph::detail::expectStream(Operation *op,
                                                   int64_t stream) {
  if (llvm::isUInt<32>(stream))
    return success();
  return op->emitOpError() << "expects a stream in [0, 2^32), got " << stream;
}

// Error unless `dims` increases strictly within [0, rank).
static LogicalResult expectDims(Operation *op, ArrayRef<int64_t> dims,
                                int64_t rank) {
  for (auto [i, dim] : llvm::enumerate(dims)) {
    if (dim < 0 || dim >= rank)
      return op->emitOpError()
             << "names dimension " << dim << " of a tensor of rank " << rank;
    if (i && dims[i - 1] >= dim)
      return op->emitOpError()
             << "expects strictly increasing dims, got " << text(dims);
  }
  return success();
}

//===--- constants and conversion ---------------------------------------===//

LogicalResult ConstantOp::verify() {
  if (!isa<DenseIntOrFPElementsAttr>(getValue()))
    return emitOpError("expects dense<...> elements");
  return success();
}

LogicalResult IotaOp::verify() {
  return expectDims(*this, {static_cast<int64_t>(getDim())},
                    getResult().getType().getRank());
}

LogicalResult ConvertOp::verify() {
  Type from = tensorType(getInput()).getElementType();
  Type to = tensorType(getResult()).getElementType();
  if (to.isInteger(1) && from != to)
    return emitOpError() << "cannot convert " << from
                         << " to a boolean; compare with zero instead";
  return success();
}

//===--- re-indexing ----------------------------------------------------===//

// Views keep the element type.
static LogicalResult expectElement(Operation *op, Value input, Value result) {
  return expectSameElement(op, "input", tensorType(input), "result",
                           tensorType(result));
}

LogicalResult ReshapeOp::verify() {
  int64_t from = tensorType(getInput()).getNumElements();
  int64_t to = tensorType(getResult()).getNumElements();
  if (from != to)
    return emitOpError() << "cannot make " << to << " elements of " << from;
  return expectElement(*this, getInput(), getResult());
}

LogicalResult TransposeOp::verify() {
  RankedTensorType input = tensorType(getInput());
  SmallVector<int64_t> sorted(getPermutation());
  llvm::sort(sorted);
  if (!llvm::equal(sorted, llvm::seq<int64_t>(0, input.getRank())))
    return emitOpError() << "expects a permutation of " << input.getRank()
                         << " dimensions, got " << text(getPermutation());
  return success();
}

LogicalResult BroadcastOp::verify() {
  RankedTensorType input = tensorType(getInput()),
                   result = tensorType(getResult());
  ArrayRef<int64_t> dims = getDims();
  if (static_cast<int64_t>(dims.size()) != input.getRank())
    return emitOpError() << "expects one of dims for each of "
                         << input.getRank() << " input dimensions, got "
                         << dims.size();
  if (failed(expectDims(*this, dims, result.getRank())))
    return failure();
  for (auto [i, dim] : llvm::enumerate(dims))
    if (input.getDimSize(i) != result.getDimSize(dim))
      return emitOpError() << "cannot place input dimension " << i
                           << " of size " << input.getDimSize(i)
                           << " in result dimension " << dim << " of size "
                           << result.getDimSize(dim);
  return expectElement(*this, getInput(), getResult());
}

// Error unless `inner` fits into `outer` at `offset`.
static LogicalResult expectBox(Operation *op, StringRef offsetName,
                               ArrayRef<int64_t> offset, RankedTensorType inner,
                               RankedTensorType outer) {
  if (inner.getRank() != outer.getRank())
    return op->emitOpError() << "expects input and result of one rank, got "
                             << inner << " within " << outer;
  if (static_cast<int64_t>(offset.size()) != outer.getRank())
    return op->emitOpError()
           << "expects one " << offsetName << " for each of " << outer.getRank()
           << " dimensions, got " << offset.size();
  for (int64_t i = 0; i < outer.getRank(); ++i)
    // Subtracting avoids the overflow of offset + size.
    if (offset[i] < 0 || offset[i] > outer.getDimSize(i) - inner.getDimSize(i))
      return op->emitOpError()
             << "dimension " << i << ": " << inner.getDimSize(i)
             << " elements from " << offset[i] << " do not fit into "
             << outer.getDimSize(i);
  return success();
}

LogicalResult SliceOp::verify() {
  if (failed(expectBox(*this, "start", getStart(), tensorType(getResult()),
                       tensorType(getInput()))))
    return failure();
  return expectElement(*this, getInput(), getResult());
}

LogicalResult PadOp::verify() {
  if (failed(expectBox(*this, "low", getLow(), tensorType(getInput()),
                       tensorType(getResult()))))
    return failure();
  return expectElement(*this, getInput(), getResult());
}

LogicalResult ConcatOp::verify() {
  if (getInputs().empty())
    return emitOpError("expects at least one input");
  RankedTensorType first = tensorType(getInputs().front());
  int64_t dim = getDim();
  if (failed(expectDims(*this, {dim}, first.getRank())))
    return failure();
  for (Value input : getInputs()) {
    RankedTensorType type = tensorType(input);
    if (failed(expectElement(*this, input, getResult())) ||
        failed(expectRank(*this, "inputs", type, first.getRank())))
      return failure();
    SmallVector<int64_t> expected(first.getShape());
    expected[dim] = type.getDimSize(dim);
    if (failed(expectShape(*this, "an input", type, expected)))
      return failure();
  }
  return success();
}

static LogicalResult expectEntries(Operation *op, Value input) {
  if (tensorType(input).getRank() == 0)
    return op->emitOpError("expects an input of rank 1 or more");
  return success();
}

LogicalResult DynamicSliceOp::verify() {
  return expectEntries(*this, getInput());
}

LogicalResult DynamicUpdateOp::verify() {
  if (failed(expectEntries(*this, getInput())))
    return failure();
  RankedTensorType entry = entryType(getInput()),
                   update = tensorType(getUpdate());
  if (failed(expectShape(*this, "an update", update, entry.getShape())))
    return failure();
  return expectSameElement(*this, "input", entry, "an update", update);
}

//===--- contraction and reduction --------------------------------------===//

LogicalResult EinsumOp::verify() {
  llvm::Expected<Einsum> equation = Einsum::parse(getEquation());
  if (!equation)
    return emitOpError() << llvm::toString(equation.takeError());
  RankedTensorType lhs = tensorType(getLhs()), rhs = tensorType(getRhs());
  for (auto [term, type, what] : {std::tuple(&equation->lhs, lhs, "lhs"),
                                  std::tuple(&equation->rhs, rhs, "rhs")})
    if (static_cast<int64_t>(term->size()) != type.getRank())
      return emitOpError() << "names " << term->size() << " dimensions of its "
                           << what << ", which is " << type;
  for (char letter : equation->summed() + equation->batch()) {
    int64_t left = Einsum::sizeOf(letter, equation->lhs, lhs.getShape());
    int64_t right = Einsum::sizeOf(letter, equation->rhs, rhs.getShape());
    if (left != right)
      return emitOpError() << "dimension '" << std::string(1, letter) << "' is "
                           << left << " in lhs and " << right << " in rhs";
  }
  if (failed(expectSameElement(*this, "lhs", lhs, "rhs", rhs)))
    return failure();
  return expectSameOrWider(*this, "the inputs", lhs, "the result",
                           tensorType(getResult()));
}

LogicalResult ReduceOp::verify() {
  RankedTensorType input = tensorType(getInput());
  if (getDims().empty())
    return emitOpError("expects at least one of dims");
  if (failed(expectDims(*this, getDims(), input.getRank())))
    return failure();
  for (int64_t dim : getDims())
    if (input.getDimSize(dim) == 0 && getKind() != ReduceKind::sum)
      return emitOpError() << "has no " << stringifyReduceKind(getKind())
                           << " of an empty dimension";
  return success();
}

//===--- gather, scatter, random ----------------------------------------===//

LogicalResult EmbeddingOp::verify() {
  return expectRank(*this, "a table", tensorType(getTable()), 2);
}

// Updates are of the shape of rows `ids` of a base [rows, width].
static LogicalResult expectUpdates(RowScatter op) {
  if (failed(expectRank(op, "a base", tensorType(op.getBase()), 2)))
    return failure();
  return expectShape(op, "updates", tensorType(op.getUpdates()),
                     rowsType(op.getBase(), op.getIds()).getShape());
}

LogicalResult ScatterAddOp::verify() {
  if (failed(expectUpdates(*this)))
    return failure();
  return expectSameOrWider(*this, "the updates", tensorType(getUpdates()),
                           "the base", tensorType(getBase()));
}

LogicalResult ScatterRowsOp::verify() {
  if (failed(expectUpdates(*this)))
    return failure();
  return expectSameElement(*this, "updates", tensorType(getUpdates()), "base",
                           tensorType(getBase()));
}

LogicalResult RandomOp::verify() { return expectStream(*this, getStream()); }
