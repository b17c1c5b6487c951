// Staging a contraction's operands: strided views of the buffers, and copies of
// their boxes to shared memory, converted to the type of the arithmetic.
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/ContractionEmit.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

// Padding of staged rows, one line of f32, so that they do not map to one cache
// set.
static constexpr int64_t kRowPadding = 16;
// Steps of all panels that are staged before the next ones; even, for pairs.
static constexpr int64_t kSlab = 16;

// The dimensions of the view: groups of matrices, outer ones, outer sums, then
// tile and k, each only if the operand advances along it. Dimensions of size 1
// have stride 1.
ContractionSide ContractionEmitter::makeSide(const ContractionOperand &operand,
                                             Value buffer, bool isLeft) {
  auto strideOf = [&](const ContractionDim &dim) {
    return isLeft ? dim.lhs : dim.rhs;
  };
  View view;
  view.offset = operand.offset;
  auto append = [&](int64_t size, int64_t stride) {
    view.shape.push_back(size);
    view.strides.push_back(stride);
  };
  if (!isLeft && plan.groups && plan.groups->matrix)
    append(plan.groups->count, plan.groups->matrix);
  for (unsigned dim : plan.outer)
    if (strideOf(plan.dims[dim]))
      append(plan.dims[dim].size, strideOf(plan.dims[dim]));
  for (const ContractionDim &dim : plan.outerSums)
    if (strideOf(dim))
      append(dim.size, strideOf(dim));
  ContractionSide side;
  ContractionDim tile = isLeft ? plan.rowDim() : plan.columnDim();
  side.repeatsTile = tile.size > 1 && !strideOf(tile);
  side.repeatsSum = plan.sum.size > 1 && !strideOf(plan.sum);
  if (!side.repeatsTile)
    append(tile.size, tile.size > 1 ? strideOf(tile) : 1);
  if (!side.repeatsSum)
    append(plan.sum.size, plan.sum.size > 1 ? strideOf(plan.sum) : 1);
  side.memory = emitView(b, loc, buffer, view);
  return side;
}

void ContractionEmitter::allocateSide(ContractionSide &side, int64_t panels,
                                      int64_t tile) {
  int64_t depth = partsOf(chunk, 2) * 2;
  if (plan.quant && &side == &rhs) { // whole blocks of whole micropanels
    depth = llvm::alignTo(chunk, kQuantBlock);
    tile = llvm::alignTo(tile, kMicropanel);
  }
  SmallVector<int64_t> shape{panels, tile, depth + kRowPadding};
  auto layout = tile::Layout::rows;
  if (side.sumFirst) {
    shape = {panels, depth, &side == &rhs ? tile : tile + kRowPadding};
    if (pairs)
      layout = tile::Layout::pairs;
  }
  side.shared = b.create<tile::AllocOp>(
      loc, MemRefType::get(shape, compute, AffineMap(),
                           tile::SharedAttr::get(b.getContext(), layout)));
}

SmallVector<Value> ContractionEmitter::indicesOf(const ContractionSide &side,
                                                 Value at, Value k) {
  SmallVector<Value> indices(side.fixed);
  if (!side.repeatsTile)
    indices.push_back(at);
  if (!side.repeatsSum)
    indices.push_back(k);
  return indices;
}

// Memory dimensions of (tile, k), or (k, tile) if `sumFirst`; repeated
// dimensions are left out.
SmallVector<int64_t> ContractionEmitter::alongOf(const ContractionSide &side,
                                                 bool sumFirst) const {
  int64_t at = side.fixed.size();
  SmallVector<int64_t> along;
  if (!side.repeatsTile)
    along.push_back(at++);
  if (!side.repeatsSum)
    along.push_back(at);
  if (sumFirst && along.size() == 2)
    std::swap(along[0], along[1]);
  return along;
}

// If memory is contiguous along the columns, few steps of all panels before the
// next ones, so that its lines are read one after another.
void ContractionEmitter::stageColumns() {
  bool alongColumns = plan.columnDim().rhs == 1 && plan.sum.rhs != 1;
  forEachStep(alongColumns ? kSlab : chunk, [&](Value k, int64_t depth) {
    forEachPanel([&](Value panel, int64_t columns) {
      stageBox(rhs, {panel, add(columnStart, mul(panel, width)), k}, columns,
               depth);
    });
  });
}

void ContractionEmitter::stageRows(Value start, int64_t rows) {
  forEachStep(chunk, [&](Value k, int64_t depth) {
    stageBox(lhs, {index(0), add(rowStart, start), k}, rows, depth);
  });
}

void ContractionEmitter::stageBox(const ContractionSide &side,
                                  const StagedBox &box, int64_t tile,
                                  int64_t depth) {
  auto memory = cast<MemRefType>(side.memory.getType());
  if (memory.getElementType() != compute || side.repeatsTile || side.repeatsSum)
    return convertBox(side, box, tile, depth);
  SmallVector<int64_t> shape{tile, depth};
  SmallVector<Value> to{box.slot, index(0), box.k};
  if (side.sumFirst) {
    std::swap(shape[0], shape[1]);
    std::swap(to[1], to[2]);
  }
  b.create<tile::CopyOp>(loc, side.memory,
                         indicesOf(side, box.start, add(sumStart, box.k)),
                         side.shared, to, ValueRange(), shape,
                         alongOf(side, side.sumFirst), ArrayRef<int64_t>{1, 2});
  b.create<tile::CommitOp>(loc);
  b.create<tile::WaitOp>(loc, 0);
}

// Whole steps and the rest of `size`: (first, length, step).
static SmallVector<std::array<int64_t, 3>> partsInSteps(int64_t size,
                                                        int64_t step) {
  SmallVector<std::array<int64_t, 3>> result;
  if (size / step)
    result.push_back({0, size / step * step, step});
  if (size % step)
    result.push_back({size / step * step, size % step, size % step});
  return result;
}

// Register tiles along the contiguous dimension of memory; the loads transpose
// them if the staged order is the other.
void ContractionEmitter::convertBox(const ContractionSide &side,
                                    const StagedBox &box, int64_t tile,
                                    int64_t depth) {
  bool isLeft = &side == &lhs;
  int64_t tileStride = isLeft ? plan.rowDim().lhs : plan.columnDim().rhs;
  int64_t sumStride = isLeft ? plan.sum.lhs : plan.sum.rhs;
  int64_t lanes = target.lanes, tileStep, sumStep;
  if (side.sumFirst) {
    tileStep = std::min(tile, 3 * lanes);
    sumStep = sumStride == 1 && tileStride != 1 ? lanes : 2;
  } else {
    sumStep = std::min(depth, 4 * lanes);
    tileStep = tileStride == 1 && sumStride != 1 ? lanes : 1;
  }
  // The rows of the staged order are the outer loop, so that memory is read
  // along its rows.
  auto over = [&](const std::array<int64_t, 3> &part,
                  llvm::function_ref<void(Value)> body) {
    forEach(part[1] / part[2],
            [&](Value i) { body(add(index(part[0]), mul(i, part[2]))); });
  };
  for (auto rows : partsInSteps(tile, tileStep))
    for (auto steps : partsInSteps(depth, sumStep)) {
      auto one = [&](Value i, Value k) {
        k = add(box.k, k);
        convertTile(side, indicesOf(side, add(box.start, i), add(sumStart, k)),
                    {box.slot, i, k}, rows[2], steps[2]);
      };
      if (side.sumFirst)
        over(steps, [&](Value k) { over(rows, [&](Value i) { one(i, k); }); });
      else
        over(rows, [&](Value i) { over(steps, [&](Value k) { one(i, k); }); });
    }
}

void ContractionEmitter::convertTile(const ContractionSide &side,
                                     ArrayRef<Value> from,
                                     SmallVector<Value> to, int64_t tile,
                                     int64_t steps) {
  SmallVector<int64_t> shape{tile, steps};
  if (side.sumFirst) {
    std::swap(shape[0], shape[1]);
    std::swap(to[1], to[2]);
  }
  auto whole = VectorType::get(shape, compute);
  Type memory = cast<MemRefType>(side.memory.getType()).getElementType();
  SmallVector<int64_t> along = alongOf(side, side.sumFirst);
  SmallVector<int64_t> loaded, dims; // of the register tile that memory fills
  for (int64_t d = 0; d < 2; ++d) {
    bool isTile = (d == 0) != side.sumFirst;
    if (isTile ? side.repeatsTile : side.repeatsSum)
      continue;
    loaded.push_back(shape[d]);
    dims.push_back(d);
  }
  auto extend = [&](Value value) -> Value {
    if (memory == compute)
      return value;
    Type wide = compute;
    if (auto vector = dyn_cast<VectorType>(value.getType()))
      wide = vector.clone(compute);
    return b.create<arith::ExtFOp>(loc, wide, value);
  };
  Value value;
  if (loaded.empty())
    value = extend(b.create<memref::LoadOp>(loc, side.memory, from));
  else
    value =
        extend(b.create<tile::LoadOp>(loc, VectorType::get(loaded, memory),
                                      side.memory, from, ValueRange(), along));
  if (value.getType() != whole)
    value = b.create<tile::BroadcastOp>(loc, whole, value, dims);
  b.create<tile::StoreOp>(loc, value, side.shared, to, ValueRange(),
                          ArrayRef<int64_t>{1, 2});
}
