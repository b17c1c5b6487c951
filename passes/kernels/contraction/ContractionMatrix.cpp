// Contractions of bf16 in matrix registers (AMX): both operands are staged,
// tiles of 32 × 32 are multiplied by tile.mma_staged, and the epilogue reads
// their sums from memory. Weights in micropanels are read in place
// (ContractionMicropanels.cpp). Many rows multiplied by them, or by quantized
// weights, were packed by an earlier launch (PackedRows.cpp).
//
// k is padded with zeros to a whole block of terms on both sides. Padding rows
// and columns of a tile are undefined, and their sums are not used.
#include "dialects/tile/Interleave.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/ContractionEmit.h"

using namespace mlir;
using namespace tessera;

// A tile's rows and columns; terms that are added at once; what `shape` of
// tile.mma_staged is a multiple of.
static constexpr int64_t kTile = PackedRows::kTile, kTerms = PackedRows::kTerms,
                         kUnit = 16;
// Rows of the epilogue in each iteration; if interleaved with products, as much
// as fits into the time of one block of terms.
static constexpr int64_t kEpilogueRows = 4, kInterleavedRows = 2;
// Padding between staged rows, a cache line, so that they do not map to one
// cache set.
static constexpr int64_t kLinePadding = 32;

// Whether rows are streamed past a panel of columns, instead of panels past
// rows.
bool ContractionEmitter::keepsPanels() const {
  return plan.isMicropanels() || packed || plan.groups;
}

void ContractionEmitter::allocateMatrices() {
  int64_t depth = llvm::alignTo(tiles.chunk, kTerms),
          panels = partsOf(plan.blockColumns, kTile);
  if (tiles.transposed) {
    rowCopy = allocate({1, depth, plan.blockRows}, tiles.compute,
                       tile::Layout::pairs);
    Value sums =
        allocate({tiles.chunks > 1 ? panels * kTile : kTile, plan.blockRows},
                 tiles.accumulate);
    (tiles.chunks > 1 ? partials : tileSums) = sums;
    return;
  }
  if (tiles.stagesRows)
    rowCopy = allocate({1, int64_t(llvm::alignTo(tiles.groupRows, kTile)),
                        depth + kLinePadding},
                       tiles.compute);
  rhs->allocate();
  if (tiles.chunks > 1)
    partials =
        allocate({panels, int64_t(llvm::alignTo(plan.blockRows, kTile)), kTile},
                 tiles.accumulate);
  else
    tileSums = allocate(
        {1,
         keepsPanels() ? int64_t(llvm::alignTo(tiles.groupRows, kTile)) : kTile,
         kTile},
        tiles.accumulate);
}

// Zeros after the last terms, up to a whole block of them.
void ContractionEmitter::padSums(llvm::function_ref<void(int64_t)> body) {
  int64_t last = lastChunk();
  if (last % kTerms == 0)
    return;
  if (isLastOfSum)
    ifElse(isLastOfSum, [&] { body(last); });
  else
    body(last);
}

// [rows, columns] zeros of `memory` at `start` of slot `slot`.
void ContractionEmitter::storeZeros(Value memory, Value slot,
                                    std::pair<Value, Value> start, int64_t rows,
                                    int64_t columns) {
  auto type = VectorType::get({rows, columns}, tiles.compute);
  Value zeros = b.create<arith::ConstantOp>(loc, b.getZeroAttr(type));
  b.create<tile::StoreOp>(loc, zeros, memory,
                          ValueRange{slot, start.first, start.second},
                          ValueRange(), ArrayRef<int64_t>{1, 2});
}

// Of all panels, if all are staged at once. If only two are, terms are whole
// blocks (interleavesDequantization).
void ContractionEmitter::padColumns() {
  padSums([&](int64_t last) {
    int64_t first = llvm::alignTo(last, 2), // an odd last one is padded
        end = llvm::alignTo(last, kTerms);
    forEach(partsOf(plan.blockColumns, kTile), [&](Value panel) {
      forEach((end - first) / 2, [&](Value pair) {
        Value k = add(index(first), mul(pair, 2));
        storeZeros(rhs->copy, panel, {k, index(0)}, 2, kTile);
      });
    });
  });
}

void ContractionEmitter::padRows(Value rows) {
  padSums([&](int64_t last) {
    int64_t end = llvm::alignTo(last, kTerms);
    forEach(rows, [&](Value row) {
      storeZeros(rowCopy, index(0), {row, index(last)}, 1, end - last);
    });
  });
}

void ContractionEmitter::emitMatrixGroup(Value start, int64_t rows) {
  groupStart = start;
  if (tiles.stagesRows) {
    stageRows(start, rows);
    padRows(index(rows));
  }
  auto forEachRow = [&](llvm::function_ref<void(Value, int64_t)> body) {
    forEachPart({}, rows, rows, kTile,
                [&](Value i, int64_t here) { body(mul(i, kTile), here); });
  };
  // Panels of micropanels are loaded from beyond L2, once for all rows that are
  // staged; with packed rows a panel stays in L1.
  if (keepsPanels())
    return forEachPanel([&](Value panel, int64_t columns) {
      int64_t whole = columns == kTile ? rows / kTile * kTile : 0;
      if (whole > 0)
        emitMatrixTile({whole, columns, index(0), panel});
      forEachPart({}, rows - whole, rows - whole, kTile,
                  [&](Value i, int64_t here) {
                    Value row = add(index(whole), mul(i, kTile));
                    emitMatrixTile({here, columns, row, panel});
                  });
      if (tiles.interleaves && whole <= kTile) // nothing to interleave with
        rhs->stageNext(panel, blocksOfTerms());
    });
  forEachRow([&](Value row, int64_t here) {
    forEachPanel([&](Value panel, int64_t columns) {
      emitMatrixTile({here, columns, row, panel});
    });
  });
}

// Staged rows fill whole registers; rows in place are as many as there are.
void ContractionEmitter::emitMatrixProduct(const TilePlace &place, Value sums,
                                           ValueRange at, bool isFar) {
  bool isStaged = tiles.stagesRows || packed;
  int64_t rows = isStaged ? llvm::alignTo(place.rows, kUnit) : place.rows;
  SmallVector<int64_t> shape{rows,
                             int64_t(llvm::alignTo(place.columns, kUnit))};
  Value slot = rhs->slotOf(place.panel);
  SmallVector<Value> left{index(0), place.row, index(0)};
  if (packed)
    left = {chunkIndex, add(rowStart, rowOf(place)), index(0)};
  else if (!isStaged)
    left = lhs->indicesOf(add(rowStart, rowOf(place)), sumStart);
  Value rowsOf = packed ? packed : isStaged ? rowCopy : lhs->memory;
  ColumnSource::Panel right{rhs->copy, {slot, index(0), index(0)}};
  if (!tiles.stagesColumns)
    right = rhs->panelInPlace(place.panel);
  b.create<tile::MmaStagedOp>(loc, rowsOf, left, right.memory, right.indices,
                              sums, at, keepsSums(), matrixDepth(), shape,
                              isFar);
}

Value ContractionEmitter::keepsSums() {
  if (!partials || inLastChunk == true)
    return b.create<arith::ConstantOp>(loc, b.getBoolAttr(bool(partials)));
  return b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::ne, chunkIndex,
                                 index(0));
}

Value ContractionEmitter::matrixDepth() {
  int64_t last = lastChunk();
  if (inLastChunk)
    return index(llvm::alignTo(*inLastChunk ? last : tiles.chunk, kTerms));
  return select(isLastOfSum, llvm::alignTo(last, kTerms),
                llvm::alignTo(tiles.chunk, kTerms));
}

Value ContractionEmitter::blocksOfTerms() {
  return b.createOrFold<arith::DivUIOp>(loc, matrixDepth(), index(kTerms));
}

void ContractionEmitter::emitMatrixTile(const TilePlace &place) {
  SmallVector<Value> at(3, index(0));
  Value sums = partials ? partials : tileSums;
  if (partials)
    at = {place.panel, rowOf(place), index(0)};
  if (place.rows > kTile)
    return emitManyTiles(place, sums, at);
  emitMatrixProduct(place, sums, at, plan.streamsMicropanels());
  emitAfterLast([&] {
    forEachPart({}, place.rows, place.rows, kEpilogueRows,
                [&](Value i, int64_t rows) {
                  emitMatrixSums(place, sums, at, mul(i, kEpilogueRows), rows);
                });
  });
}

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

// Many tiles of rows at once. The epilogue of one may be interleaved with the
// products of the next, whose instructions are few and long.
void ContractionEmitter::emitManyTiles(const TilePlace &place, Value sums,
                                       ArrayRef<Value> at) {
  auto products = [&](std::optional<bool> isLast) {
    inLastChunk = isLast;
    emitMatrixProduct(place, sums, at, /*isFar=*/false);
    if (tiles.interleaves)
      rhs->stageNext(place.panel, blocksOfTerms());
    inLastChunk.reset();
  };
  auto finish = [&] {
    Value iterations = index(place.rows / kInterleavedRows), zero = index(0),
          one = index(1);
    products(true);
    auto loop = b.create<scf::ForOp>(loc, zero, iterations, one);
    loop->setAttr(tile::kInterleaveAttr, b.getUnitAttr());
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    emitMatrixSums(place, sums, at,
                   mul(loop.getInductionVar(), kInterleavedRows),
                   kInterleavedRows);
    prefetchNextTile(b, loop);
  };
  if (partials)
    ifElse(isEqual(chunkIndex, tiles.chunks - 1), finish, [&] {
      products(plan.outerSums.empty() ? std::optional(false) : std::nullopt);
    });
  else
    finish();
}

// The epilogue of `rows` rows of a tile, from `row` of it on.
void ContractionEmitter::emitMatrixSums(const TilePlace &place, Value sums,
                                        ArrayRef<Value> at, Value row,
                                        int64_t rows) {
  auto type = VectorType::get({rows, place.columns}, tiles.accumulate);
  Value sum = b.create<tile::LoadOp>(loc, type, sums,
                                     ValueRange{at[0], add(at[1], row), at[2]},
                                     ValueRange(), ArrayRef<int64_t>{1, 2});
  epilogue.emit({rows, place.columns, add(place.row, row), place.panel}, sum);
}

void ContractionEmitter::emitAfterLast(llvm::function_ref<void()> finish) {
  if (partials)
    ifElse(isEqual(chunkIndex, tiles.chunks - 1), finish);
  else
    finish();
}

// The transposed product: columns of the result are rows of the matrix
// registers.
void ContractionEmitter::emitTransposedTiles() {
  stageRows(index(0), plan.blockRows);
  int64_t rows = plan.blockRows;
  Value sums = partials ? partials : tileSums;
  forEachPanel([&](Value panel, int64_t columns) {
    ColumnSource::Panel left = rhs->panelInPlace(panel);
    Value at = partials ? mul(panel, kTile) : index(0);
    b.create<tile::MmaStagedOp>(
        loc, left.memory, left.indices, rowCopy,
        ValueRange{index(0), index(0), index(0)}, sums,
        ValueRange{at, index(0)}, keepsSums(), matrixDepth(),
        SmallVector<int64_t>{columns, rows}, /*far=*/true);
    emitAfterLast([&] {
      auto type = VectorType::get({rows, columns}, tiles.accumulate);
      auto transposedType = VectorType::get({columns, rows}, tiles.accumulate);
      bool isRun = rows == 1;
      Value sum = b.create<tile::LoadOp>(
          loc, isRun ? type : transposedType, sums, ValueRange{at, index(0)},
          ValueRange(),
          isRun ? ArrayRef<int64_t>{1, 0} : ArrayRef<int64_t>{0, 1});
      if (!isRun)
        sum = b.create<tile::TransposeOp>(loc, type, sum);
      epilogue.emit({rows, columns, index(0), panel}, sum);
    });
  });
}
