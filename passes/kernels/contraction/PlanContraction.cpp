// From a cluster to its ContractionPlan.
#include "dialects/graph/Einsum.h"
#include "dialects/graph/GraphQuantOps.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/Contraction.h"
#include "passes/kernels/contraction/GroupedRows.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

//===--- operands ---------------------------------------------------------===//

namespace {

struct Operand {
  ContractionOperand operand;
  View view;
  StringRef labels;
  int64_t strideOf(char label) const {
    size_t at = labels.find(label);
    return at == StringRef::npos ? 0 : view.strides[at];
  }
};

/// Labels that advance together, before they are classified as rows or columns.
struct Run {
  enum Role { batch, row, column, sum } role;
  ContractionDim dim;
};

} // namespace

// As if the matrix were dense; the emitter handles the layout of its integers.
static std::optional<Operand> findQuantized(Value value, StringRef labels) {
  auto op = value.getDefiningOp<DequantizeOp>();
  if (!op)
    return std::nullopt;
  Type element = tensorType(value).getElementType();
  int64_t columns = op.getLayout().columns;
  ArrayRef<int64_t> shape = tensorType(value).getShape();
  Operand result;
  result.operand = {cast<BlockArgument>(op.getValues()).getArgNumber(), element,
                    element, 0};
  result.view.base = op.getValues();
  result.view.shape = llvm::to_vector(shape);
  result.view.strides = {columns, 1};
  if (op.getTransposed())
    std::swap(result.view.strides[0], result.view.strides[1]);
  if (shape.size() == 3) // a stack
    result.view.strides.insert(result.view.strides.begin(),
                               op.getLayout().rows / shape[0] * columns);
  result.labels = labels;
  return result;
}

static llvm::Expected<Operand> findOperand(Value value, StringRef labels) {
  if (std::optional<Operand> quantized = findQuantized(value, labels))
    return std::move(*quantized);
  Value source = value;
  while (auto convert = source.getDefiningOp<ConvertOp>()) {
    Type from = tensorType(convert.getInput()).getElementType(),
         to = tensorType(convert.getResult()).getElementType();
    if (!isa<FloatType>(from) ||
        from.getIntOrFloatBitWidth() >= to.getIntOrFloatBitWidth())
      break;
    source = convert.getInput();
  }
  std::optional<View> view = traceView(source);
  if (!view)
    return llvm::createStringError(
        "operand '" + labels +
        "' of the einsum is not a strided view of an argument");
  Operand result;
  result.operand = {cast<BlockArgument>(view->base).getArgNumber(),
                    tensorType(view->base).getElementType(),
                    tensorType(value).getElementType(), view->offset};
  result.view = std::move(*view);
  result.labels = labels;
  return result;
}

//===--- dimensions -------------------------------------------------------===//

// Runs of adjacent labels of one role that have one stride in both operands.
static SmallVector<Run> findRuns(StringRef labels, const Operand &lhs,
                                 const Operand &rhs,
                                 llvm::function_ref<int64_t(char)> sizeOf,
                                 llvm::function_ref<Run::Role(char)> roleOf) {
  SmallVector<Run> runs;
  for (char label : labels) {
    Run next{roleOf(label),
             {sizeOf(label), lhs.strideOf(label), rhs.strideOf(label)}};
    if (next.dim.size == 1)
      next.dim.lhs = next.dim.rhs = 0;
    if (!runs.empty() && runs.back().role == next.role) {
      ContractionDim &last = runs.back().dim;
      if (next.dim.size == 1)
        continue;
      if (last.size == 1 || (last.lhs == next.dim.lhs * next.dim.size &&
                             last.rhs == next.dim.rhs * next.dim.size)) {
        last = {last.size * next.dim.size, next.dim.lhs, next.dim.rhs};
        continue;
      }
    }
    runs.push_back(next);
  }
  return runs;
}

// The dimensions of the expression: runs, divided if the epilogue divided their
// group.
static SmallVector<Run> divideRuns(ArrayRef<Run> runs, const ExprPiece &piece) {
  SmallVector<Run> dims;
  unsigned dim = 0;
  for (auto [run, count] : llvm::zip_equal(runs, piece.groups)) {
    int64_t inner = run.dim.size;
    for (unsigned i = 0; i < count; ++i, ++dim) {
      inner /= piece.sizes[dim];
      dims.push_back(
          {run.role,
           {piece.sizes[dim], run.dim.lhs * inner, run.dim.rhs * inner}});
    }
  }
  return dims;
}

// The largest dimension of a role, the innermost of equals.
static std::optional<unsigned> largest(ArrayRef<Run> dims, Run::Role role) {
  std::optional<unsigned> best;
  for (auto [i, run] : llvm::enumerate(dims))
    if (run.role == role && run.dim.size > 1 &&
        (!best || run.dim.size >= dims[*best].dim.size))
      best = i;
  return best;
}

static llvm::Error notTileable(const llvm::Twine &what) {
  return llvm::createStringError(what);
}

// Builds the epilogue over a space of one dimension a run.
static llvm::Expected<ClusterExpression>
buildEpilogue(ClusterOp cluster, Value product, ArrayRef<Run> runs) {
  ExpressionOptions options;
  options.given = {product};
  for (const Run &run : runs)
    options.groups.push_back(run.dim.size);
  llvm::Expected<ClusterExpression> expression =
      buildExpression(cluster, options);
  if (!expression)
    return expression.takeError();
  if (expression->pieces.size() != 1)
    return notTileable("the epilogue divides the product into pieces");
  const ExprPiece &piece = expression->pieces.front();
  Linear place = Linear::zero(piece.rank());
  for (unsigned dim = 0; dim < piece.rank(); ++dim)
    place = place * piece.sizes[dim] + Linear::index(dim, piece.rank());
  for (const ExprNode &node : piece.nodes) {
    if (node.kind != ExprNode::given)
      continue;
    for (unsigned dim = 0; dim < piece.rank(); ++dim)
      if (piece.sizes[dim] > 1 &&
          (node.address.constant != 0 ||
           node.address.coefficients[dim] != place.coefficients[dim]))
        return notTileable("the epilogue reorders the product");
  }
  return expression;
}

//===--- the product ------------------------------------------------------===//

namespace {
/// The operands of a cluster's matmul, with a label for each dimension. If no
/// operand or result has groups as a dimension, the label 'g' is missing there.
struct Product {
  Value result, left, right;
  Einsum equation;
  Value groups; ///< offsets or counts; null without groups

  int64_t sizeOf(char label) const {
    for (auto [labels, value] :
         {std::pair(&equation.lhs, left), {&equation.rhs, right}})
      if (size_t at = labels->find(label); at != std::string::npos)
        return tensorType(value).getDimSize(at);
    return tensorType(result).getDimSize(equation.out.find(label));
  }
  Run::Role roleOf(char label) const {
    bool inLeft = equation.lhs.find(label) != std::string::npos,
         inRight = equation.rhs.find(label) != std::string::npos;
    return inLeft == inRight ? Run::batch : inLeft ? Run::row : Run::column;
  }
};
} // namespace

static llvm::Expected<Product> findProduct(ClusterOp cluster) {
  for (Operation &op : cluster.getBody().front()) {
    if (auto einsum = dyn_cast<EinsumOp>(op)) {
      llvm::Expected<Einsum> equation = Einsum::parse(einsum.getEquation());
      if (!equation)
        return equation.takeError();
      return Product{einsum.getResult(), einsum.getLhs(), einsum.getRhs(),
                     *equation, Value()};
    }
    if (auto grouped = dyn_cast<GroupedMatmulOp>(op)) {
      bool isPadded = grouped.isPadded();
      return Product{grouped.getResult(),
                     grouped.getLhs(),
                     grouped.getRhs(),
                     {isPadded ? "grk" : "rk",
                      grouped.getTransposed() ? "gnk" : "gkn",
                      isPadded ? "grn" : "rn"},
                     grouped.getGroups()};
    }
    if (auto grouped = dyn_cast<GroupedOuterOp>(op)) {
      bool isPadded = grouped.isPadded();
      return Product{grouped.getResult(),
                     grouped.getLhs(),
                     grouped.getRhs(),
                     {isPadded ? "grm" : "rm", isPadded ? "grn" : "rn", "gmn"},
                     grouped.getGroups()};
    }
  }
  return notTileable("the cluster holds no matmul");
}

// Columns run along registers: the innermost label is one. Rows of groups stay
// rows.
static void orient(Product &product) {
  if (product.groups)
    return;
  for (char label : llvm::reverse(product.equation.out))
    if (product.roleOf(label) != Run::batch && product.sizeOf(label) > 1) {
      if (product.roleOf(label) == Run::row) {
        std::swap(product.equation.lhs, product.equation.rhs);
        std::swap(product.left, product.right);
      }
      return;
    }
}

static llvm::Expected<ContractionQuant>
describeQuant(const Product &product, const TileTarget &target) {
  if (product.left.getDefiningOp<DequantizeOp>())
    return llvm::createStringError(
        "quantized weights must be the columns of a product, not its rows");
  auto op = product.right.getDefiningOp<DequantizeOp>();
  ContractionQuant quant{op.getLayout(), {}};
  if (target.gpu && quant.isMicropanels())
    return llvm::createStringError(
        "GPUs do not support the packed layout (micropanels); compile for cpu");
  if (target.gpu && quant.layout.nf4())
    return llvm::createStringError(
        "GPUs do not support nf4 weights; compile for cpu");
  if (target.gpu && quant.layout.mxfp4())
    return llvm::createStringError(
        "GPUs do not support mxfp4 weights; compile for cpu");
  if (target.gpu && quant.layout.superBlocks)
    return llvm::createStringError(
        "GPUs do not support weights in super-blocks (K-quants); compile for "
        "cpu");
  if (Value scales = op.getScales())
    quant.scales = cast<BlockArgument>(scales).getArgNumber();
  return quant;
}

static ContractionGroups describeGroups(const Product &product,
                                        const Operand &rhs) {
  ContractionGroups groups;
  groups.argument = cast<BlockArgument>(product.groups).getArgNumber();
  groups.count = product.sizeOf('g');
  groups.isPadded = tensorType(product.left).getRank() == 3;
  groups.ofSum = product.equation.out.find('r') == std::string::npos;
  if (groups.hasSlots())
    groups.matrix = rhs.strideOf('g');
  return groups;
}

llvm::Expected<ContractionPlan>
tessera::planContraction(ClusterOp cluster, const TileTarget &target) {
  llvm::Expected<Product> product = findProduct(cluster);
  if (!product)
    return product.takeError();
  orient(*product);
  llvm::Expected<Operand> lhs =
      findOperand(product->left, product->equation.lhs);
  if (!lhs)
    return lhs.takeError();
  llvm::Expected<Operand> rhs =
      findOperand(product->right, product->equation.rhs);
  if (!rhs)
    return rhs.takeError();
  auto sizeOf = [&](char label) { return product->sizeOf(label); };
  auto roleOf = [&](char label) { return product->roleOf(label); };

  ContractionPlan plan;
  plan.lhs = lhs->operand;
  plan.rhs = rhs->operand;
  plan.result = product->result;
  if (product->groups)
    plan.groups = describeGroups(*product, *rhs);
  if (product->left.getDefiningOp<DequantizeOp>() ||
      product->right.getDefiningOp<DequantizeOp>()) {
    llvm::Expected<ContractionQuant> quant = describeQuant(*product, target);
    if (!quant)
      return quant.takeError();
    plan.quant = *quant;
  }
  SmallVector<Run> runs =
      findRuns(product->equation.out, *lhs, *rhs, sizeOf, roleOf);
  if (runs.empty()) // a scalar
    runs.push_back({Run::batch, {1, 0, 0}});
  llvm::Expected<ClusterExpression> expression =
      buildEpilogue(cluster, product->result, runs);
  if (!expression)
    return expression.takeError();
  if (plan.groups && expression->pieces.front().rank() != runs.size())
    return notTileable("the epilogue divides rows of groups");
  plan.expression = std::move(*expression);
  SmallVector<Run> dims = divideRuns(runs, plan.expression.pieces.front());
  plan.row = largest(dims, Run::row);
  plan.column = largest(dims, Run::column);
  for (auto [i, run] : llvm::enumerate(dims)) {
    plan.dims.push_back(run.dim);
    if (run.dim.size > 1 && plan.row != i && plan.column != i)
      plan.outer.push_back(i);
  }
  SmallVector<Run> sums = findRuns(product->equation.summed(), *lhs, *rhs,
                                   sizeOf, [](char) { return Run::sum; });
  std::optional<unsigned> main = largest(sums, Run::sum);
  plan.sum = main ? sums[*main].dim : ContractionDim{1, 0, 0};
  for (auto [i, run] : llvm::enumerate(sums))
    if (run.dim.size > 1 && main != i)
      plan.outerSums.push_back(run.dim);
  if (plan.quant) {
    if (llvm::Error error = chooseQuantGrid(plan, target))
      return std::move(error);
    return plan;
  }
  target.gpu ? chooseGpuGrid(plan, target) : chooseGrid(plan);
  return plan;
}
