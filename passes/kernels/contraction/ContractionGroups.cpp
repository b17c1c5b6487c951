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

//===--- which group ------------------------------------------------------===//

void ContractionEmitter::emitGroupIndices(Value rowBlock) {
  const ContractionGroups &groups = *plan.groups;
  Value sizes = epilogueTarget.arguments[groups.argument];
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
      rhs.fixed.insert(rhs.fixed.begin(), tile.group);
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
  chunksHere = b.create<arith::DivUIOp>(loc, add(sumTerms, index(chunk - 1)),
                                        index(chunk));
}

void ContractionEmitter::emitOwned(llvm::function_ref<void()> nest) {
  auto isSome = [&](Value count) -> Value {
    return b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::sgt, count,
                                   index(0));
  };
  Value none = index(0);
  if (ownedRows) {
    ifElse(isSome(ownedRows), nest);
    return emitZeroRows(ownedRows, allRows);
  }
  int64_t last = plan.rowDim().size - (plan.rowBlocks() - 1) * plan.blockRows;
  Value rows = select(isLastRows, last, plan.blockRows);
  ifElse(isSome(sumTerms), nest, [&] { emitZeroRows(none, rows); });
}

//===--- parts ------------------------------------------------------------===//

void ContractionEmitter::forEachPartOf(
    Value count, ArrayRef<int64_t> sizes,
    llvm::function_ref<void(Value, int64_t)> body) {
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

void ContractionEmitter::emitOwnedRows() {
  if (matrices)
    return emitOwnedMatrices();
  SmallVector<int64_t> sizes;
  bool isStaged = lhs.staged && !micropanelSums; // sums are of rows that were
  if (isStaged)
    sizes.push_back(groupRows);
  sizes.push_back(height);
  for (int64_t size = llvm::bit_floor(static_cast<uint64_t>(height)); size;
       size /= 2)
    sizes.push_back(size);
  forEachPartOf(ownedRows, sizes, [&](Value start, int64_t rows) {
    if (isStaged)
      return emitGroup(start, rows);
    emitRow(start, rows);
  });
}

void ContractionEmitter::emitZeroRows(Value begin, Value end) {
  auto loop = b.create<scf::ForOp>(loc, begin, end, index(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  groupStart = index(0);
  forEachPanel([&](Value panel, int64_t columns) {
    auto type = VectorType::get({1, columns}, accumulate);
    Value zeros = b.create<arith::ConstantOp>(loc, b.getZeroAttr(type));
    emitEpilogue({1, columns, loop.getInductionVar(), panel}, zeros);
  });
}

//===--- matrix registers -------------------------------------------------===//

// Rows are streamed past a panel of columns; packed rows are not copied.
void ContractionEmitter::emitOwnedMatrices() {
  Value iterations = b.create<arith::DivUIOp>(
      loc, add(ownedRows, index(groupRows - 1)), index(groupRows));
  forEach(iterations, [&](Value iteration) {
    groupStart = mul(iteration, groupRows);
    Value rows = b.create<arith::MinSIOp>(
        loc, b.create<arith::SubIOp>(loc, ownedRows, groupStart),
        index(groupRows));
    if (lhs.staged)
      stageOwnedRows(rows);
    forEachPanel([&](Value panel, int64_t columns) {
      emitOwnedPanel(panel, columns, rows);
    });
  });
}

void ContractionEmitter::stageOwnedRows(Value rows) {
  forEach(rows, [&](Value row) {
    Value from = add(add(rowStart, groupStart), row);
    forEachStep(chunk, [&](Value k, int64_t depth) {
      b.create<tile::CopyOp>(
          loc, lhs.memory, indicesOf(lhs, from, add(sumStart, k)), lhs.shared,
          ValueRange{index(0), row, k}, ValueRange(),
          ArrayRef<int64_t>{1, depth}, alongOf(lhs, lhs.sumFirst),
          ArrayRef<int64_t>{1, 2});
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
  Place all{0, columns, index(0), panel};
  SmallVector<Value> at(3, index(0));
  if (partials)
    at = {panel, groupStart, index(0)};
  forEachMatrixTile(rows, columns, [&](Value row, int64_t count) {
    auto product = [&](bool isFar) {
      emitMatrixProduct({count, columns, row, panel}, sums,
                        ValueRange{at[0], add(at[1], row), at[2]}, isFar);
    };
    bool isOneTile = count <= PackedRows::kTile;
    if (!rhs.micropanels || !isOneTile || plan.streamsMicropanels())
      return product(isOneTile && rhs.micropanels);
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
  if (groupRows > kRegister) {
    whole = b.create<arith::DivUIOp>(loc, add(count, index(kRegister - 1)),
                                     index(kTile));
    whole = mul(whole, kTile);
    SmallVector<int64_t> sizes;
    if (columns == kTile)
      for (int64_t size = llvm::PowerOf2Ceil(groupRows); size > kTile;
           size /= 2) {
        sizes.push_back(size);
        if (size * 3 / 4 % kTile == 0)
          sizes.push_back(size * 3 / 4);
      }
    llvm::erase_if(sizes, [&](int64_t size) {
      return size > int64_t(llvm::alignTo(groupRows, kTile));
    });
    sizes.push_back(kTile);
    forEachPartOf(whole, sizes, body);
  }
  Value isLeft =
      b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::slt, whole, count);
  ifElse(isLeft, [&] { body(whole, kRegister); });
}

//===--- sums -------------------------------------------------------------===//

void ContractionEmitter::emitOwnedSum() {
  Value done = mul(chunkIndex, chunk);
  sumStart = add(sumBegin, done);
  depthHere = b.create<arith::MinSIOp>(
      loc, b.create<arith::SubIOp>(loc, sumTerms, done), index(chunk));
}

Value ContractionEmitter::emitDynamicProduct(const Place &place,
                                             Value accumulator) {
  if (kStep == 1)
    return emitStepLoop(place, depthHere, accumulator);
  // Evidently even, as an address of pairs has to be.
  Value end =
      mul(b.create<arith::DivUIOp>(loc, depthHere, index(kStep)), kStep);
  Value left = b.create<arith::SubIOp>(loc, depthHere, end);
  accumulator = emitStepLoop(place, end, accumulator);
  // Pairs are staged with k even: one term more fills half of one.
  return chooseValue(
      isEqual(left, 1), accumulator.getType(),
      [&] { return emitSteps(place, end, 1, accumulator); },
      [&] { return accumulator; });
}
