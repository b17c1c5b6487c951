// A block's rows as register tiles.
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/ContractionEngine.h"
#include "llvm/ADT/bit.h"

using namespace mlir;
using namespace tessera;

namespace {
/// `tall` tiles of the full height, `low` of one row less, one of `rest`.
struct RowCover {
  int64_t tall, low, rest;
};
} // namespace

// As many of the full height as fit, so that only the height of the remainder
// is added.
static RowCover coverFromTop(int64_t rows, int64_t height) {
  RowCover cover{rows / height, 0, rows % height};
  if (cover.rest && cover.rest == height - 1)
    return {cover.tall, 1, 0};
  return cover;
}

// Tiles of two heights that differ by one, so that none is much lower than the
// others, if so many rows can be covered that way.
static RowCover coverEvenly(int64_t rows, int64_t height) {
  int64_t count = partsOf(rows, height);
  int64_t tall = rows - count * (height - 1);
  if (tall < 0)
    return coverFromTop(rows, height);
  return {tall, count - tall, 0};
}

static void forEachTileOfRow(ContractionBlock &block, Value row, int64_t rows,
                             TileBody body) {
  block.forEachPanel(
      [&](Value panel, int64_t columns) { body({rows, columns, row, panel}); });
}

SmallVector<int64_t> tessera::heightsOf(const ContractionTiles &tiles) {
  SmallVector<int64_t> heights{tiles.height};
  for (int64_t height = llvm::bit_floor(static_cast<uint64_t>(tiles.height));
       height; height /= 2)
    heights.push_back(height);
  return heights;
}

void tessera::forEachTileOfGroup(ContractionBlock &block, int64_t rows,
                                 TileBody body) {
  int64_t height = block.tiles.height;
  RowCover cover = coverEvenly(rows, height);
  block.forEach(cover.tall, [&](Value i) {
    forEachTileOfRow(block, block.mul(i, height), height, body);
  });
  block.forEach(cover.low, [&](Value i) {
    Value row =
        block.add(block.index(cover.tall * height), block.mul(i, height - 1));
    forEachTileOfRow(block, row, height - 1, body);
  });
  if (cover.rest)
    forEachTileOfRow(block, block.index((cover.tall + cover.low) * height),
                     cover.rest, body);
}

void tessera::forEachTile(ContractionBlock &block, TileBody body) {
  forEachRowTile(block, [&](Value row, int64_t rows) {
    forEachTileOfRow(block, row, rows, body);
  });
}

void tessera::forEachRowTile(ContractionBlock &block,
                             ContractionOps::RowsBody emitRow) {
  const ContractionPlan &plan = block.plan;
  int64_t height = block.tiles.height;
  if (block.ownedRows)
    return block.forEachPartOf(block.ownedRows, heightsOf(block.tiles),
                               emitRow);
  Value isLast = block.isLastRows;
  RowCover whole = coverEvenly(plan.blockRows, height), last{0, 0, 0};
  if (isLast)
    last = coverFromTop(plan.rowDim().size % plan.blockRows, height);
  auto cover = [&](int64_t ofLast, int64_t ofWhole,
                   llvm::function_ref<void(Value)> emitTiles) {
    if (isLast && ofLast != ofWhole)
      block.forEach(block.select(isLast, ofLast, ofWhole), emitTiles);
    else
      block.forEach(ofWhole, emitTiles);
  };
  cover(last.tall, whole.tall,
        [&](Value i) { emitRow(block.mul(i, height), height); });
  Value lowStart =
      block.select(isLast, last.tall * height, whole.tall * height);
  if (whole.low || last.low)
    cover(last.low, whole.low, [&](Value i) {
      emitRow(block.add(lowStart, block.mul(i, height - 1)), height - 1);
    });
  if (last.rest)
    block.ifElse(isLast,
                 [&] { emitRow(block.index(last.tall * height), last.rest); });
}
