// The grid of products with quantized weights (integers or e4m3 with scales).
//
// Few rows, as in decode, are bound by memory and stream the weights
// (FewRows.h). Many rows are bound by multiplications: a block dequantizes its
// columns once (QuantColumns.cpp).
//
// Rows of groups (experts) are few or many by the average of a group, which is
// static, so that a token's bits do not depend on how many others chose its
// expert. Few: a block has the rows of one group, in register tiles that each
// read the block's columns again. Without rows no weight is read.
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/Contraction.h"

using namespace mlir;
using namespace tessera;

// Up to so many rows the weights are streamed.
static constexpr int64_t kStreamedRows = 16;
// Rows of a block if a group may have more than others.
static constexpr int64_t kMostGroupRows = 64;
// Columns of a block: enough that staging lhs costs little, few enough that
// there are blocks for all threads.
static constexpr int64_t kLeastColumns = 64, kMostColumns = 256,
                         kWantedBlocks = 64;

// Columns of a block that only reads weights: so few that threads finish
// together, so many that dispatching a block is cheap.
static int64_t integerColumns(const QuantizedLayout &layout) {
  constexpr int64_t kBytes = 64 << 10, kMost = 256;
  int64_t ofMicropanel = layout.words() * kMicropanel * 4;
  return std::clamp<int64_t>(kBytes / ofMicropanel, 1, kMost / kMicropanel) *
         kMicropanel;
}

static llvm::Error fail(const llvm::Twine &what) {
  return llvm::createStringError("quantized weights: " + what);
}

// Columns of the results are columns of the matrix, whose micropanels are terms
// of the sum.
static llvm::Error chooseRowSumGrid(ContractionPlan &plan,
                                    const TileTarget &target) {
  const QuantizedLayout &layout = plan.quant->layout;
  if (plan.isMicropanels() || (plan.groups && !plan.groups->hasSlots()))
    return fail("the packed layout and padded groups are not summed over the "
                "matrix's rows");
  if (!plan.outerSums.empty() || plan.sum.size != plan.quantRows() ||
      plan.sum.size % kMicropanel || layout.columns % kMicropanel)
    return fail("a matmul that sums over the matrix's rows must sum over "
                "nothing else, and rows and columns must be multiples of 16");
  bool isAligned = true;
  for (unsigned dim : plan.outer)
    isAligned &= plan.dims[dim].rhs % kMicropanel == 0;
  if (!isAligned)
    return fail("the epilogue must divide columns at multiples of 16");
  if (!target.gpu) {
    chooseGrid(plan);
    return llvm::Error::success();
  }
  chooseGpuGrid(plan, target);
  // A block's columns are whole groups, or of one.
  int64_t unit =
      std::min({plan.blockColumns, plan.columnDim().size, layout.group});
  isAligned = layout.group % unit == 0;
  for (unsigned dim : plan.outer)
    isAligned &= plan.dims[dim].rhs % unit == 0;
  if (!isAligned)
    return fail("the epilogue must divide columns at multiples of groups");
  return llvm::Error::success();
}

// The rows of a block of few rows.
static int64_t rowsOfFew(const ContractionPlan &plan) {
  const int64_t rows = plan.rowDim().size;
  if (!plan.groups)
    return rows;
  const int64_t most =
      plan.quant->readsIntegers() ? kMostGroupRows : kStreamedRows;
  return std::min(
      {rows, most, int64_t(llvm::alignTo(plan.typicalRows(), kStreamedRows))});
}

void tessera::chooseByteGrid(ContractionPlan &plan) {
  // A block's rows of bytes stay in L2, and staging a panel takes a hundredth
  // of their products' time.
  constexpr int64_t kRows = 128, kLeast = 64, kMost = 256;
  plan.quant->bytes = true;
  const int64_t rows = plan.typicalRows(), columns = plan.columnDim().size;
  if (plan.quant->streams) {
    plan.quant->integers = false;
    plan.blockRows = rowsOfFew(plan);
    plan.blockColumns = std::min(columns, integerColumns(plan.quant->layout));
    return;
  }
  plan.blockRows = std::min<int64_t>(
      plan.rowDim().size,
      llvm::alignTo(partsOf(rows, partsOf(rows, kRows)), CpuBlock::kRowStep));
  const int64_t wanted =
      llvm::alignTo(partsOf(columns, kWantedBlocks), kMicropanel);
  plan.blockColumns = std::min(columns, std::clamp(wanted, kLeast, kMost));
}

llvm::Error tessera::chooseQuantGrid(ContractionPlan &plan,
                                     const TileTarget &target) {
  int64_t columns = plan.quant->layout.columns;
  plan.quant->sumsRows = plan.sum.rhs == columns && plan.columnDim().rhs == 1;
  if (plan.quant->sumsRows)
    return chooseRowSumGrid(plan, target);
  if (!plan.outerSums.empty() || plan.sum.rhs != 1 || plan.sum.size != columns)
    return fail("the matmul must sum over the matrix's columns only");
  if (plan.groups && !plan.groups->hasSlots())
    return fail("groups must be runs of rows");
  ContractionDim row = plan.rowDim(), column = plan.columnDim();
  if (plan.sum.lhs == 0 || (row.size > 1 && row.lhs == 0))
    return fail("the left operand must not repeat elements");
  bool isAligned = column.rhs == columns;
  for (unsigned dim : plan.outer)
    isAligned &= plan.dims[dim].rhs / columns % kMicropanel == 0;
  if (plan.groups)
    isAligned &= plan.groups->matrix / columns % kMicropanel == 0;
  if (!isAligned)
    return fail("the epilogue must divide columns at multiples of 16");
  if (target.gpu) {
    chooseGpuGrid(plan, target);
    return llvm::Error::success();
  }
  plan.quant->streams =
      plan.typicalRows() <= kStreamedRows && !plan.quant->layout.nf4();
  if (!plan.quant->streams || plan.isMicropanels()) {
    chooseGrid(plan);
    return llvm::Error::success();
  }
  plan.quant->integers = multipliesIntegers(plan);
  plan.blockRows = rowsOfFew(plan);
  if (plan.quant->integers) {
    plan.blockColumns =
        std::min(column.size, integerColumns(plan.quant->layout));
    return llvm::Error::success();
  }
  int64_t wanted =
      llvm::alignTo(partsOf(column.size, kWantedBlocks), kLeastColumns);
  plan.blockColumns = std::min(column.size, std::min(wanted, kMostColumns));
  return llvm::Error::success();
}
