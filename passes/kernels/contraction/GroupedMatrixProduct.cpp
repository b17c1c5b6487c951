// Rows of groups in matrix registers. The number of a block's rows is read by
// the kernel, and tiles stay static: the last may extend past the group's rows,
// which gives sums that are not used.
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/MatrixProduct.h"

using namespace mlir;
using namespace tessera;

namespace {
class GroupedMatrixProduct : public MatrixProduct {
public:
  using MatrixProduct::MatrixProduct;

private:
  void multiplyRows() override;
  void stageGroup(Value rows);
  void emitPanel(Value panel, int64_t columns, Value rows);
  /// body(row, rows) over tiles, the last of which may extend past `count`
  /// rows.
  void forEachTileOf(Value count, int64_t columns, RowsBody body) const;
};
} // namespace

// Rows are streamed past a panel of columns; packed rows are not copied.
void GroupedMatrixProduct::multiplyRows() {
  Value iterations = b.create<arith::DivUIOp>(
      loc, add(block.ownedRows, index(tiles.groupRows - 1)),
      index(tiles.groupRows));
  forEach(iterations, [&](Value iteration) {
    block.groupStart = mul(iteration, tiles.groupRows);
    Value rows = b.create<arith::MinSIOp>(
        loc, b.create<arith::SubIOp>(loc, block.ownedRows, block.groupStart),
        index(tiles.groupRows));
    if (tiles.stagesRows)
      stageGroup(rows);
    block.forEachPanel(
        [&](Value panel, int64_t columns) { emitPanel(panel, columns, rows); });
  });
}

void GroupedMatrixProduct::stageGroup(Value rows) {
  forEach(rows, [&](Value row) {
    Value from = add(add(block.rowStart, block.groupStart), row);
    block.forEachStep(tiles.chunk, [&](Value k, int64_t depth) {
      lhs.copy({rowCopy, index(0), from, k, 1, depth, /*at=*/row});
    });
  });
  b.create<tile::CommitOp>(loc);
  b.create<tile::WaitOp>(loc, 0);
  padRows(rows);
}

void GroupedMatrixProduct::emitPanel(Value panel, int64_t columns, Value rows) {
  SmallVector<Value> at(3, index(0));
  if (hasPartials())
    at = {panel, block.groupStart, index(0)};
  forEachTileOf(rows, columns, [&](Value row, int64_t count) {
    auto product = [&](bool isFar) {
      emitProduct({count, columns, row, panel}, {at[0], add(at[1], row), at[2]},
                  isFar);
    };
    bool isOneTile = count <= PackedRows::kTile;
    if (!plan.isMicropanels() || !isOneTile || plan.streamsMicropanels())
      return product(isOneTile && plan.isMicropanels());
    // Later tiles find the panel in a cache.
    ifElse(isEqual(row, 0), [&] { product(true); }, [&] { product(false); });
  });
  afterLast([&] {
    forEachPartOf(rows, {4, 2, 1}, [&](Value row, int64_t count) {
      emitSums({0, columns, index(0), panel}, at, row, count);
    });
  });
}

// Many tiles at once if columns fill two registers. The rest is in one register
// if that is enough, and padded to a whole tile otherwise.
void GroupedMatrixProduct::forEachTileOf(Value count, int64_t columns,
                                         RowsBody body) const {
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
  Value isLeft = compare(arith::CmpIPredicate::slt, whole, count);
  ifElse(isLeft, [&] { body(whole, kRegister); });
}

std::unique_ptr<ContractionEngine>
tessera::groupedMatrixProduct(ContractionBlock &block,
                              ContractionEpilogue &epilogue) {
  return std::make_unique<GroupedMatrixProduct>(block, epilogue);
}
