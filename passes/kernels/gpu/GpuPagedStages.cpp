// Stages of keys and values from a cache's pages. Floats are multiplied as
// copied. int8 is copied as bytes, so that pages are read once and without
// expansion, and is extended within shared memory, which is exact. Its scales
// are staged, too, and multiply scores and weights.
#include "passes/kernels/gpu/GpuPaged.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::gpu;

static constexpr int64_t kPagedStages = 2;

PagedStages PagedStages::make(const TileBuilder &e, const PagedTiles &tiles) {
  PagedStages result;
  auto tilesOf = [&](int64_t stages, Type element) {
    return Staged::make(e, stages, tiles.keys, tiles.dim, element);
  };
  if (!tiles.areIntegers) {
    result.tile = tilesOf(kPagedStages, tiles.element);
    return result;
  }
  result.tile = tilesOf(1, tiles.element);
  result.bytes = tilesOf(kPagedStages, e.b.getI8Type());
  auto space = tile::SharedAttr::get(e.b.getContext(), tile::Layout::rows);
  auto type = MemRefType::get({kPagedStages, tiles.keys}, e.b.getF32Type(),
                              AffineMap(), space);
  result.scales = e.b.create<tile::AllocOp>(e.loc, type);
  return result;
}

void PagedStages::copyRows(const TileBuilder &e, Value stage, int64_t first,
                           int64_t count, const Source &from) const {
  (bytes ? *bytes : tile).copyRows(e, stage, first, count, from);
}

void PagedStages::copyScales(const TileBuilder &e, Value stage, int64_t first,
                             int64_t count, const Source &from) const {
  e.b.create<tile::CopyOp>(e.loc, from.memory, from.indices, scales,
                           ValueRange{stage, e.index(first)},
                           ValueRange(from.rows), ArrayRef<int64_t>{count},
                           ArrayRef<int64_t>{from.rowDim},
                           ArrayRef<int64_t>{1});
}

void PagedStages::extend(const TileBuilder &e, Value stage) const {
  Value zero = e.index(0);
  tile.copy(e, zero, {bytes->memory, {stage, zero, zero}, 1, 2, {}, {}});
}

Value PagedStages::scale(const TileBuilder &e, Value rows, Value stage) const {
  if (!bytes)
    return rows;
  auto type = cast<VectorType>(rows.getType());
  Value ofKeys = e.b.create<tile::LoadOp>(
      e.loc, VectorType::get(type.getDimSize(1), type.getElementType()), scales,
      ValueRange{stage, e.index(0)}, ValueRange(), ArrayRef<int64_t>{1});
  return e.b.create<arith::MulFOp>(e.loc, rows,
                                   e.spread(ofKeys, type.getShape(), 1));
}
