#include "passes/kernels/contraction/MatrixProduct.h"
#include "dialects/tile/Interleave.h"
#include "passes/kernels/ClusterLaunch.h"

using namespace mlir;
using namespace tessera;

// A tile's rows and columns; terms that are added at once; what `shape` of
// tile.mma_staged is a multiple of.
static constexpr int64_t kTile = PackedRows::kTile, kTerms = PackedRows::kTerms,
                         kUnit = 16;
// Rows of the epilogue in each iteration; if interleaved with products, as much
// as fits into the time of one block of terms.
static constexpr int64_t kRowsOfEpilogue = 4, kInterleavedRows = 2;
// Padding between staged rows, a cache line, so that they do not map to one
// cache set.
static constexpr int64_t kLinePadding = 32;

//===--- a chunk ----------------------------------------------------------===//

Value MatrixRegisters::keepsSums() const {
  if (!hasPartials() || inLastChunk == true)
    return b.create<arith::ConstantOp>(loc, b.getBoolAttr(hasPartials()));
  return compare(arith::CmpIPredicate::ne, block.chunkIndex, index(0));
}

Value MatrixRegisters::depth() const {
  int64_t last = llvm::alignTo(block.lastChunk(), kTerms),
          whole = llvm::alignTo(tiles.chunk, kTerms);
  if (inLastChunk)
    return index(*inLastChunk ? last : whole);
  return select(block.isLastOfSum, last, whole);
}

void MatrixRegisters::afterLast(llvm::function_ref<void()> finish) const {
  if (hasPartials())
    ifElse(isEqual(block.chunkIndex, tiles.chunks - 1), finish);
  else
    finish();
}

//===--- memory -----------------------------------------------------------===//

// Whether rows are streamed past a panel of columns, instead of panels past
// rows.
bool MatrixProduct::keepsPanels() const {
  return plan.isMicropanels() || packed || plan.groups;
}

Value MatrixProduct::allocateRows() const {
  int64_t rows = llvm::alignTo(tiles.groupRows, kTile),
          depth = llvm::alignTo(tiles.chunk, kTerms);
  return block.allocate({1, rows, depth + kLinePadding}, tiles.compute);
}

Value MatrixProduct::allocateSums() const {
  int64_t panels = partsOf(plan.blockColumns, kTile),
          rows = keepsPanels() ? llvm::alignTo(tiles.groupRows, kTile) : kTile;
  if (!hasPartials())
    return block.allocate({1, rows, kTile}, tiles.accumulate);
  rows = llvm::alignTo(plan.blockRows, kTile);
  return block.allocate({panels, rows, kTile}, tiles.accumulate);
}

// Zeros after the last terms, up to a whole block of them: body(terms of the
// last chunk) if they are not a whole number of blocks.
void MatrixProduct::padSums(llvm::function_ref<void(int64_t)> body) {
  int64_t last = block.lastChunk();
  if (last % kTerms == 0)
    return;
  if (block.isLastOfSum)
    ifElse(block.isLastOfSum, [&] { body(last); });
  else
    body(last);
}

// [rows, columns] of `memory`, from `at` on.
void MatrixProduct::storeZeros(Value memory, ArrayRef<Value> at, int64_t rows,
                               int64_t columns) {
  store(zeros(VectorType::get({rows, columns}, tiles.compute)), memory, at,
        {1, 2});
}

// Of all panels, if all are staged at once. If only two are, terms are whole
// blocks (ContractionTiles::interleaves).
void MatrixProduct::padColumns() {
  padSums([&](int64_t last) {
    int64_t first = llvm::alignTo(last, 2), // an odd last one is padded
        end = llvm::alignTo(last, kTerms);
    forEach(partsOf(plan.blockColumns, kTile), [&](Value panel) {
      forEach((end - first) / 2, [&](Value pair) {
        Value k = add(index(first), mul(pair, 2));
        storeZeros(rhs->copy, {panel, k, index(0)}, 2, kTile);
      });
    });
  });
}

void MatrixProduct::padRows(Value rows) {
  padSums([&](int64_t last) {
    int64_t end = llvm::alignTo(last, kTerms);
    forEach(rows, [&](Value row) {
      storeZeros(rowCopy, {index(0), row, index(last)}, 1, end - last);
    });
  });
}

//===--- the nest ---------------------------------------------------------===//

void MatrixProduct::multiply() {
  if (tiles.stagesColumns)
    padColumns();
  block.groupStart = index(0);
  multiplyRows();
}

void MatrixProduct::multiplyRows() {
  forEachPart(
      block.isLastRows, plan.blockRows, plan.rowDim().size % plan.blockRows,
      tiles.groupRows,
      [&](Value i, int64_t rows) { emitGroup(mul(i, tiles.groupRows), rows); });
}

void MatrixProduct::emitGroup(Value start, int64_t rows) {
  block.groupStart = start;
  if (tiles.stagesRows) {
    stageRows(start, rows);
    padRows(index(rows));
  }
  if (!keepsPanels())
    return forEachPart({}, rows, rows, kTile, [&](Value i, int64_t here) {
      Value row = mul(i, kTile);
      block.forEachPanel([&](Value panel, int64_t columns) {
        emitTile({here, columns, row, panel});
      });
    });
  // Panels of micropanels are loaded from beyond L2, once for all rows that are
  // staged; with packed rows a panel stays in L1.
  block.forEachPanel([&](Value panel, int64_t columns) {
    int64_t whole = columns == kTile ? rows / kTile * kTile : 0;
    if (whole > 0)
      emitTile({whole, columns, index(0), panel});
    forEachPart({}, rows - whole, rows - whole, kTile,
                [&](Value i, int64_t here) {
                  Value row = add(index(whole), mul(i, kTile));
                  emitTile({here, columns, row, panel});
                });
    if (tiles.interleaves && whole <= kTile) // nothing to interleave with
      stageNext(panel);
  });
}

// As many blocks of terms as tile.mma_staged adds.
void MatrixProduct::stageNext(Value panel) {
  rhs->stageNext(panel, div(depth(), kTerms));
}

// Staged rows fill whole registers; rows in place are as many as there are.
void MatrixProduct::emitProduct(const TilePlace &place, ArrayRef<Value> at,
                                bool isFar) {
  bool isStaged = tiles.stagesRows || packed;
  int64_t rows = isStaged ? llvm::alignTo(place.rows, kUnit) : place.rows,
          columns = llvm::alignTo(place.columns, kUnit);
  Value slot = rhs->slotOf(place.panel);
  SmallVector<Value> left{index(0), place.row, index(0)};
  if (packed)
    left = {block.chunkIndex, add(block.rowStart, block.rowOf(place)),
            index(0)};
  else if (!isStaged)
    left =
        lhs.indicesOf(add(block.rowStart, block.rowOf(place)), block.sumStart);
  Value rowsOf = packed ? packed : isStaged ? rowCopy : lhs.memory;
  ColumnSource::Panel right{rhs->copy, {slot, index(0), index(0)}};
  if (!tiles.stagesColumns)
    right = rhs->panelInPlace(place.panel);
  b.create<tile::MmaStagedOp>(loc, rowsOf, left, right.memory, right.indices,
                              sums, at, keepsSums(), depth(),
                              SmallVector<int64_t>{rows, columns}, isFar);
}

void MatrixProduct::emitTile(const TilePlace &place) {
  SmallVector<Value> at(3, index(0));
  if (hasPartials())
    at = {place.panel, block.rowOf(place), index(0)};
  if (place.rows > kTile)
    return emitManyTiles(place, at);
  emitProduct(place, at, plan.streamsMicropanels());
  afterLast([&] {
    forEachPart({}, place.rows, place.rows, kRowsOfEpilogue,
                [&](Value i, int64_t rows) {
                  emitSums(place, at, mul(i, kRowsOfEpilogue), rows);
                });
  });
}

void MatrixProduct::emitSums(const TilePlace &place, ArrayRef<Value> at,
                             Value row, int64_t rows) {
  auto type = VectorType::get({rows, place.columns}, tiles.accumulate);
  Value sum = load(type, sums, {at[0], add(at[1], row), at[2]}, {1, 2});
  epilogue.emit({rows, place.columns, add(place.row, row), place.panel}, sum);
}

//===--- many tiles of rows at once ---------------------------------------===//

// Prefetches what the epilogue of the next tile reads and writes: its rows are
// far apart, so the processor detects no stream. L1 is reserved for the
// products. Addresses outside the operands are not prefetched.
static void prefetchNextTile(OpBuilder b, scf::ForOp iterations) {
  constexpr int kSecondCache = 2;
  Location loc = iterations.getLoc();
  b.setInsertionPoint(iterations.getBody()->getTerminator());
  auto prefetch = [&](Value memory, ValueRange indices,
                      ArrayRef<int64_t> along) {
    if (cast<MemRefType>(memory.getType()).getMemorySpace() ||
        along.size() != 2)
      return;
    SmallVector<Value> at(indices);
    for (int64_t i = 0; i < kInterleavedRows; ++i) {
      at[along[0]] = b.createOrFold<arith::AddIOp>(
          loc, indices[along[0]], emitIndex(b, loc, kTile + i));
      b.create<memref::PrefetchOp>(loc, memory, at, /*isWrite=*/false,
                                   kSecondCache, /*isDataCache=*/true);
    }
  };
  for (Operation &op : llvm::make_early_inc_range(*iterations.getBody()))
    if (auto load = dyn_cast<tile::LoadOp>(op))
      prefetch(load.getMemory(), load.getIndices(), load.getAlong());
    else if (auto store = dyn_cast<tile::StoreOp>(op))
      prefetch(store.getMemory(), store.getIndices(), store.getAlong());
}

// The epilogue of one tile may be interleaved with the products of the next,
// whose instructions are few and long.
void MatrixProduct::emitInterleaved(const TilePlace &place,
                                    ArrayRef<Value> at) {
  Value iterations = index(place.rows / kInterleavedRows), zero = index(0),
        one = index(1);
  emitManyProducts(place, at, true);
  auto loop = b.create<scf::ForOp>(loc, zero, iterations, one);
  loop->setAttr(tile::kInterleaveAttr, b.getUnitAttr());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  emitSums(place, at, mul(loop.getInductionVar(), kInterleavedRows),
           kInterleavedRows);
  prefetchNextTile(b, loop);
}

void MatrixProduct::emitManyTiles(const TilePlace &place, ArrayRef<Value> at) {
  if (!hasPartials())
    return emitInterleaved(place, at);
  ifElse(
      isEqual(block.chunkIndex, tiles.chunks - 1),
      [&] { emitInterleaved(place, at); },
      [&] {
        emitManyProducts(place, at,
                         plan.outerSums.empty() ? std::optional(false)
                                                : std::nullopt);
      });
}

void MatrixProduct::emitManyProducts(const TilePlace &place, ArrayRef<Value> at,
                                     std::optional<bool> isLast) {
  inLastChunk = isLast;
  emitProduct(place, at, /*isFar=*/false);
  if (tiles.interleaves)
    stageNext(place.panel);
  inLastChunk.reset();
}

std::unique_ptr<ContractionEngine>
tessera::matrixProduct(ContractionBlock &block, ContractionEpilogue &epilogue) {
  if (block.plan.groups)
    return groupedMatrixProduct(block, epilogue);
  return std::make_unique<MatrixProduct>(block, epilogue);
}
