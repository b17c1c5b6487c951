#include "compiler/interpreter/Collectives.h"
#include "compiler/interpreter/Evaluators.h"
#include "dialects/dist/DistOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace tessera::dist;
using namespace tessera::interpreter;

using Inputs = ArrayRef<const Tensor *>;
using Results = llvm::Expected<Tensors>;

//===--- cutting and joining --------------------------------------------===//

static Tensor cut(const Tensor &from, int64_t dim, int64_t start,
                  int64_t size) {
  SmallVector<int64_t> shape = from.shape, at;
  shape[dim] = size;
  Tensor piece(shape);
  forEachIndex(piece.shape, [&](ArrayRef<int64_t> i) {
    at.assign(i.begin(), i.end());
    at[dim] += start;
    piece.at(i) = from.at(at);
  });
  return piece;
}

static Tensor joined(ArrayRef<Tensor> pieces, int64_t dim) {
  SmallVector<int64_t> shape = pieces.front().shape;
  shape[dim] = 0;
  for (const Tensor &piece : pieces)
    shape[dim] += piece.shape[dim];
  Tensor whole(shape);
  int64_t start = 0;
  for (const Tensor &piece : pieces) {
    SmallVector<int64_t> at;
    forEachIndex(piece.shape, [&](ArrayRef<int64_t> i) {
      at.assign(i.begin(), i.end());
      at[dim] += start;
      whole.at(at) = piece.at(i);
    });
    start += piece.shape[dim];
  }
  return whole;
}

static llvm::Error requireOneShape(Operation *op, Inputs inputs) {
  for (const Tensor *input : inputs)
    if (input->shape != inputs.front()->shape)
      return fail(op, "devices come with different shapes");
  return llvm::Error::success();
}

static Tensor combined(ReduceKind kind, Inputs inputs) {
  Tensor result = *inputs.front();
  for (const Tensor *input : inputs.drop_front())
    for (auto [sum, value] : llvm::zip_equal(result.data, input->data))
      sum = kind == ReduceKind::sum ? sum + value : std::max(sum, value);
  return result;
}

//===--- collectives ----------------------------------------------------===//

static Results allReduce(AllReduceOp op, Inputs inputs) {
  if (llvm::Error error = requireOneShape(op, inputs))
    return error;
  return Tensors(inputs.size(), combined(op.getKind(), inputs));
}

static Results allGather(AllGatherOp op, Inputs inputs) {
  Tensors pieces;
  for (auto [i, input] : llvm::enumerate(inputs)) {
    int64_t expected = op.getShares() ? (*op.getShares())[i]
                                      : inputs.front()->shape[op.getDim()];
    if (input->shape[op.getDim()] != expected)
      return fail(op, "device " + llvm::Twine(i) + " comes with " +
                          llvm::Twine(input->shape[op.getDim()]) +
                          " entries, its shard has " + llvm::Twine(expected));
    pieces.push_back(*input);
  }
  return Tensors(inputs.size(), joined(pieces, op.getDim()));
}

static Results reduceScatter(ReduceScatterOp op, Inputs inputs) {
  if (llvm::Error error = requireOneShape(op, inputs))
    return error;
  Tensor sum = combined(op.getKind(), inputs);
  Tensors results;
  int64_t start = 0, count = inputs.size();
  for (int64_t i = 0; i < count; ++i) {
    int64_t share =
        op.getShares() ? (*op.getShares())[i] : sum.shape[op.getDim()] / count;
    results.push_back(cut(sum, op.getDim(), start, share));
    start += share;
  }
  return results;
}

static Results allToAll(AllToAllOp op, Inputs inputs) {
  if (llvm::Error error = requireOneShape(op, inputs))
    return error;
  int64_t count = inputs.size(),
          size = inputs.front()->shape[op.getSplitDim()] / count;
  Tensors results;
  for (int64_t to = 0; to < count; ++to) {
    Tensors pieces;
    for (const Tensor *input : inputs)
      pieces.push_back(cut(*input, op.getSplitDim(), to * size, size));
    results.push_back(joined(pieces, op.getJoinDim()));
  }
  return results;
}

static Results permute(PermuteOp op, Inputs inputs) {
  if (llvm::Error error = requireOneShape(op, inputs))
    return error;
  Tensors results(inputs.size(), Tensor(inputs.front()->shape));
  for (auto [from, to] : llvm::enumerate(op.getTargets()))
    if (to >= 0)
      results[to] = *inputs[from];
  return results;
}

namespace {
/// A device's pieces of an exchange of rows: of both halves, sent and received.
struct Pieces {
  std::vector<int64_t> counts[2], firsts[2];

  explicit Pieces(const Tensor &table) {
    size_t rows = table.shape[0], pieces = table.shape[1];
    for (size_t half : {0, 1})
      for (size_t piece = 0, next = 0; piece < pieces; ++piece) {
        size_t row = rows == 4 ? 2 * half : half;
        auto count = static_cast<int64_t>(table.data[row * pieces + piece]);
        counts[half].push_back(count);
        firsts[half].push_back(
            rows == 4
                ? static_cast<int64_t>(table.data[(row + 1) * pieces + piece])
                : static_cast<int64_t>(next));
        next += count;
      }
  }
};
} // namespace

// Copies the rows of one piece.
static llvm::Error movePiece(ExchangeRowsOp op, const Tensor &from,
                             int64_t first, Tensor &to, int64_t place,
                             int64_t count) {
  int64_t width = from.shape[1];
  if (count > 0 && (first < 0 || first + count > from.shape[0] || place < 0 ||
                    place + count > to.shape[0]))
    return fail(op, "a device sends more rows than it has, or than another "
                    "has room for");
  if (count > 0)
    std::copy_n(from.data.begin() + first * width, count * width,
                to.data.begin() + place * width);
  return llvm::Error::success();
}

static RankedTensorType resultTensor(Operation *op) {
  Type type = op->getResult(0).getType();
  if (auto pending = dyn_cast<PendingType>(type))
    return pending.getTensor();
  return cast<RankedTensorType>(type);
}

static Results exchangeRows(ArrayRef<Operation *> ops, Inputs inputs,
                            Inputs counts) {
  auto first = cast<ExchangeRowsOp>(ops.front());
  std::vector<Pieces> tables;
  for (const Tensor *table : counts)
    tables.emplace_back(*table);
  Tensors results;
  for (Operation *op : ops)
    results.emplace_back(resultTensor(op).getShape());
  size_t devices = ops.size(),
         pieces = tables.front().counts[0].size() / devices;
  for (size_t from = 0; from < devices; ++from)
    for (size_t to = 0; to < devices; ++to)
      for (size_t i = 0; i < pieces; ++i) {
        size_t leaving = to * pieces + i, coming = from * pieces + i;
        int64_t count = tables[from].counts[0][leaving],
                expected = tables[to].counts[1][coming];
        if (count < 0 || count != expected)
          return fail(first, "device " + llvm::Twine(from) + " sends " +
                                 llvm::Twine(count) + " rows to device " +
                                 llvm::Twine(to) + ", which expects " +
                                 llvm::Twine(expected));
        if (llvm::Error error =
                movePiece(first, *inputs[from], tables[from].firsts[0][leaving],
                          results[to], tables[to].firsts[1][coming], count))
          return std::move(error);
      }
  return results;
}

// Whether devices execute one collective: what they say of it is the same.
static llvm::Error requireOneOp(ArrayRef<Operation *> ops) {
  for (Operation *op : ops)
    if (op->getName() != ops.front()->getName() ||
        op->getAttrDictionary() != ops.front()->getAttrDictionary())
      return fail(op, "meets another collective, " +
                          ops.front()->getName().getStringRef() +
                          ", or the same with other attributes");
  return llvm::Error::success();
}

Results tessera::interpreter::collect(ArrayRef<Operation *> ops,
                                      ArrayRef<Operands> operands) {
  if (llvm::Error error = requireOneOp(ops))
    return error;
  auto all = [&](size_t i) {
    return llvm::map_to_vector(operands, [&](Operands of) { return of[i]; });
  };
  SmallVector<const Tensor *> inputs = all(0);
  return llvm::TypeSwitch<Operation *, Results>(ops.front())
      .Case([&](AllReduceOp op) { return allReduce(op, inputs); })
      .Case([&](AllGatherOp op) { return allGather(op, inputs); })
      .Case([&](ReduceScatterOp op) { return reduceScatter(op, inputs); })
      .Case([&](AllToAllOp op) { return allToAll(op, inputs); })
      .Case([&](PermuteOp op) { return permute(op, inputs); })
      .Case([&](ExchangeRowsOp) { return exchangeRows(ops, inputs, all(1)); })
      .Default([](Operation *op) { return fail(op, "is not a collective"); });
}
