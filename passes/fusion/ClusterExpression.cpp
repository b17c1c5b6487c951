// The iteration space of a cluster's expression.
#include "passes/fusion/ClusterExpression.h"
#include "passes/fusion/BodyReader.h"
#include "passes/fusion/PaddedRows.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

// More boxes than this indicate a cluster that should be several.
static constexpr size_t kMaxPieces = 64;
static constexpr size_t kMaxRank = 64;

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
  return llvm::createStringError(llvm::Twine(op->getName().getStringRef()) +
                                 " at " + text + " " + why);
}

static llvm::Expected<Extent> findExtent(ClusterOp cluster,
                                         const ExpressionOptions &options) {
  Extent extent;
  Value first = withoutPadding(cluster.getYield().getValues()[0]);
  extent.kept = tensorType(first).getNumElements();
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

// Divides `box` as `division` says; the parts return to the work list.
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

// Whether `division` divides the reduced group, which must stay whole.
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
    // The merged step is that of the dimension that advances.
    at[1] = inner == 1 ? at[0] : at[1];
    form.coefficients.erase(at);
  });
  piece.sizes[dim + 1] = outer * inner;
  piece.sizes.erase(piece.sizes.begin() + dim);
  return true;
}

static void collapse(ExprPiece &piece) {
  // A last dimension of one may be there to keep the lanes of a tile in one
  // gathered row.
  bool gathers = llvm::any_of(
      piece.nodes, [](const ExprNode &node) { return node.rowStride == 1; });
  unsigned begin = 0;
  for (unsigned &count : piece.groups) {
    for (unsigned dim = begin; dim + 1 < begin + count;)
      if (!(gathers && dim + 2 == piece.rank()) && mergeDims(piece, dim))
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
    // A reduction's result belongs to the level of its row, and a given value
    // to the level at which the skeleton has it, even if all dimensions have
    // size 1.
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

// The index of a value with so many elements, over the first groups.
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

// The offset of element `at` of the rows in a buffer of padded rows.
static std::optional<Linear> offsetInPadded(const Linear &at, PadOp pad,
                                            ArrayRef<int64_t> sizes,
                                            std::optional<Division> &wanted) {
  auto indices =
      delinearize(at, tensorType(pad.getInput()).getShape(), sizes, wanted);
  if (!indices)
    return {};
  return linearize(*indices, tensorType(pad.getResult()).getShape(),
                   sizes.size());
}

// Builds the roots of one box. False with `builder.wanted` set where the box
// must be divided first.
static bool buildRoots(ArrayRef<Value> roots, const Box &box,
                       ArrayRef<int64_t> groupSizes, ExprPiece &piece,
                       BodyReader &builder) {
  for (Value root : roots) {
    Value value = withoutPadding(root);
    std::optional<Linear> at =
        placeOf(tensorType(value).getNumElements(), box, groupSizes);
    if (!at) {
      builder.culprit = value.getDefiningOp();
      return false;
    }
    std::optional<unsigned> node = builder.build(value, *at);
    if (!node)
      return false;
    if (PadOp pad = paddedRows(root))
      at = offsetInPadded(*at, pad, piece.sizes, builder.wanted);
    if (!at)
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
      return notTileable(culprit, "divides its cluster into too many pieces");
    divideBox(box, *builder.wanted, work);
  }
  return expression;
}

ExpressionOptions tessera::scatterExpression(RowScatter scatter) {
  ExpressionOptions options;
  options.roots = {scatter.getUpdates(), scatter.getIds()};
  options.groups = {tensorType(scatter.getIds()).getNumElements(),
                    tensorType(scatter.getBase()).getDimSize(1)};
  return options;
}
