#include "passes/fusion/ClusterExpression.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/fusion/Fusion.h"
#include "llvm/Support/raw_ostream.h"
#include <map>

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

// More boxes than this are a sign of a cluster that should be several.
static constexpr size_t kMaxPieces = 64;
static constexpr size_t kMaxRank = 64;
// An exponential, logarithm or the like of one element, in additions.
static constexpr int64_t kPolynomialCost = 12;

namespace {

// Follows values back from the results to the arguments, within one box.
class BodyReader {
public:
  BodyReader(ExprPiece &piece, const ExpressionOptions &options)
      : piece(piece), options(options) {}

  std::optional<unsigned> build(Value value, const Linear &at);

  Linear reduced; ///< index among the reduced elements
  std::optional<Division> wanted;
  Operation *culprit = nullptr;

private:
  std::optional<unsigned> make(Value value, const Linear &at);
  std::optional<unsigned> visit(ReduceOp op, const Linear &at);
  std::optional<unsigned> visit(EmbeddingOp op, const Linear &at);
  std::optional<unsigned> visit(ConcatOp op, const Linear &at);
  std::optional<unsigned> visit(PadOp op, const Linear &at);
  std::optional<unsigned> visit(RandomOp op, const Linear &at);
  /// The node of a view's input, given how its indices follow from the
  /// result's.
  std::optional<unsigned>
  view(Operation *op, const Linear &at,
       llvm::function_ref<void(ArrayRef<Linear>, MutableArrayRef<Linear>)> map);
  std::optional<SmallVector<Linear>> indices(Value value, const Linear &at) {
    return delinearize(at, tensorType(value).getShape(), piece.sizes, wanted);
  }
  unsigned add(ExprNode node) {
    piece.nodes.push_back(std::move(node));
    return piece.nodes.size() - 1;
  }
  bool dependsOnReduced(const Linear &at) const {
    for (size_t k = piece.rank() - piece.groups.back(); k < piece.rank(); ++k)
      if (piece.sizes[k] > 1 && at.dependsOn(k))
        return true;
    return false;
  }

  ExprPiece &piece;
  const ExpressionOptions &options;
  std::map<std::pair<void *, std::vector<int64_t>>, unsigned> made;
};

} // namespace

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
  if (isa<Elementwise>(op)) {
    ExprNode node(ExprNode::elementwise, element, op);
    for (Value operand : op->getOperands()) {
      std::optional<unsigned> index = build(operand, at);
      if (!index)
        return {};
      node.operands.push_back(*index);
    }
    return add(std::move(node));
  }
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
  // All lanes of a tile read one row.
  if (piece.sizes.back() > 1 && (*index)[0].dependsOn(piece.rank() - 1))
    return {};
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

//===--- the space --------------------------------------------------------===//

namespace {

// A box still to be built: its sizes, and the indices of kept and reduced
// elements over it.
struct Box {
  SmallVector<int64_t> sizes;
  SmallVector<unsigned> groups;
  SmallVector<Linear> index; ///< within each group
};

struct Extent {
  int64_t kept = 0, reduced = 0; ///< elements; reduced is 0 without reductions
};

} // namespace

static llvm::Error notTileable(Operation *op, const llvm::Twine &why) {
  std::string text;
  llvm::raw_string_ostream(text) << op->getLoc();
  return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                 llvm::Twine(op->getName().getStringRef()) +
                                     " at " + text + " " + why);
}

static llvm::Expected<Extent> findExtent(ClusterOp cluster,
                                         const ExpressionOptions &options) {
  Extent extent;
  extent.kept = tensorType(cluster.getResult(0)).getNumElements();
  if (!options.groups.empty()) {
    extent.kept = 1;
    for (int64_t size : options.groups)
      extent.kept *= size;
  }
  bool found = false;
  for (ReduceOp op : cluster.getBody().front().getOps<ReduceOp>()) {
    if (llvm::is_contained(options.given, op.getResult()))
      continue;
    int64_t kept = tensorType(op.getResult()).getNumElements();
    int64_t all = tensorType(op.getInput()).getNumElements();
    int64_t reduced = kept ? all / kept : 0;
    if (found && (kept != extent.kept || reduced != extent.reduced))
      return notTileable(op, "reduces another shape than its cluster");
    extent = {kept, reduced};
    found = true;
  }
  if (extent.kept == 0 || (found && extent.reduced == 0))
    return notTileable(cluster, "has no elements");
  return extent;
}

// Divides `box` as `division` says; parts go back to the work list.
static void divideBox(const Box &box, const Division &division,
                      SmallVectorImpl<Box> &work) {
  int parts = division.kind == Division::cut ? 2 : 1;
  for (int part = parts - 1; part >= 0; --part) {
    Box next{divide(box.sizes, division, part), box.groups, {}};
    for (const Linear &index : box.index)
      next.index.push_back(divide(index, division, part));
    if (division.kind == Division::split) {
      unsigned group = 0, end = box.groups[0];
      while (division.dim >= end)
        end += box.groups[++group];
      ++next.groups[group];
    }
    work.push_back(std::move(next));
  }
}

// Whether `division` cuts the reduced group, which must stay whole.
static bool cutsReduced(const Box &box, const Division &division,
                        bool hasReduced) {
  return hasReduced && division.kind == Division::cut &&
         division.dim >= box.sizes.size() - box.groups.back();
}

//===--- collapsing -------------------------------------------------------===//

template <typename Fn> static void forEachForm(ExprPiece &piece, Fn fn) {
  for (ExprNode &node : piece.nodes)
    if (!node.address.coefficients.empty())
      fn(node.address);
  for (ExprPiece::Root &root : piece.roots)
    fn(root.address);
}

// Makes one dimension of `dim` and the next one where every form allows it.
static bool mergeDims(ExprPiece &piece, unsigned dim) {
  int64_t outer = piece.sizes[dim], inner = piece.sizes[dim + 1];
  bool fits = true;
  forEachForm(piece, [&](Linear &form) {
    int64_t a = form.coefficients[dim], b = form.coefficients[dim + 1];
    fits &= outer == 1 || inner == 1 || a == b * inner;
  });
  if (!fits)
    return false;
  forEachForm(piece, [&](Linear &form) {
    auto *at = form.coefficients.begin() + dim;
    // The merged step is that of the dimension which really advances.
    at[1] = inner == 1 ? at[0] : at[1];
    form.coefficients.erase(at);
  });
  piece.sizes[dim + 1] = outer * inner;
  piece.sizes.erase(piece.sizes.begin() + dim);
  return true;
}

static void collapse(ExprPiece &piece) {
  unsigned begin = 0;
  for (unsigned &count : piece.groups) {
    for (unsigned dim = begin; dim + 1 < begin + count;)
      if (mergeDims(piece, dim))
        --count;
      else
        ++dim;
    begin += count;
  }
}

static void findDims(ExprPiece &piece) {
  uint64_t keptDims = 0;
  for (unsigned k = 0; k < piece.rank() - piece.groups.back(); ++k)
    keptDims |= uint64_t(1) << k;
  for (ExprNode &node : piece.nodes) {
    for (unsigned k = 0; k < node.address.coefficients.size(); ++k)
      if (piece.sizes[k] > 1 && node.address.dependsOn(k))
        node.dims |= uint64_t(1) << k;
    for (unsigned operand : node.operands)
      node.dims |= piece.nodes[operand].dims;
    // A reduction's result belongs to the level of its row, and what a skeleton
    // gives to the level where it has it, even if all dimensions have size 1.
    if (node.kind == ExprNode::reduce)
      node.dims = keptDims;
    else if (node.kind == ExprNode::given)
      node.dims = ~uint64_t(0) >> (64 - piece.rank());
  }
}

//===--- entry ------------------------------------------------------------===//

static Box wholeBox(const Extent &extent, const ExpressionOptions &options) {
  Box box;
  box.sizes = options.groups;
  if (box.sizes.empty())
    box.sizes.push_back(extent.kept);
  if (extent.reduced)
    box.sizes.push_back(extent.reduced);
  unsigned rank = box.sizes.size();
  box.groups.assign(rank, 1);
  for (unsigned k = 0; k < rank; ++k)
    box.index.push_back(Linear::index(k, rank));
  return box;
}

// The place of a value with so many elements: an index over the first groups.
static std::optional<Linear> placeOf(int64_t elements, const Box &box,
                                     ArrayRef<int64_t> groupSizes) {
  Linear at = Linear::zero(box.sizes.size());
  int64_t covered = 1;
  for (auto [index, size] : llvm::zip_equal(box.index, groupSizes)) {
    if (covered == elements && size != 1)
      break;
    at = at * size + index;
    covered *= size;
  }
  if (covered != elements)
    return {};
  return at;
}

// Builds the roots of one box. False with `builder.wanted` set where the box
// must be divided first.
static bool buildRoots(ArrayRef<Value> roots, const Box &box,
                       ArrayRef<int64_t> groupSizes, ExprPiece &piece,
                       BodyReader &builder) {
  for (Value value : roots) {
    std::optional<Linear> at =
        placeOf(tensorType(value).getNumElements(), box, groupSizes);
    if (!at) {
      builder.culprit = value.getDefiningOp();
      return false;
    }
    std::optional<unsigned> node = builder.build(value, *at);
    if (!node)
      return false;
    piece.roots.push_back({*node, *at});
  }
  return true;
}

llvm::Expected<ClusterExpression>
tessera::buildExpression(ClusterOp cluster, const ExpressionOptions &options) {
  llvm::Expected<Extent> extent = findExtent(cluster, options);
  if (!extent)
    return extent.takeError();
  ClusterExpression expression;
  expression.reduced = extent->reduced;
  SmallVector<Value> roots = options.roots;
  if (roots.empty())
    llvm::append_range(roots, cluster.getYield().getValues());
  SmallVector<Box> work{wholeBox(*extent, options)};
  SmallVector<int64_t> groupSizes = work.front().sizes;
  while (!work.empty()) {
    Box box = work.pop_back_val();
    ExprPiece piece;
    piece.sizes = box.sizes;
    piece.groups = box.groups;
    BodyReader builder(piece, options);
    builder.reduced = box.index.back();
    if (buildRoots(roots, box, groupSizes, piece, builder)) {
      collapse(piece);
      findDims(piece);
      expression.pieces.push_back(std::move(piece));
      continue;
    }
    Operation *culprit = builder.culprit ? builder.culprit : cluster;
    if (!builder.wanted)
      return notTileable(culprit, "cannot be computed in place in its cluster");
    if (cutsReduced(box, *builder.wanted, extent->reduced) ||
        expression.pieces.size() + work.size() >= kMaxPieces ||
        box.sizes.size() >= kMaxRank)
      return notTileable(culprit, "cuts its cluster into too many pieces");
    divideBox(box, *builder.wanted, work);
  }
  return expression;
}

ExpressionOptions tessera::scatterExpression(ScatterAddOp scatter) {
  ExpressionOptions options;
  options.roots = {scatter.getUpdates(), scatter.getIds()};
  options.groups = {tensorType(scatter.getIds()).getNumElements(),
                    tensorType(scatter.getBase()).getDimSize(1)};
  return options;
}

//===--- properties -------------------------------------------------------===//

bool tessera::saysWhatIsComputed(Operation *op, NamedAttribute attr) {
  return op->getInherentAttr(attr.getName()).has_value();
}

static void print(llvm::raw_ostream &os, const Linear &form) {
  os << form.constant;
  for (int64_t c : form.coefficients)
    os << '+' << c;
}

// Types and attributes are unique in their context: their addresses stand for
// them, at a hundredth of the cost of printing.
static void print(llvm::raw_ostream &os, const ExprNode &node) {
  os << node.kind << ':' << node.element.getAsOpaquePointer() << ' ';
  if (node.kind == ExprNode::load || node.kind == ExprNode::given)
    os << '#' << node.argument << '*' << node.rowStride;
  else if (node.op && node.kind != ExprNode::index) {
    os << node.op->getName().getAsOpaquePointer();
    for (NamedAttribute attr : node.op->getAttrs())
      if (node.kind != ExprNode::constant && saysWhatIsComputed(node.op, attr))
        os << ' ' << attr.getName().getAsOpaquePointer() << '='
           << attr.getValue().getAsOpaquePointer();
    // With an offset, an element's place within the batch depends on the shape.
    if (node.kind == ExprNode::random && node.operands.size() > 2)
      os << ' ' << node.op->getResult(0).getType().getAsOpaquePointer();
    if (node.kind == ExprNode::constant)
      os << ' '
         << cast<DenseElementsAttr>(cast<ConstantOp>(node.op).getValue())
                .getSplatValue<Attribute>()
                .getAsOpaquePointer();
  }
  for (unsigned operand : node.operands)
    os << " %" << operand;
  if (!node.address.coefficients.empty()) {
    os << " @";
    print(os, node.address);
  }
  os << '\n';
}

std::string ClusterExpression::key() const {
  std::string text;
  llvm::raw_string_ostream os(text);
  for (const ExprPiece &piece : pieces) {
    os << "box";
    for (int64_t size : piece.sizes)
      os << ' ' << size;
    os << " groups";
    for (unsigned group : piece.groups)
      os << ' ' << group;
    os << '\n';
    for (const ExprNode &node : piece.nodes)
      print(os, node);
    for (const ExprPiece::Root &root : piece.roots) {
      os << "root %" << root.node << " @";
      print(os, root.address);
      os << '\n';
    }
  }
  return text;
}

// What an element of an elementwise op costs, by the formula that it emits.
static int64_t formulaCost(Elementwise op) {
  Block block;
  OpBuilder builder(op->getContext());
  builder.setInsertionPointToEnd(&block);
  for (Type type : op->getOperandTypes()) {
    Type element = getElementTypeOrSelf(type);
    if (isa<FloatType>(element) && element.getIntOrFloatBitWidth() < 32)
      element = builder.getF32Type();
    else if (auto integer = dyn_cast<IntegerType>(element))
      element = builder.getIntegerType(integer.getWidth());
    block.addArgument(element, op->getLoc());
  }
  op.emitScalar(builder, block.getArguments());
  int64_t cost = 0;
  for (Operation &it : block) {
    if (isa<arith::DivFOp, math::SqrtOp, math::RsqrtOp>(it))
      cost += 4;
    else if (isa<math::MathDialect>(it.getDialect()) && !isa<math::AbsFOp>(it))
      cost += kPolynomialCost;
    else if (!it.hasTrait<OpTrait::ConstantLike>())
      ++cost;
  }
  // A polynomial hides most of what surrounds it.
  return std::clamp<int64_t>(cost, 1, kPolynomialCost);
}

int64_t tessera::nodeCost(const ExprNode &node) {
  switch (node.kind) {
  case ExprNode::constant:
  case ExprNode::zero:
  case ExprNode::given:
    return 0;
  case ExprNode::load:
  case ExprNode::index:
    return 1;
  case ExprNode::random:
    return 20;
  case ExprNode::reduce:
    return 0;
  case ExprNode::elementwise:
    break;
  }
  auto elementwise = dyn_cast<Elementwise>(node.op);
  return elementwise ? formulaCost(elementwise) : 1;
}
