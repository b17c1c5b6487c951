#include "dialects/graph/Einsum.h"
#include "passes/tiling/ClusterLaunch.h"
#include "passes/tiling/Contraction.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

int64_t ContractionPlan::rowBlocks() const {
  return partsOf(rowDim().size, blockRows);
}
int64_t ContractionPlan::columnBlocks() const {
  return partsOf(columnDim().size, blockColumns);
}
int64_t ContractionPlan::tiles() const {
  int64_t count = rowBlocks() * columnBlocks();
  for (unsigned dim : outer)
    count *= dims[dim].size;
  return count;
}

std::string ContractionPlan::key() const {
  std::string text = "contraction";
  auto add = [&](int64_t value) { text += ' ' + std::to_string(value); };
  for (const ContractionOperand *operand : {&lhs, &rhs}) {
    llvm::raw_string_ostream(text) << ' ' << operand->element;
    add(operand->argument);
    add(operand->offset);
  }
  auto addDim = [&](const ContractionDim &dim) {
    for (int64_t value : {dim.size, dim.lhs, dim.rhs})
      add(value);
  };
  llvm::for_each(dims, addDim);
  addDim(sum);
  llvm::for_each(outerSums, addDim);
  for (int64_t value :
       {blockRows, blockColumns, residents, int64_t(row ? *row : -1),
        int64_t(column ? *column : -1)})
    add(value);
  return text + '\n' + expression.key();
}

//===--- operands ---------------------------------------------------------===//

namespace {

struct Operand {
  ContractionOperand operand;
  View view;
  StringRef letters;
  int64_t strideOf(char letter) const {
    size_t at = letters.find(letter);
    return at == StringRef::npos ? 0 : view.strides[at];
  }
};

/// Letters that advance together, before they are told rows from columns.
struct Run {
  enum Role { batch, row, column, sum } role;
  ContractionDim dim;
};

} // namespace

static llvm::Expected<Operand> findOperand(Value value, StringRef letters) {
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
        "operand '" + letters +
        "' of the einsum is no strided view of an argument");
  Operand result;
  result.operand = {cast<BlockArgument>(view->base).getArgNumber(),
                    tensorType(view->base).getElementType(),
                    tensorType(value).getElementType(), view->offset};
  result.view = std::move(*view);
  result.letters = letters;
  return result;
}

//===--- dimensions -------------------------------------------------------===//

// Runs of adjacent letters of one role that have one stride in both operands.
static SmallVector<Run> findRuns(StringRef letters, const Operand &lhs,
                                 const Operand &rhs,
                                 llvm::function_ref<int64_t(char)> sizeOf,
                                 llvm::function_ref<Run::Role(char)> roleOf) {
  SmallVector<Run> runs;
  for (char letter : letters) {
    Run next{roleOf(letter),
             {sizeOf(letter), lhs.strideOf(letter), rhs.strideOf(letter)}};
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

// The dimensions of the expression: runs, divided where the epilogue divided
// their group.
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
buildEpilogue(ClusterOp cluster, EinsumOp einsum, ArrayRef<Run> runs) {
  ExpressionOptions options;
  options.given = {einsum.getResult()};
  for (const Run &run : runs)
    options.groups.push_back(run.dim.size);
  llvm::Expected<ClusterExpression> expression =
      buildExpression(cluster, options);
  if (!expression)
    return expression.takeError();
  if (expression->pieces.size() != 1)
    return notTileable("the epilogue cuts the product into pieces");
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

static EinsumOp findEinsum(ClusterOp cluster) {
  auto ops = cluster.getBody().front().getOps<EinsumOp>();
  return ops.empty() ? EinsumOp() : *ops.begin();
}

llvm::Expected<ContractionPlan>
tessera::planContraction(ClusterOp cluster, const TileTarget &target) {
  EinsumOp einsum = findEinsum(cluster);
  if (!einsum)
    return notTileable("a contraction cluster holds an einsum");
  llvm::Expected<Einsum> equation = Einsum::parse(einsum.getEquation());
  if (!equation)
    return equation.takeError();
  std::string left = equation->lhs, right = equation->rhs;
  Value leftValue = einsum.getLhs(), rightValue = einsum.getRhs();
  auto sizeOf = [&](char letter) {
    size_t at = left.find(letter);
    return at != std::string::npos
               ? tensorType(leftValue).getDimSize(at)
               : tensorType(rightValue).getDimSize(right.find(letter));
  };
  auto roleOf = [&](char letter) {
    bool inLeft = left.find(letter) != std::string::npos,
         inRight = right.find(letter) != std::string::npos;
    return inLeft && inRight ? Run::batch : inLeft ? Run::row : Run::column;
  };
  // Columns are what registers run along: the innermost letter is one.
  for (char letter : llvm::reverse(equation->out))
    if (roleOf(letter) != Run::batch && sizeOf(letter) > 1) {
      if (roleOf(letter) == Run::row) {
        std::swap(left, right);
        std::swap(leftValue, rightValue);
      }
      break;
    }
  llvm::Expected<Operand> lhs = findOperand(leftValue, left);
  if (!lhs)
    return lhs.takeError();
  llvm::Expected<Operand> rhs = findOperand(rightValue, right);
  if (!rhs)
    return rhs.takeError();

  ContractionPlan plan;
  plan.lhs = lhs->operand;
  plan.rhs = rhs->operand;
  plan.result = einsum.getResult();
  SmallVector<Run> runs = findRuns(equation->out, *lhs, *rhs, sizeOf, roleOf);
  if (runs.empty()) // a scalar
    runs.push_back({Run::batch, {1, 0, 0}});
  llvm::Expected<ClusterExpression> expression =
      buildEpilogue(cluster, einsum, runs);
  if (!expression)
    return expression.takeError();
  plan.expression = std::move(*expression);
  SmallVector<Run> dims = divideRuns(runs, plan.expression.pieces.front());
  plan.row = largest(dims, Run::row);
  plan.column = largest(dims, Run::column);
  for (auto [i, run] : llvm::enumerate(dims)) {
    plan.dims.push_back(run.dim);
    if (run.dim.size > 1 && plan.row != i && plan.column != i)
      plan.outer.push_back(i);
  }
  SmallVector<Run> sums = findRuns(equation->summed(), *lhs, *rhs, sizeOf,
                                   [](char) { return Run::sum; });
  std::optional<unsigned> main = largest(sums, Run::sum);
  plan.sum = main ? sums[*main].dim : ContractionDim{1, 0, 0};
  for (auto [i, run] : llvm::enumerate(sums))
    if (run.dim.size > 1 && main != i)
      plan.outerSums.push_back(run.dim);
  target.gpu ? chooseGpuGrid(plan, target) : chooseGrid(plan);
  return plan;
}

//===--- grid -------------------------------------------------------------===//

// What staging one element costs, in multiplications that a core with two FMAs
// of 16 lanes does meanwhile; of lhs that is read in place, what its rows cost
// when they come from beyond the second cache. Measured with `tessera bench
// gemm` on a Xeon of the Emerald Rapids class.
static constexpr double kStageRhs = 30, kStageLhs = 24, kReadLhs = 7;
// Loading and storing a partial sum between two chunks, alike.
static constexpr double kPartial = 25;
// A block's dispatch, in cycles.
static constexpr double kDispatch = 4000, kMultipliesPerCycle = 32;
// Columns of a chunk stay in the second cache: f32 elements.
static constexpr int64_t kStripElements = 768 * 1024 / 4;
static constexpr int64_t kColumnStep = 16, kRowStep = 32, kMaxRows = 2048,
                         kMaxColumns = 1536;

// Columns as the register tiles of 48 take them: a narrow one has too few
// chains to hide what a multiplication takes.
static double columnsCost(int64_t columns) {
  constexpr double kRest[] = {0, 20, 33, 48};
  return columns / 48 * 48 + kRest[partsOf(columns % 48, 16)];
}

namespace {
/// What a grid is weighed by.
struct Grid {
  const ContractionPlan &plan;
  int64_t m, n, k, outer; ///< of the whole, all sums in k
  bool lhsInPlace;

  double loss(int64_t rows, int64_t columns) const;
  double lossOfBlock(int64_t rows, int64_t columns) const;
  double idleShare(int64_t rows, int64_t columns, int64_t threads) const;
};
} // namespace

// The share of a block's time that is not multiplication.
double Grid::lossOfBlock(int64_t rows, int64_t columns) const {
  double work = double(rows) * columns * k / kMultipliesPerCycle;
  double loss = kStageRhs / rows +
                (lhsInPlace ? kReadLhs : kStageLhs) / columns +
                kDispatch / work;
  if (int64_t chunk = kStripElements / columns; chunk < plan.sum.size)
    loss += kPartial / chunk;
  return loss;
}

// Share of time in which threads wait for the last block: the whole ones take
// equally long, those of the edges fill gaps.
double Grid::idleShare(int64_t rows, int64_t columns, int64_t threads) const {
  int64_t whole = outer * (m / rows) * (n / columns);
  double one = double(rows) * columns,
         all = double(outer) * m * n; // of multiplications, without k
  double longest =
      std::max<double>(partsOf(whole, threads) * one, all / threads);
  if (whole < threads) // the largest edge
    longest = std::max<double>(longest, whole ? one : 0);
  return longest * threads / all - 1;
}

double Grid::loss(int64_t rows, int64_t columns) const {
  double narrow =
      (n / columns * columnsCost(columns) + columnsCost(n % columns)) / n - 1;
  int64_t blocks = outer * partsOf(m, rows) * partsOf(n, columns);
  return lossOfBlock(rows, columns) + narrow +
         0.7 * idleShare(rows, columns, 2) + 0.2 * idleShare(rows, columns, 8) +
         0.3 / blocks;
}

void tessera::chooseGrid(ContractionPlan &plan) {
  Grid grid{plan,
            plan.rowDim().size,
            plan.columnDim().size,
            plan.sum.size,
            1,
            plan.lhs.memory.isF32() && plan.lhs.element.isF32() &&
                plan.sum.lhs == 1};
  for (const ContractionDim &dim : plan.outerSums)
    grid.k *= dim.size;
  for (unsigned dim : plan.outer)
    grid.outer *= plan.dims[dim].size;
  int64_t m = grid.m, n = grid.n;
  double best = std::numeric_limits<double>::infinity();
  for (int64_t parts = 1; parts <= partsOf(m, kRowStep); ++parts) {
    int64_t rows = partsOf(m, parts);
    if (parts > 1)
      rows = llvm::alignTo(rows, kRowStep);
    if (rows > kMaxRows)
      continue;
    for (int64_t columns = kColumnStep;; columns += kColumnStep) {
      columns = std::min(columns, n);
      if (double loss = grid.loss(rows, columns); loss < best) {
        best = loss;
        plan.blockRows = rows;
        plan.blockColumns = columns;
      }
      if (columns >= std::min(n, kMaxColumns))
        break;
    }
  }
}
