#include "passes/kernels/contraction/ContractionBlock.h"
#include "passes/kernels/contraction/GroupedRows.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

// Steps that are staged at a time if their number is only known at run time;
// even, for pairs.
static constexpr int64_t kDynamicStep = 16;

//===--- control flow -----------------------------------------------------===//

Value ContractionOps::isEqual(Value x, int64_t y) const {
  return compare(arith::CmpIPredicate::eq, x, index(y));
}

Value ContractionOps::select(Value condition, int64_t x, int64_t y) const {
  if (!condition || x == y)
    return index(y);
  return b.create<arith::SelectOp>(loc, condition, index(x), index(y));
}

void ContractionOps::forEach(Value count,
                             llvm::function_ref<void(Value)> body) const {
  forRange(index(0), count, 1, body);
}

void ContractionOps::forEach(int64_t count,
                             llvm::function_ref<void(Value)> body) const {
  if (count == 1)
    body(index(0));
  else if (count > 1)
    forEach(index(count), body);
}

void ContractionOps::ifElse(Value condition, llvm::function_ref<void()> then,
                            llvm::function_ref<void()> otherwise) const {
  if (!otherwise)
    return ifTrue(condition, then);
  auto branch = b.create<scf::IfOp>(loc, condition, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  then();
  b.setInsertionPointToStart(branch.elseBlock());
  otherwise();
}

Value ContractionOps::chooseValue(Value condition, Type type,
                                  llvm::function_ref<Value()> then,
                                  llvm::function_ref<Value()> otherwise) const {
  if (!condition)
    return then();
  return KernelOps::ifElse(
      condition, type, [&] { return Values{then()}; },
      [&] { return Values{otherwise()}; })[0];
}

void ContractionOps::forEachPart(Value isLast, int64_t whole, int64_t last,
                                 int64_t step, RowsBody body) const {
  auto part = [&](Value i) { body(i, step); };
  auto rest = [&](int64_t size) {
    if (size % step)
      body(index(size / step), size % step);
  };
  if (!isLast || last == whole) {
    forEach(whole / step, part);
    return rest(whole);
  }
  Value parts = select(isLast, last / step, whole / step);
  if (whole >= step)
    forEach(parts, part);
  if (whole % step == last % step) { // one body for both
    if (whole % step)
      body(parts, whole % step);
  } else if (whole % step) {
    ifElse(isLast, [&] { rest(last); }, [&] { rest(whole); });
  } else {
    ifElse(isLast, [&] { rest(last); });
  }
}

void ContractionOps::forEachPartOf(Value count, ArrayRef<int64_t> sizes,
                                   RowsBody body) const {
  Value done = index(0);
  int64_t before = 0;
  for (int64_t size : sizes) {
    // The rest is less than the previous size.
    int64_t most = before ? (before - 1) / size : 2;
    if (most == 0)
      continue;
    before = size;
    Value parts = b.create<arith::DivUIOp>(
        loc, b.create<arith::SubIOp>(loc, count, done), index(size));
    if (most == 1)
      ifElse(isEqual(parts, 1), [&] { body(done, size); });
    else
      forEach(parts, [&](Value i) { body(add(done, mul(i, size)), size); });
    done = add(done, mul(parts, size));
  }
}

//===--- accesses ---------------------------------------------------------===//

Value ContractionOps::zeros(VectorType type) const {
  return b.create<arith::ConstantOp>(loc, b.getZeroAttr(type));
}

Value ContractionOps::allocate(ArrayRef<int64_t> shape, Type element,
                               tile::Layout layout) const {
  return b.create<tile::AllocOp>(
      loc, MemRefType::get(shape, element, AffineMap(),
                           tile::SharedAttr::get(b.getContext(), layout)));
}

Value ContractionOps::load(VectorType type, Value memory,
                           ArrayRef<Value> indices,
                           ArrayRef<int64_t> along) const {
  return b.create<tile::LoadOp>(loc, type, memory, indices, ValueRange(),
                                along);
}

void ContractionOps::store(Value value, Value memory, ArrayRef<Value> indices,
                           ArrayRef<int64_t> along) const {
  b.create<tile::StoreOp>(loc, value, memory, indices, ValueRange(), along);
}

void ContractionOps::prefetch(Value memory, ArrayRef<Value> indices,
                              unsigned locality) const {
  b.create<memref::PrefetchOp>(loc, memory, indices, /*isWrite=*/false,
                               locality, /*isDataCache=*/true);
}

//===--- the block --------------------------------------------------------===//

ContractionBlock::ContractionBlock(const ContractionPlan &plan,
                                   tile::KernelOp kernel,
                                   ArrayRef<Value> arguments,
                                   const TileTarget &target, OpBuilder &builder)
    : ContractionOps(builder, kernel.getLoc()), plan(plan), kernel(kernel),
      arguments(arguments), target(target), tiles(chooseTiles(plan, target)) {}

// Blocks: rows fastest, then columns, then the outer dimensions.
void ContractionBlock::begin() {
  Value rest = kernel.getBlockNumber();
  auto take = [&](int64_t count) -> Value {
    if (count == 1)
      return index(0);
    Value i = b.create<arith::RemUIOp>(loc, rest, index(count));
    rest = b.create<arith::DivUIOp>(loc, rest, index(count));
    return i;
  };
  Value rowBlock = take(plan.rowBlocks()),
        columnBlock = take(plan.columnBlocks());
  rowStart = mul(rowBlock, plan.blockRows);
  columnStart = mul(columnBlock, plan.blockColumns);
  bool ofRows = plan.groups && !plan.groups->ofSum;
  if (!ofRows && plan.rowBlocks() > 1 && plan.rowDim().size % plan.blockRows)
    isLastRows = isEqual(rowBlock, plan.rowBlocks() - 1);
  if (plan.columnBlocks() > 1 && plan.columnDim().size % plan.blockColumns)
    isLastColumns = isEqual(columnBlock, plan.columnBlocks() - 1);
  outerIndices.assign(plan.dims.size(), Value());
  for (unsigned dim : llvm::reverse(plan.outer))
    outerIndices[dim] = take(plan.dims[dim].size);
  if (plan.groups)
    beginGroup(rowBlock);
}

// The group of the block, and which of its rows are the group's.
void ContractionBlock::beginGroup(Value rowBlock) {
  const ContractionGroups &groups = *plan.groups;
  Value sizes = arguments[groups.argument];
  auto minus = [&](Value x, Value y) -> Value {
    return b.create<arith::SubIOp>(loc, x, y);
  };
  if (groups.hasSlots()) {
    SlotRows tile = emitSlotRows(b, loc, sizes, rowBlock, groups.count,
                                 plan.rowDim().size, plan.blockRows);
    rowStart = tile.start;
    allRows = tile.all;
    ownedRows = tile.owned;
    if (plan.quant)
      groupMicropanel = mul(
          tile.group, groups.matrix / plan.quant->layout.columns / kMicropanel);
    else if (groups.matrix)
      groupMatrix = tile.group;
    return;
  }
  Value group = outerIndices[0] ? outerIndices[0] : index(0);
  Value first = emitLoadIndex(b, loc, sizes, group);
  if (!groups.ofSum) {
    allRows = emitClamp(b, loc, minus(index(plan.rowDim().size), rowStart),
                        plan.blockRows);
    ownedRows = b.create<arith::MinSIOp>(
        loc, emitClamp(b, loc, minus(first, rowStart), plan.blockRows),
        allRows);
    return;
  }
  sumBegin = groups.isPadded ? index(0) : first;
  sumTerms = first;
  if (!groups.isPadded)
    sumTerms = minus(emitLoadIndex(b, loc, sizes, add(group, index(1))), first);
  chunksHere = b.create<arith::DivUIOp>(
      loc, add(sumTerms, index(tiles.chunk - 1)), index(tiles.chunk));
}

void ContractionBlock::beginChunk(Value i) {
  chunkIndex = i;
  Value part = i;
  sumStart = index(0);
  if (tiles.chunksOfSum > 1) {
    Value place = part;
    if (tiles.chunks > tiles.chunksOfSum) {
      place = b.create<arith::RemUIOp>(loc, part, index(tiles.chunksOfSum));
      part = b.create<arith::DivUIOp>(loc, part, index(tiles.chunksOfSum));
    }
    sumStart = mul(place, tiles.chunk);
    if (plan.sum.size % tiles.chunk)
      isLastOfSum = isEqual(place, tiles.chunksOfSum - 1);
  }
  outerSums.assign(plan.outerSums.size(), Value());
  for (size_t d = outerSums.size(); d-- > 0;) {
    int64_t size = plan.outerSums[d].size;
    outerSums[d] = d ? b.create<arith::RemUIOp>(loc, part, index(size)) : part;
    if (d)
      part = b.create<arith::DivUIOp>(loc, part, index(size));
  }
  if (!sumTerms)
    return;
  Value done = mul(chunkIndex, tiles.chunk);
  sumStart = add(sumBegin, done);
  depthHere = b.create<arith::MinSIOp>(
      loc, b.create<arith::SubIOp>(loc, sumTerms, done), index(tiles.chunk));
}

void ContractionBlock::forEachPanel(RowsBody body) const {
  int64_t blocks = plan.columnBlocks();
  forEachPart(isLastColumns, plan.blockColumns,
              plan.columnDim().size - (blocks - 1) * plan.blockColumns,
              tiles.width, body);
}

void ContractionBlock::forEachStep(int64_t step, RowsBody body) const {
  if (depthHere) {
    SmallVector<int64_t> sizes{2, 1};
    if (tiles.chunk >= kDynamicStep)
      sizes.insert(sizes.begin(), kDynamicStep);
    return forEachPartOf(depthHere, sizes, body);
  }
  forEachPart(isLastOfSum, tiles.chunk, lastChunk(), step,
              [&](Value i, int64_t depth) { body(mul(i, step), depth); });
}

Value ContractionBlock::firstIntegerRow() const {
  Value first = index(0);
  for (unsigned dim : plan.outer)
    if (plan.dims[dim].lhs)
      first = add(mul(first, plan.dims[dim].size), outerIndices[dim]);
  return add(mul(first, plan.rowDim().size), rowStart);
}

Value ContractionBlock::micropanelOf(Value column) const {
  Value micropanel = div(add(columnStart, column), kMicropanel);
  if (groupMicropanel)
    micropanel = add(micropanel, groupMicropanel);
  for (unsigned dim : plan.outer)
    if (int64_t rows = plan.dims[dim].rhs / plan.quant->layout.columns)
      micropanel = add(micropanel, mul(outerIndices[dim], rows / kMicropanel));
  return micropanel;
}

Value ContractionBlock::matrixColumn(Value column) const {
  Value k = add(columnStart, column);
  for (unsigned dim : plan.outer)
    if (int64_t stride = plan.dims[dim].rhs)
      k = add(k, mul(outerIndices[dim], stride));
  return k;
}
