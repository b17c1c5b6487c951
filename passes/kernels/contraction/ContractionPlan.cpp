#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/Contraction.h"
#include "passes/kernels/contraction/GroupedRows.h"

using namespace mlir;
using namespace tessera;

int64_t ContractionPlan::rowBlocks() const {
  if (groups && groups->hasSlots())
    return slotsOf(rowDim().size, blockRows, groups->count);
  return partsOf(rowDim().size, blockRows);
}
int64_t ContractionPlan::columnBlocks() const {
  return partsOf(columnDim().size, blockColumns);
}
static int64_t countOuter(const ContractionPlan &plan) {
  int64_t count = 1;
  for (unsigned dim : plan.outer)
    count *= plan.dims[dim].size;
  return count;
}
int64_t ContractionPlan::outerCount() const {
  bool hasSlots = groups && groups->hasSlots();
  return countOuter(*this) * (hasSlots ? groups->count : 1);
}
int64_t ContractionPlan::typicalRows() const {
  bool hasSlots = groups && groups->hasSlots();
  return hasSlots ? partsOf(rowDim().size, groups->count) : rowDim().size;
}
int64_t ContractionPlan::tiles() const {
  return rowBlocks() * columnBlocks() * countOuter(*this);
}

bool ContractionPlan::streams() const {
  constexpr int64_t kMostRows = 8;
  auto isNarrow = [](Type type) { return type.isBF16() || type.isF32(); };
  return !groups && !quant && rowDim().size <= kMostRows &&
         columnDim().size > 1 && columnDim().rhs > 1 && sum.rhs == 1 &&
         sum.size % 2 == 0 && isNarrow(rhs.memory) && isNarrow(rhs.element) &&
         !lhs.element.isF64();
}

static bool repeats(int64_t size, int64_t stride) {
  return size > 1 && stride == 0;
}

bool ContractionPlan::fitsMatrices() const {
  auto isBf16 = [](const ContractionOperand &operand) {
    return operand.memory.isBF16() && operand.element.isBF16();
  };
  bool sumsGroups = groups && groups->ofSum;
  return usesMatrices && !sumsGroups &&
         (!quant || isMicropanels() || !quant->streams) &&
         !(quant && quant->bytes) && isBf16(lhs) && isBf16(rhs) &&
         !repeats(rowDim().size, rowDim().lhs) &&
         !repeats(columnDim().size, columnDim().rhs) &&
         !repeats(sum.size, sum.lhs) && !repeats(sum.size, sum.rhs);
}

int64_t ContractionPlan::terms() const {
  int64_t count = sum.size;
  for (const ContractionDim &dim : outerSums)
    count *= dim.size;
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
       {blockRows, blockColumns, persistentBlocks, int64_t(usesMatrices),
        int64_t(row ? *row : -1), int64_t(column ? *column : -1)})
    add(value);
  if (groups)
    for (int64_t value :
         {int64_t(groups->argument), groups->count, int64_t(groups->isPadded),
          int64_t(groups->ofSum), groups->matrix})
      add(value);
  if (quant)
    for (int64_t value :
         {int64_t(quant->scales.value_or(0)), quant->layout.bits,
          quant->layout.group, int64_t(quant->layout.zeros),
          int64_t(quant->layout.floats), int64_t(quant->layout.superBlocks),
          int64_t(quant->sumsRows), int64_t(quant->streams),
          int64_t(quant->integers), int64_t(quant->bytes)})
      add(value);
  if (packed)
    add(packed->depth);
  return text + '\n' + expression.key();
}
