// Products in vector registers: register tiles of sums, to which every step
// adds the products of some terms.
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/ContractionEngine.h"

using namespace mlir;
using namespace tessera;

// Padding of staged rows, one line of f32, so that they do not map to one cache
// set.
static constexpr int64_t kRowPadding = 16;

namespace {
class VectorProduct : public ChunkedProduct {
public:
  using ChunkedProduct::ChunkedProduct;

private:
  Value allocateRows() const override;
  Value allocateSums() const override;
  void multiply() override;
  void emitGroup(Value start, int64_t rows);
  void emitTile(const TilePlace &place);
  Value emitProduct(const TilePlace &place, Value sum);
  Value emitDynamicProduct(const TilePlace &place, Value sum);
  Value emitStepLoop(const TilePlace &place, Value end, Value sum);
  Value emitSteps(const TilePlace &place, Value k, int64_t steps, Value sum);
  Value loadRows(Value row, Value k, int64_t rows, int64_t steps);
};
} // namespace

Value VectorProduct::allocateRows() const {
  int64_t depth = llvm::alignTo(tiles.chunk, 2);
  if (!tiles.rowsSumFirst)
    return block.allocate({1, tiles.groupRows, depth + kRowPadding},
                          tiles.compute);
  return block.allocate({1, depth, tiles.groupRows + kRowPadding},
                        tiles.compute,
                        tiles.pairs ? tile::Layout::pairs : tile::Layout::rows);
}

Value VectorProduct::allocateSums() const {
  if (tiles.chunks == 1)
    return {};
  int64_t panels = partsOf(plan.blockColumns, tiles.width);
  return block.allocate({plan.blockRows, panels * tiles.width},
                        tiles.accumulate);
}

void VectorProduct::multiply() {
  block.groupStart = index(0);
  if (!tiles.stagesRows)
    return forEachTile(block, [&](const TilePlace &place) { emitTile(place); });
  if (!block.ownedRows)
    return forEachPart(block.isLastRows, plan.blockRows,
                       plan.rowDim().size % plan.blockRows, tiles.groupRows,
                       [&](Value i, int64_t rows) {
                         emitGroup(mul(i, tiles.groupRows), rows);
                       });
  SmallVector<int64_t> sizes = heightsOf(tiles);
  sizes.insert(sizes.begin(), tiles.groupRows);
  forEachPartOf(block.ownedRows, sizes,
                [&](Value start, int64_t rows) { emitGroup(start, rows); });
}

void VectorProduct::emitGroup(Value start, int64_t rows) {
  block.groupStart = start;
  stageRows(start, rows);
  forEachTileOfGroup(block, rows,
                     [&](const TilePlace &place) { emitTile(place); });
}

void VectorProduct::emitTile(const TilePlace &place) {
  auto type = VectorType::get({place.rows, place.columns}, tiles.accumulate);
  SmallVector<Value> at{block.rowOf(place), mul(place.panel, tiles.width)};
  Value isFirst = sums ? isEqual(block.chunkIndex, 0) : Value();
  Value sum = chooseValue(
      isFirst, type, [&] { return zeros(type); },
      [&] { return load(type, sums, at, {0, 1}); });
  sum = emitProduct(place, sum);
  if (!sums)
    return epilogue.emit(place, sum);
  Value isLast = block.chunksHere ? compare(arith::CmpIPredicate::eq,
                                            add(block.chunkIndex, index(1)),
                                            block.chunksHere)
                                  : isEqual(block.chunkIndex, tiles.chunks - 1);
  ifElse(
      isLast, [&] { epilogue.emit(place, sum); },
      [&] { store(sum, sums, at, {0, 1}); });
}

// A loop, then what is left of the last chunk.
Value VectorProduct::emitProduct(const TilePlace &place, Value sum) {
  if (block.depthHere)
    return emitDynamicProduct(place, sum);
  int64_t last = block.lastChunk(), step = tiles.kStep;
  int64_t whole = tiles.chunk / step * step, tail = last % step;
  Value end = select(block.isLastOfSum, last / step * step, whole);
  if (whole || block.isLastOfSum)
    sum = emitStepLoop(place, end, sum);
  if (!tail)
    return sum;
  return chooseValue(
      block.isLastOfSum, sum.getType(),
      [&] { return emitSteps(place, index(last / step * step), tail, sum); },
      [&] { return sum; });
}

// Of as many terms as the chunk has of the group's.
Value VectorProduct::emitDynamicProduct(const TilePlace &place, Value sum) {
  if (tiles.kStep == 1)
    return emitStepLoop(place, block.depthHere, sum);
  // Evidently even, as an address of pairs has to be.
  Value end =
      mul(b.create<arith::DivUIOp>(loc, block.depthHere, index(tiles.kStep)),
          tiles.kStep);
  Value left = b.create<arith::SubIOp>(loc, block.depthHere, end);
  sum = emitStepLoop(place, end, sum);
  // Pairs are staged with k even: one term more fills half of one.
  return chooseValue(
      isEqual(left, 1), sum.getType(),
      [&] { return emitSteps(place, end, 1, sum); }, [&] { return sum; });
}

// Steps of kStep products up to `end`.
Value VectorProduct::emitStepLoop(const TilePlace &place, Value end,
                                  Value sum) {
  return forRange(index(0), end, tiles.kStep, sum,
                  [&](Value k, ValueRange so) -> Values {
                    return {emitSteps(place, k, tiles.kStep, so[0])};
                  })[0];
}

Value VectorProduct::emitSteps(const TilePlace &place, Value k, int64_t steps,
                               Value sum) {
  Value row =
      tiles.stagesRows ? place.row : add(block.rowStart, block.rowOf(place));
  Value column = rhs->beginOf(place.panel);
  if (plan.streams() && steps == tiles.kStep)
    rhs->prefetch(column, k);
  Value left = loadRows(row, k, place.rows, steps);
  Value right = rhs->load(place, column, k, steps);
  return b.create<tile::MmaOp>(loc, left, right, sum);
}

// [rows, steps], staged or in place.
Value VectorProduct::loadRows(Value row, Value k, int64_t rows, int64_t steps) {
  auto type = VectorType::get({rows, steps}, tiles.compute);
  if (!tiles.stagesRows)
    return lhs.loadInPlace(row, k, rows, steps);
  if (tiles.rowsSumFirst)
    return load(type, rowCopy, {index(0), k, row}, {2, 1});
  return load(type, rowCopy, {index(0), row, k}, {1, 2});
}

std::unique_ptr<ContractionEngine>
tessera::vectorProduct(ContractionBlock &block, ContractionEpilogue &epilogue) {
  return std::make_unique<VectorProduct>(block, epilogue);
}
