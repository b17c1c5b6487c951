#include "passes/kernels/contraction/ContractionEmit.h"
#include "passes/kernels/ClusterLaunch.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

// Padding of staged rows, one line of f32, so that they do not map to one cache
// set.
static constexpr int64_t kRowPadding = 16;
ContractionEmitter::ContractionEmitter(const ContractionPlan &plan,
                                       ClusterOp cluster, tile::KernelOp kernel,
                                       ArrayRef<Value> arguments,
                                       ArrayRef<Value> results,
                                       const TileTarget &target,
                                       OpBuilder &builder)
    : ContractionBlock(plan, kernel, arguments, target, builder),
      epilogue(*this, cluster, results) {
  if (tiles.readsPacked)
    packed = emitView(b, loc, kernel.getBuffers()[0], plan.packed->view());
  if (!plan.quant || !plan.quant->integers)
    lhs.emplace(*this, /*isLeft=*/true);
  if (streamsQuantized())
    weights.emplace(*this);
  else
    rhs = columnsOf(*this);
}

//===--- the nest ---------------------------------------------------------===//

void ContractionEmitter::emit() {
  begin();
  emitAllocations();
  epilogue.begin();
  auto nest = [&] { streamsQuantized() ? emitStreamed() : emitChunks(); };
  plan.groups ? emitOwned(nest) : nest();
}

void ContractionEmitter::emitChunks() {
  forEach(chunksHere ? chunksHere : index(tiles.chunks), [&](Value i) {
    beginChunk(i);
    emitChunk();
  });
}

void ContractionEmitter::emitAllocations() {
  if (streamsQuantized())
    return allocateStreamed();
  rhs->allocateScales();
  if (tiles.matrices)
    return allocateMatrices();
  if (tiles.stagesRows)
    allocateRows();
  rhs->allocate();
  if (tiles.chunks > 1)
    partials = allocate(
        {plan.blockRows, partsOf(plan.blockColumns, tiles.width) * tiles.width},
        tiles.accumulate);
}

void ContractionEmitter::allocateRows() {
  int64_t depth = partsOf(tiles.chunk, 2) * 2;
  if (!tiles.rowsSumFirst)
    rowCopy =
        allocate({1, tiles.groupRows, depth + kRowPadding}, tiles.compute);
  else
    rowCopy = allocate({1, depth, tiles.groupRows + kRowPadding}, tiles.compute,
                       tiles.pairs ? tile::Layout::pairs : tile::Layout::rows);
}

void ContractionEmitter::emitChunk() {
  if (tiles.stagesColumns) {
    rhs->stage();
    if (tiles.matrices)
      padColumns();
  }
  groupStart = index(0);
  if (ownedRows)
    emitOwnedRows();
  else if (tiles.transposed)
    emitTransposedTiles();
  else if (tiles.stagesRows || tiles.matrices)
    emitGroups();
  else
    emitRowTiles();
}

void ContractionEmitter::stageRows(Value start, int64_t rows) {
  forEachStep(tiles.chunk, [&](Value k, int64_t depth) {
    lhs->stage({rowCopy, index(0), add(rowStart, start), k, rows, depth});
  });
}

// Tiles of two heights that differ by one, so that none is much lower than the
// others, if so many rows can be covered that way.
ContractionEmitter::RowCover
ContractionEmitter::coverEvenly(int64_t rows) const {
  int64_t tileCount = partsOf(rows, tiles.height);
  int64_t tall = rows - tileCount * (tiles.height - 1);
  if (tall < 0)
    return coverFromTop(rows);
  return {tall, tileCount - tall, 0};
}

// As many of the full height as fit, so that only the height of the remainder
// is added.
ContractionEmitter::RowCover
ContractionEmitter::coverFromTop(int64_t rows) const {
  RowCover cover{rows / tiles.height, 0, rows % tiles.height};
  if (cover.rest && cover.rest == tiles.height - 1)
    return {cover.tall, 1, 0};
  return cover;
}

void ContractionEmitter::emitGroups() {
  forEachPart(isLastRows, plan.blockRows, plan.rowDim().size % plan.blockRows,
              tiles.groupRows, [&](Value i, int64_t rows) {
                if (tiles.matrices)
                  return emitMatrixGroup(mul(i, tiles.groupRows), rows);
                emitGroup(mul(i, tiles.groupRows), rows);
              });
}

void ContractionEmitter::emitGroup(Value start, int64_t rows) {
  groupStart = start;
  stageRows(start, rows);
  RowCover cover = coverEvenly(rows);
  forEach(cover.tall,
          [&](Value i) { emitRow(mul(i, tiles.height), tiles.height); });
  forEach(cover.low, [&](Value i) {
    emitRow(add(index(cover.tall * tiles.height), mul(i, tiles.height - 1)),
            tiles.height - 1);
  });
  if (cover.rest)
    emitRow(index((cover.tall + cover.low) * tiles.height), cover.rest);
}

// The block as one group.
void ContractionEmitter::emitRowTiles() {
  RowCover whole = coverEvenly(plan.blockRows), last{0, 0, 0};
  if (isLastRows)
    last = coverFromTop(plan.rowDim().size % plan.blockRows);
  auto cover = [&](int64_t ofLast, int64_t ofWhole,
                   llvm::function_ref<void(Value)> body) {
    if (isLastRows && ofLast != ofWhole)
      forEach(select(isLastRows, ofLast, ofWhole), body);
    else
      forEach(ofWhole, body);
  };
  cover(last.tall, whole.tall,
        [&](Value i) { emitRow(mul(i, tiles.height), tiles.height); });
  Value lowStart =
      select(isLastRows, last.tall * tiles.height, whole.tall * tiles.height);
  if (whole.low || last.low)
    cover(last.low, whole.low, [&](Value i) {
      emitRow(add(lowStart, mul(i, tiles.height - 1)), tiles.height - 1);
    });
  if (last.rest)
    ifElse(isLastRows,
           [&] { emitRow(index(last.tall * tiles.height), last.rest); });
}

void ContractionEmitter::emitRow(Value row, int64_t rows) {
  forEachPanel([&](Value panel, int64_t columns) {
    emitTile({rows, columns, row, panel});
  });
}

//===--- one register tile ------------------------------------------------===//

void ContractionEmitter::emitTile(const TilePlace &place) {
  auto type = VectorType::get({place.rows, place.columns}, tiles.accumulate);
  if (micropanelSums)
    return epilogue.emit(
        place, b.create<tile::LoadOp>(
                   loc, type, micropanelSums,
                   ValueRange{rowOf(place), mul(place.panel, tiles.width)},
                   ValueRange(), ArrayRef<int64_t>{0, 1}));
  auto zeros = [&]() -> Value {
    return b.create<arith::ConstantOp>(loc, b.getZeroAttr(type));
  };
  SmallVector<Value> at{rowOf(place), mul(place.panel, tiles.width)};
  Value isFirst = partials ? isEqual(chunkIndex, 0) : Value();
  Value sum = chooseValue(isFirst, type, zeros, [&]() -> Value {
    return b.create<tile::LoadOp>(loc, type, partials, at, ValueRange(),
                                  ArrayRef<int64_t>{0, 1});
  });
  sum = emitProduct(place, sum);
  if (!partials)
    return epilogue.emit(place, sum);
  Value isLast = chunksHere ? Value(b.create<arith::CmpIOp>(
                                  loc, arith::CmpIPredicate::eq,
                                  add(chunkIndex, index(1)), chunksHere))
                            : isEqual(chunkIndex, tiles.chunks - 1);
  ifElse(
      isLast, [&] { epilogue.emit(place, sum); },
      [&] {
        b.create<tile::StoreOp>(loc, sum, partials, at, ValueRange(),
                                ArrayRef<int64_t>{0, 1});
      });
}

// Steps of kStep products up to `end`.
Value ContractionEmitter::emitStepLoop(const TilePlace &place, Value end,
                                       Value accumulator) {
  auto loop = b.create<scf::ForOp>(loc, index(0), end, index(tiles.kStep),
                                   ValueRange{accumulator});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value next = emitSteps(place, loop.getInductionVar(), tiles.kStep,
                         loop.getRegionIterArgs()[0]);
  b.create<scf::YieldOp>(loc, next);
  return loop.getResult(0);
}

// A loop, then what is left of the last chunk.
Value ContractionEmitter::emitProduct(const TilePlace &place,
                                      Value accumulator) {
  if (depthHere)
    return emitDynamicProduct(place, accumulator);
  int64_t last = lastChunk();
  int64_t whole = tiles.chunk / tiles.kStep * tiles.kStep,
          tail = last % tiles.kStep;
  Value end = select(isLastOfSum, last / tiles.kStep * tiles.kStep, whole);
  if (whole || isLastOfSum)
    accumulator = emitStepLoop(place, end, accumulator);
  if (!tail)
    return accumulator;
  return chooseValue(
      isLastOfSum, accumulator.getType(),
      [&] {
        return emitSteps(place, index(last / tiles.kStep * tiles.kStep), tail,
                         accumulator);
      },
      [&] { return accumulator; });
}

Value ContractionEmitter::emitSteps(const TilePlace &place, Value k,
                                    int64_t steps, Value accumulator) {
  Value row = tiles.stagesRows ? place.row : add(rowStart, rowOf(place));
  Value column = rhs->beginOf(place.panel);
  if (plan.streams() && steps == tiles.kStep)
    rhs->prefetch(column, k);
  Value left = loadRows(row, k, place.rows, steps);
  Value right = rhs->load(place, column, k, steps);
  return b.create<tile::MmaOp>(loc, left, right, accumulator);
}

// [rows, steps], staged or in place.
Value ContractionEmitter::loadRows(Value row, Value k, int64_t rows,
                                   int64_t steps) {
  auto type = VectorType::get({rows, steps}, tiles.compute);
  if (!tiles.stagesRows)
    return lhs->loadInPlace(row, k, rows, steps);
  if (tiles.rowsSumFirst)
    return load(type, rowCopy, {index(0), k, row}, {2, 1});
  return load(type, rowCopy, {index(0), row, k}, {1, 2});
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
