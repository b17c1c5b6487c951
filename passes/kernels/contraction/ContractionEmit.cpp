#include "passes/kernels/contraction/ContractionEmit.h"
#include "passes/kernels/ClusterLaunch.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

// Steps that are staged at a time if their number is only known at run time;
// even, for pairs.
static constexpr int64_t kDynamicStep = 16;

ContractionEmitter::ContractionEmitter(const ContractionPlan &plan,
                                       ClusterOp cluster, tile::KernelOp kernel,
                                       ArrayRef<Value> arguments,
                                       ArrayRef<Value> results,
                                       const TileTarget &target,
                                       OpBuilder &builder)
    : KernelOps(builder, kernel.getLoc()), plan(plan), cluster(cluster),
      kernel(kernel), results(results), target(target),
      epilogueTarget{plan.expression.pieces.front(),
                     SmallVector<Value>(arguments), loc} {
  chooseTypes();
  chooseTiles();
  if (!plan.quant || !plan.quant->integers)
    lhs = makeSide(plan.lhs, arguments[plan.lhs.argument], true);
  if (plan.isMicropanels())
    makeMicropanels(arguments[plan.rhs.argument]);
  else if (plan.quant)
    makeQuant(arguments);
  else
    rhs = makeSide(plan.rhs, arguments[plan.rhs.argument], false);
  chooseStaging();
  chooseChunks();
}

//===--- vocabulary -------------------------------------------------------===//

Value ContractionEmitter::isEqual(Value x, int64_t y) {
  return compare(arith::CmpIPredicate::eq, x, index(y));
}
Value ContractionEmitter::select(Value condition, int64_t x, int64_t y) {
  if (!condition || x == y)
    return index(y);
  return b.create<arith::SelectOp>(loc, condition, index(x), index(y));
}

void ContractionEmitter::forEach(Value count,
                                 llvm::function_ref<void(Value)> body) {
  forRange(index(0), count, 1, body);
}

void ContractionEmitter::forEach(int64_t count,
                                 llvm::function_ref<void(Value)> body) {
  if (count == 1)
    body(index(0));
  else if (count > 1)
    forEach(index(count), body);
}

void ContractionEmitter::ifElse(Value condition,
                                llvm::function_ref<void()> then,
                                llvm::function_ref<void()> otherwise) {
  auto branch = b.create<scf::IfOp>(loc, condition, bool(otherwise));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  then();
  if (otherwise) {
    b.setInsertionPointToStart(branch.elseBlock());
    otherwise();
  }
}

Value ContractionEmitter::chooseValue(Value condition, Type type,
                                      llvm::function_ref<Value()> then,
                                      llvm::function_ref<Value()> otherwise) {
  if (!condition)
    return then();
  auto branch = b.create<scf::IfOp>(loc, type, condition, true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  b.create<scf::YieldOp>(loc, then());
  b.setInsertionPointToStart(branch.elseBlock());
  b.create<scf::YieldOp>(loc, otherwise());
  return branch.getResult(0);
}

//===--- parts ------------------------------------------------------------===//

void ContractionEmitter::forEachPart(
    Value isLast, int64_t whole, int64_t last, int64_t step,
    llvm::function_ref<void(Value, int64_t)> body) {
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

void ContractionEmitter::forEachPanel(
    llvm::function_ref<void(Value, int64_t)> body) {
  int64_t blocks = plan.columnBlocks();
  forEachPart(isLastColumns, plan.blockColumns,
              plan.columnDim().size - (blocks - 1) * plan.blockColumns, width,
              body);
}

void ContractionEmitter::forEachStep(
    int64_t step, llvm::function_ref<void(Value, int64_t)> body) {
  if (depthHere) {
    SmallVector<int64_t> sizes{2, 1};
    if (chunk >= kDynamicStep)
      sizes.insert(sizes.begin(), kDynamicStep);
    return forEachPartOf(depthHere, sizes, body);
  }
  forEachPart(isLastOfSum, chunk, plan.sum.size - (chunksOfSum - 1) * chunk,
              step, [&](Value i, int64_t depth) { body(mul(i, step), depth); });
}

//===--- the nest ---------------------------------------------------------===//

void ContractionEmitter::emit() {
  emitIndices();
  emitAllocations();
  // Loop-invariant values of the epilogue are emitted before all loops.
  Operation *mark = index(0).getDefiningOp();
  top = std::make_unique<EmitScope>(epilogueTarget, b);
  top->builder.setInsertionPoint(mark);
  bool streams = plan.quant && plan.quant->streams && !plan.isMicropanels();
  auto nest = [&] { streams ? emitStreamed() : emitChunks(); };
  plan.groups ? emitOwned(nest) : nest();
}

void ContractionEmitter::emitChunks() {
  forEach(chunksHere ? chunksHere : index(chunks), [&](Value i) {
    chunkIndex = i;
    emitChunk();
  });
}

// Blocks: rows fastest, then columns, then the outer dimensions.
void ContractionEmitter::emitIndices() {
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
  for (unsigned dim : plan.outer) {
    if (plan.dims[dim].lhs && lhs.memory)
      lhs.fixed.push_back(outerIndices[dim]);
    if (plan.dims[dim].rhs && !plan.quant)
      rhs.fixed.push_back(outerIndices[dim]);
  }
  if (plan.groups)
    emitGroupIndices(rowBlock);
}

void ContractionEmitter::emitAllocations() {
  if (plan.quant && plan.quant->streams && !plan.isMicropanels())
    return allocateStreamed();
  if (plan.quant && plan.quant->layout.nf4())
    allocateAbsmax();
  if (matrices)
    return allocateMatrices();
  int64_t panels = partsOf(plan.blockColumns, width);
  if (lhs.staged)
    allocateSide(lhs, 1, groupRows);
  if (rhs.staged)
    allocateSide(rhs, panels, width);
  if (chunks > 1)
    partials = b.create<tile::AllocOp>(
        loc, MemRefType::get(
                 {plan.blockRows, partsOf(plan.blockColumns, width) * width},
                 accumulate, AffineMap(),
                 tile::SharedAttr::get(b.getContext(), tile::Layout::rows)));
}

void ContractionEmitter::emitChunk() {
  Value part = chunkIndex;
  sumStart = index(0);
  if (chunksOfSum > 1) {
    Value place = part;
    if (chunks > chunksOfSum) {
      place = b.create<arith::RemUIOp>(loc, part, index(chunksOfSum));
      part = b.create<arith::DivUIOp>(loc, part, index(chunksOfSum));
    }
    sumStart = mul(place, chunk);
    if (plan.sum.size % chunk)
      isLastOfSum = isEqual(place, chunksOfSum - 1);
  }
  SmallVector<Value> sums(plan.outerSums.size());
  for (size_t i = sums.size(); i-- > 0;) {
    int64_t size = plan.outerSums[i].size;
    sums[i] = i ? b.create<arith::RemUIOp>(loc, part, index(size)) : part;
    if (i)
      part = b.create<arith::DivUIOp>(loc, part, index(size));
  }
  for (auto [dim, i] : llvm::zip_equal(plan.outerSums, sums)) {
    if (dim.lhs)
      lhs.fixed.push_back(i);
    if (dim.rhs)
      rhs.fixed.push_back(i);
  }
  if (sumTerms)
    emitOwnedSum();
  if (plan.isMicropanels()) {
    if (rhs.staged)
      stageMicropanelColumns();
  } else if (plan.quant)
    plan.quant->sumsRows ? stageQuantRows() : stageQuantColumns();
  else if (rhs.staged)
    stageColumns();
  if (matrices && rhs.staged)
    padColumns();
  groupStart = index(0);
  if (ownedRows)
    emitOwnedRows();
  else if (transposed)
    emitTransposedTiles();
  else if (lhs.staged || matrices)
    emitGroups();
  else
    emitRowTiles();
}

void ContractionEmitter::emitGroups() {
  forEachPart(isLastRows, plan.blockRows, plan.rowDim().size % plan.blockRows,
              groupRows, [&](Value i, int64_t rows) {
                if (matrices)
                  return emitMatrixGroup(mul(i, groupRows), rows);
                emitGroup(mul(i, groupRows), rows);
              });
}

void ContractionEmitter::emitGroup(Value start, int64_t rows) {
  groupStart = start;
  stageRows(start, rows);
  RowCover cover = coverEvenly(rows);
  forEach(cover.tall, [&](Value i) { emitRow(mul(i, height), height); });
  forEach(cover.low, [&](Value i) {
    emitRow(add(index(cover.tall * height), mul(i, height - 1)), height - 1);
  });
  if (cover.rest)
    emitRow(index((cover.tall + cover.low) * height), cover.rest);
}

// The block as one group.
void ContractionEmitter::emitRowTiles() {
  RowCover whole = coverEvenly(plan.blockRows), last{0, 0, 0};
  if (isLastRows)
    last = coverFromTop(plan.rowDim().size % plan.blockRows);
  auto tiles = [&](int64_t ofLast, int64_t ofWhole,
                   llvm::function_ref<void(Value)> body) {
    if (isLastRows && ofLast != ofWhole)
      forEach(select(isLastRows, ofLast, ofWhole), body);
    else
      forEach(ofWhole, body);
  };
  tiles(last.tall, whole.tall,
        [&](Value i) { emitRow(mul(i, height), height); });
  Value lowStart = select(isLastRows, last.tall * height, whole.tall * height);
  if (whole.low || last.low)
    tiles(last.low, whole.low, [&](Value i) {
      emitRow(add(lowStart, mul(i, height - 1)), height - 1);
    });
  if (last.rest)
    ifElse(isLastRows, [&] { emitRow(index(last.tall * height), last.rest); });
}

void ContractionEmitter::emitRow(Value row, int64_t rows) {
  forEachPanel([&](Value panel, int64_t columns) {
    emitTile({rows, columns, row, panel});
  });
}

//===--- one register tile ------------------------------------------------===//

void ContractionEmitter::emitTile(const Place &place) {
  auto type = VectorType::get({place.rows, place.columns}, accumulate);
  if (micropanelSums)
    return emitEpilogue(place,
                        b.create<tile::LoadOp>(
                            loc, type, micropanelSums,
                            ValueRange{rowOf(place), mul(place.panel, width)},
                            ValueRange(), ArrayRef<int64_t>{0, 1}));
  auto zeros = [&]() -> Value {
    return b.create<arith::ConstantOp>(loc, b.getZeroAttr(type));
  };
  SmallVector<Value> at{rowOf(place), mul(place.panel, width)};
  Value isFirst = partials ? isEqual(chunkIndex, 0) : Value();
  Value sum = chooseValue(isFirst, type, zeros, [&]() -> Value {
    return b.create<tile::LoadOp>(loc, type, partials, at, ValueRange(),
                                  ArrayRef<int64_t>{0, 1});
  });
  sum = emitProduct(place, sum);
  if (!partials)
    return emitEpilogue(place, sum);
  Value isLast = chunksHere ? Value(b.create<arith::CmpIOp>(
                                  loc, arith::CmpIPredicate::eq,
                                  add(chunkIndex, index(1)), chunksHere))
                            : isEqual(chunkIndex, chunks - 1);
  ifElse(
      isLast, [&] { emitEpilogue(place, sum); },
      [&] {
        b.create<tile::StoreOp>(loc, sum, partials, at, ValueRange(),
                                ArrayRef<int64_t>{0, 1});
      });
}

// Steps of kStep products up to `end`.
Value ContractionEmitter::emitStepLoop(const Place &place, Value end,
                                       Value accumulator) {
  auto loop = b.create<scf::ForOp>(loc, index(0), end, index(kStep),
                                   ValueRange{accumulator});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value next = emitSteps(place, loop.getInductionVar(), kStep,
                         loop.getRegionIterArgs()[0]);
  b.create<scf::YieldOp>(loc, next);
  return loop.getResult(0);
}

// A loop, then what is left of the last chunk.
Value ContractionEmitter::emitProduct(const Place &place, Value accumulator) {
  if (depthHere)
    return emitDynamicProduct(place, accumulator);
  int64_t lastChunk = plan.sum.size - (chunksOfSum - 1) * chunk;
  int64_t whole = chunk / kStep * kStep, tail = lastChunk % kStep;
  Value end = select(isLastOfSum, lastChunk / kStep * kStep, whole);
  if (whole || isLastOfSum)
    accumulator = emitStepLoop(place, end, accumulator);
  if (!tail)
    return accumulator;
  return chooseValue(
      isLastOfSum, accumulator.getType(),
      [&] {
        return emitSteps(place, index(lastChunk / kStep * kStep), tail,
                         accumulator);
      },
      [&] { return accumulator; });
}

Value ContractionEmitter::emitSteps(const Place &place, Value k, int64_t steps,
                                    Value accumulator) {
  Value row = lhs.staged ? place.row : add(rowStart, rowOf(place));
  Value column =
      rhs.staged ? index(0) : add(columnStart, mul(place.panel, width));
  if (plan.streams() && steps == kStep)
    prefetchColumns(column, k);
  Value left = loadSide(lhs, index(0), row, k, place.rows, steps, true);
  if (plan.streamsMicropanels() && steps == kStep)
    prefetchMicropanel(mul(place.panel, width), add(sumStart, k));
  Value right =
      rhs.micropanels && !rhs.staged
          ? loadMicropanel(mul(place.panel, width), add(sumStart, k),
                           place.columns, steps)
          : loadSide(rhs, place.panel, column, k, place.columns, steps, false);
  return b.create<tile::MmaOp>(loc, left, right, accumulator);
}

// lhs as [tile, k], rhs as [k, tile], staged or in place.
Value ContractionEmitter::loadSide(const ContractionSide &side, Value panel,
                                   Value at, Value k, int64_t tile,
                                   int64_t steps, bool isLeft) {
  SmallVector<int64_t> shape{tile, steps};
  if (!isLeft)
    std::swap(shape[0], shape[1]);
  auto type = VectorType::get(shape, compute);
  if (side.staged) {
    SmallVector<Value> indices{panel, at, k};
    SmallVector<int64_t> along{1, 2};
    if (side.sumFirst)
      std::swap(indices[1], indices[2]);
    if (side.sumFirst == isLeft)
      std::swap(along[0], along[1]);
    return b.create<tile::LoadOp>(loc, type, side.shared, indices, ValueRange(),
                                  along);
  }
  Type memory = cast<MemRefType>(side.memory.getType()).getElementType();
  Value loaded = b.create<tile::LoadOp>(loc, type.clone(memory), side.memory,
                                        indicesOf(side, at, add(sumStart, k)),
                                        ValueRange(), alongOf(side, !isLeft));
  return memory == compute ? loaded
                           : b.create<arith::ExtFOp>(loc, type, loaded);
}

// Prefetches the operands some iterations ahead; after the end of the columns,
// the beginning of the next ones. A prefetch outside the operand has no effect.
void ContractionEmitter::prefetchColumns(Value column, Value k) {
  constexpr int64_t kPrefetchDistance = 512;
  int64_t size = plan.sum.size;
  int64_t bytes = plan.rhs.memory.getIntOrFloatBitWidth() / 8;
  int64_t distance = std::min(kPrefetchDistance / bytes, size / kStep * kStep);
  Value next = add(add(sumStart, k), index(distance));
  Value wraps = b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::uge, next,
                                        index(size));
  next = b.create<arith::SelectOp>(
      loc, wraps, b.create<arith::SubIOp>(loc, next, index(size)), next);
  column = add(column, select(wraps, width, 0));
  for (int64_t i = 0; i < width; ++i)
    b.create<memref::PrefetchOp>(loc, rhs.memory,
                                 indicesOf(rhs, add(column, index(i)), next),
                                 /*isWrite=*/false, /*localityHint=*/3,
                                 /*isDataCache=*/true);
}

//===--- entry ------------------------------------------------------------===//

llvm::Error tessera::emitContraction(const ContractionPlan &plan,
                                     ClusterOp cluster, tile::KernelOp kernel,
                                     ArrayRef<Value> arguments,
                                     ArrayRef<Value> results,
                                     const TileTarget &target,
                                     OpBuilder &builder) {
  OpBuilder::InsertionGuard guard(builder);
  ContractionEmitter(plan, cluster, kernel, arguments, results, target, builder)
      .emit();
  return llvm::Error::success();
}
