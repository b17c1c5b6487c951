// Contractions of groups on a CPU. The number of rows of a block, or of terms
// of its sums, is read by the kernel. Register tiles stay static, so the rest
// after the full ones is covered by tiles of half the size, a quarter, down to
// one.
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/ContractionEmit.h"
#include "passes/kernels/contraction/GroupedRows.h"
#include "llvm/ADT/bit.h"

using namespace mlir;
using namespace tessera;

void ContractionEmitter::emitOwned(llvm::function_ref<void()> nest) {
  auto isSome = [&](Value count) -> Value {
    return b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::sgt, count,
                                   index(0));
  };
  Value none = index(0);
  if (ownedRows) {
    ifElse(isSome(ownedRows), nest);
    return epilogue.emitZeroRows(ownedRows, allRows);
  }
  int64_t last = plan.rowDim().size - (plan.rowBlocks() - 1) * plan.blockRows;
  Value rows = select(isLastRows, last, plan.blockRows);
  ifElse(isSome(sumTerms), nest, [&] { epilogue.emitZeroRows(none, rows); });
}

void ContractionEmitter::emitOwnedRows() {
  if (tiles.matrices)
    return emitOwnedMatrices();
  SmallVector<int64_t> sizes;
  bool isStaged =
      tiles.stagesRows && !micropanelSums; // sums are of rows that were
  if (isStaged)
    sizes.push_back(tiles.groupRows);
  sizes.push_back(tiles.height);
  for (int64_t size = llvm::bit_floor(static_cast<uint64_t>(tiles.height));
       size; size /= 2)
    sizes.push_back(size);
  forEachPartOf(ownedRows, sizes, [&](Value start, int64_t rows) {
    if (isStaged)
      return emitGroup(start, rows);
    emitRow(start, rows);
  });
}

//===--- matrix registers -------------------------------------------------===//

// Rows are streamed past a panel of columns; packed rows are not copied.
void ContractionEmitter::emitOwnedMatrices() {
  Value iterations = b.create<arith::DivUIOp>(
      loc, add(ownedRows, index(tiles.groupRows - 1)), index(tiles.groupRows));
  forEach(iterations, [&](Value iteration) {
    groupStart = mul(iteration, tiles.groupRows);
    Value rows = b.create<arith::MinSIOp>(
        loc, b.create<arith::SubIOp>(loc, ownedRows, groupStart),
        index(tiles.groupRows));
    if (tiles.stagesRows)
      stageOwnedRows(rows);
    forEachPanel([&](Value panel, int64_t columns) {
      emitOwnedPanel(panel, columns, rows);
    });
  });
}

void ContractionEmitter::stageOwnedRows(Value rows) {
  forEach(rows, [&](Value row) {
    Value from = add(add(rowStart, groupStart), row);
    forEachStep(tiles.chunk, [&](Value k, int64_t depth) {
      lhs->copy({rowCopy, index(0), from, k, 1, depth, /*at=*/row});
    });
  });
  b.create<tile::CommitOp>(loc);
  b.create<tile::WaitOp>(loc, 0);
  padRows(rows);
}

// Rows of a tile that are not the group's give sums that are not used.
void ContractionEmitter::emitOwnedPanel(Value panel, int64_t columns,
                                        Value rows) {
  Value sums = partials ? partials : tileSums;
  TilePlace all{0, columns, index(0), panel};
  SmallVector<Value> at(3, index(0));
  if (partials)
    at = {panel, groupStart, index(0)};
  forEachMatrixTile(rows, columns, [&](Value row, int64_t count) {
    auto product = [&](bool isFar) {
      emitMatrixProduct({count, columns, row, panel}, sums,
                        ValueRange{at[0], add(at[1], row), at[2]}, isFar);
    };
    bool isOneTile = count <= PackedRows::kTile;
    if (!plan.isMicropanels() || !isOneTile || plan.streamsMicropanels())
      return product(isOneTile && plan.isMicropanels());
    // Later tiles find the panel in a cache.
    ifElse(isEqual(row, 0), [&] { product(true); }, [&] { product(false); });
  });
  emitAfterLast([&] {
    forEachPartOf(rows, {4, 2, 1}, [&](Value row, int64_t count) {
      emitMatrixSums(all, sums, at, row, count);
    });
  });
}

// Many tiles at once if columns fill two registers. The rest is in one register
// if that is enough, and padded to a whole tile otherwise.
void ContractionEmitter::forEachMatrixTile(
    Value count, int64_t columns,
    llvm::function_ref<void(Value, int64_t)> body) {
  constexpr int64_t kTile = PackedRows::kTile, kRegister = kTile / 2;
  Value whole = index(0);
  if (tiles.groupRows > kRegister) {
    whole = b.create<arith::DivUIOp>(loc, add(count, index(kRegister - 1)),
                                     index(kTile));
    whole = mul(whole, kTile);
    SmallVector<int64_t> sizes;
    if (columns == kTile)
      for (int64_t size = llvm::PowerOf2Ceil(tiles.groupRows); size > kTile;
           size /= 2) {
        sizes.push_back(size);
        if (size * 3 / 4 % kTile == 0)
          sizes.push_back(size * 3 / 4);
      }
    llvm::erase_if(sizes, [&](int64_t size) {
      return size > int64_t(llvm::alignTo(tiles.groupRows, kTile));
    });
    sizes.push_back(kTile);
    forEachPartOf(whole, sizes, body);
  }
  Value isLeft =
      b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::slt, whole, count);
  ifElse(isLeft, [&] { body(whole, kRegister); });
}

//===--- sums -------------------------------------------------------------===//

Value ContractionEmitter::emitDynamicProduct(const TilePlace &place,
                                             Value accumulator) {
  if (tiles.kStep == 1)
    return emitStepLoop(place, depthHere, accumulator);
  // Evidently even, as an address of pairs has to be.
  Value end = mul(b.create<arith::DivUIOp>(loc, depthHere, index(tiles.kStep)),
                  tiles.kStep);
  Value left = b.create<arith::SubIOp>(loc, depthHere, end);
  accumulator = emitStepLoop(place, end, accumulator);
  // Pairs are staged with k even: one term more fills half of one.
  return chooseValue(
      isEqual(left, 1), accumulator.getType(),
      [&] { return emitSteps(place, end, 1, accumulator); },
      [&] { return accumulator; });
}
