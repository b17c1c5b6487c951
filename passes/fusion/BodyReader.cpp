#include "passes/fusion/BodyReader.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

static Type elementOf(Value value) {
  return tensorType(value).getElementType();
}

std::optional<unsigned> BodyReader::build(Value value, const Linear &at) {
  std::vector<int64_t> place(at.coefficients.begin(), at.coefficients.end());
  place.push_back(at.constant);
  auto key = std::pair(value.getAsOpaquePointer(), std::move(place));
  if (auto it = made.find(key); it != made.end())
    return it->second;
  std::optional<unsigned> node = make(value, at);
  if (node)
    made.emplace(std::move(key), *node);
  else if (!culprit)
    culprit = value.getDefiningOp();
  return node;
}

std::optional<unsigned> BodyReader::make(Value value, const Linear &at) {
  Type element = elementOf(value);
  if (auto *it = llvm::find(options.given, value); it != options.given.end())
    return add({ExprNode::given,
                element,
                value.getDefiningOp(),
                {},
                static_cast<unsigned>(it - options.given.begin()),
                at});
  if (auto argument = dyn_cast<BlockArgument>(value))
    return add(
        {ExprNode::load, element, nullptr, {}, argument.getArgNumber(), at});
  Operation *op = value.getDefiningOp();
  if (isa<Elementwise>(op))
    return makeElementwise(op, at);
  return llvm::TypeSwitch<Operation *, std::optional<unsigned>>(op)
      .Case([&](ConstantOp constant) -> std::optional<unsigned> {
        if (!cast<DenseElementsAttr>(constant.getValue()).isSplat())
          return {};
        return add({ExprNode::constant, element, op});
      })
      .Case([&](IotaOp iota) -> std::optional<unsigned> {
        auto index = indices(value, at);
        if (!index)
          return {};
        ExprNode node{ExprNode::index, element, op};
        node.address = (*index)[iota.getDim()];
        return add(std::move(node));
      })
      .Case([&](ReshapeOp reshape) { return build(reshape.getInput(), at); })
      .Case([&](TransposeOp transpose) {
        return view(op, at, [&](auto from, auto to) {
          for (auto [i, dim] : llvm::enumerate(transpose.getPermutation()))
            to[dim] = from[i];
        });
      })
      .Case([&](BroadcastOp broadcast) {
        return view(op, at, [&](auto from, auto to) {
          for (auto [i, dim] : llvm::enumerate(broadcast.getDims()))
            to[i] = from[dim];
        });
      })
      .Case([&](SliceOp slice) {
        return view(op, at, [&](auto from, auto to) {
          for (auto [i, start] : llvm::enumerate(slice.getStart())) {
            to[i] = from[i];
            to[i].constant += start;
          }
        });
      })
      .Case<ReduceOp, EmbeddingOp, ConcatOp, PadOp, RandomOp>(
          [&](auto concrete) { return visit(concrete, at); })
      .Default([](Operation *) -> std::optional<unsigned> { return {}; });
}

std::optional<unsigned> BodyReader::makeElementwise(Operation *op,
                                                    const Linear &at) {
  ExprNode node(ExprNode::elementwise, elementOf(op->getResult(0)), op);
  for (Value operand : op->getOperands()) {
    std::optional<unsigned> index = build(operand, at);
    if (!index)
      return {};
    node.operands.push_back(*index);
  }
  return add(std::move(node));
}

std::optional<unsigned> BodyReader::view(
    Operation *op, const Linear &at,
    llvm::function_ref<void(ArrayRef<Linear>, MutableArrayRef<Linear>)> map) {
  auto from = indices(op->getResult(0), at);
  if (!from)
    return {};
  ArrayRef<int64_t> shape = tensorType(op->getOperand(0)).getShape();
  SmallVector<Linear> to(shape.size(), Linear::zero(piece.rank()));
  map(*from, to);
  return build(op->getOperand(0), linearize(to, shape, piece.rank()));
}

std::optional<unsigned> BodyReader::visit(ConcatOp op, const Linear &at) {
  auto index = indices(op.getResult(), at);
  if (!index)
    return {};
  int64_t dim = op.getDim(), end = 0;
  SmallVector<int64_t> ends;
  for (Value input : op.getInputs())
    ends.push_back(end += tensorType(input).getDimSize(dim));
  std::optional<unsigned> part =
      findPart((*index)[dim], ends, piece.sizes, wanted);
  if (!part)
    return {};
  Value input = op.getInputs()[*part];
  (*index)[dim].constant -= *part ? ends[*part - 1] : 0;
  return build(input,
               linearize(*index, tensorType(input).getShape(), piece.rank()));
}

std::optional<unsigned> BodyReader::visit(PadOp op, const Linear &at) {
  auto index = indices(op.getResult(), at);
  if (!index)
    return {};
  ArrayRef<int64_t> shape = tensorType(op.getInput()).getShape();
  for (auto [i, low] : llvm::enumerate(op.getLow())) {
    int64_t ends[] = {low, low + shape[i],
                      tensorType(op.getResult()).getDimSize(i)};
    std::optional<unsigned> part =
        findPart((*index)[i], ends, piece.sizes, wanted);
    if (!part)
      return {};
    if (*part != 1)
      return add({ExprNode::zero, elementOf(op.getResult())});
    (*index)[i].constant -= low;
  }
  return build(op.getInput(), linearize(*index, shape, piece.rank()));
}

std::optional<unsigned> BodyReader::visit(RandomOp op, const Linear &at) {
  ExprNode node{ExprNode::random, elementOf(op.getResult()), op};
  node.address = at;
  for (Value operand : op->getOperands()) {
    std::optional<unsigned> index = build(operand, Linear::zero(piece.rank()));
    if (!index)
      return {};
    node.operands.push_back(*index);
  }
  return add(std::move(node));
}

std::optional<unsigned> BodyReader::visit(EmbeddingOp op, const Linear &at) {
  auto table = dyn_cast<BlockArgument>(op.getTable());
  if (!table)
    return {};
  int64_t width = tensorType(table).getDimSize(1);
  int64_t ids[] = {tensorType(op.getIds()).getNumElements(), width};
  auto index = delinearize(at, ids, piece.sizes, wanted);
  if (!index)
    return {};
  // All lanes of a tile read one row; a row of one element makes such tiles
  // narrow.
  unsigned last = piece.rank() - 1;
  if (piece.sizes[last] > 1 && (*index)[0].dependsOn(last)) {
    if (width == 1)
      wanted = Division{Division::split, last, 1};
    return {};
  }
  std::optional<unsigned> row = build(op.getIds(), (*index)[0]);
  if (!row)
    return {};
  return add({ExprNode::load,
              elementOf(table),
              op,
              {*row},
              table.getArgNumber(),
              (*index)[1],
              width});
}

std::optional<unsigned> BodyReader::visit(ReduceOp op, const Linear &at) {
  ArrayRef<int64_t> shape = tensorType(op.getInput()).getShape();
  if (dependsOnReduced(at))
    return {};
  SmallVector<int64_t> reducedShape;
  for (int64_t dim : op.getDims())
    reducedShape.push_back(shape[dim]);
  auto kept = indices(op.getResult(), at);
  if (!kept)
    return {};
  auto summed = delinearize(reduced, reducedShape, piece.sizes, wanted);
  if (!summed)
    return {};
  SmallVector<Linear> index;
  const Linear *nextKept = kept->begin(), *nextSummed = summed->begin();
  for (size_t dim = 0; dim < shape.size(); ++dim)
    index.push_back(llvm::is_contained(op.getDims(), static_cast<int64_t>(dim))
                        ? *nextSummed++
                        : *nextKept++);
  std::optional<unsigned> operand =
      build(op.getInput(), linearize(index, shape, piece.rank()));
  if (!operand)
    return {};
  return add({ExprNode::reduce, elementOf(op.getResult()), op, {*operand}});
}
