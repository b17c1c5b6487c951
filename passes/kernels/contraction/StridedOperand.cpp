#include "passes/kernels/contraction/StridedOperand.h"
#include "passes/kernels/ClusterLaunch.h"

using namespace mlir;
using namespace tessera;

// The dimensions of the view: groups of matrices, outer ones, outer sums, then
// tile and k, each only if the operand advances along it. Dimensions of size 1
// have stride 1.
StridedOperand::StridedOperand(ContractionBlock &block, bool isLeft)
    : ContractionPart(block), isLeft(isLeft),
      sumFirst(!isLeft || tiles.rowsSumFirst) {
  const ContractionOperand &operand = isLeft ? plan.lhs : plan.rhs;
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
  ContractionDim tile = isLeft ? plan.rowDim() : plan.columnDim();
  repeatsTile = tile.size > 1 && !strideOf(tile);
  repeatsSum = plan.sum.size > 1 && !strideOf(plan.sum);
  if (!repeatsTile)
    append(tile.size, tile.size > 1 ? strideOf(tile) : 1);
  if (!repeatsSum)
    append(plan.sum.size, plan.sum.size > 1 ? strideOf(plan.sum) : 1);
  memory = emitView(b, loc, block.arguments[operand.argument], view);
}

// Of the dimensions before the last two.
SmallVector<Value> StridedOperand::fixedIndices() const {
  SmallVector<Value> fixed;
  if (!isLeft && block.groupMatrix)
    fixed.push_back(block.groupMatrix);
  for (unsigned dim : plan.outer)
    if (strideOf(plan.dims[dim]))
      fixed.push_back(block.outerIndices[dim]);
  for (auto [dim, i] : llvm::zip(plan.outerSums, block.outerSums))
    if (strideOf(dim))
      fixed.push_back(i);
  return fixed;
}

SmallVector<Value> StridedOperand::indicesOf(Value at, Value k) const {
  SmallVector<Value> indices = fixedIndices();
  if (!repeatsTile)
    indices.push_back(at);
  if (!repeatsSum)
    indices.push_back(k);
  return indices;
}

// Memory dimensions of (tile, k), or (k, tile) if `kFirst`; repeated dimensions
// are left out.
SmallVector<int64_t> StridedOperand::alongOf(bool kFirst) const {
  int64_t at = fixedIndices().size();
  SmallVector<int64_t> along;
  if (!repeatsTile)
    along.push_back(at++);
  if (!repeatsSum)
    along.push_back(at);
  if (kFirst && along.size() == 2)
    std::swap(along[0], along[1]);
  return along;
}

Value StridedOperand::loadInPlace(Value at, Value k, int64_t tile,
                                  int64_t steps) {
  SmallVector<int64_t> shape{tile, steps};
  if (!isLeft)
    std::swap(shape[0], shape[1]);
  auto type = VectorType::get(shape, tiles.compute);
  Value loaded =
      load(type.clone(element()), memory, indicesOf(at, add(block.sumStart, k)),
           alongOf(/*kFirst=*/!isLeft));
  return element() == tiles.compute
             ? loaded
             : b.create<arith::ExtFOp>(loc, type, loaded);
}

void StridedOperand::stage(const StagedBox &box) {
  if (element() != tiles.compute || repeatsTile || repeatsSum)
    return convertBox(box);
  copy(box);
  b.create<tile::CommitOp>(loc);
  b.create<tile::WaitOp>(loc, 0);
}

void StridedOperand::copy(const StagedBox &box) {
  SmallVector<int64_t> shape{box.tile, box.depth};
  SmallVector<Value> to{box.slot, box.at ? box.at : index(0), box.k};
  if (sumFirst) {
    std::swap(shape[0], shape[1]);
    std::swap(to[1], to[2]);
  }
  b.create<tile::CopyOp>(
      loc, memory, indicesOf(box.start, add(block.sumStart, box.k)), box.memory,
      to, ValueRange(), shape, alongOf(sumFirst), ArrayRef<int64_t>{1, 2});
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

// From row (column) 0 of the slot on. Register tiles along the contiguous
// dimension of memory; the loads transpose them if the staged order is the
// other.
void StridedOperand::convertBox(const StagedBox &box) {
  int64_t tileStride = strideOf(isLeft ? plan.rowDim() : plan.columnDim());
  int64_t sumStride = strideOf(plan.sum);
  int64_t lanes = target.lanes, tileStep, sumStep;
  if (sumFirst) {
    tileStep = std::min(box.tile, 3 * lanes);
    sumStep = sumStride == 1 && tileStride != 1 ? lanes : 2;
  } else {
    sumStep = std::min(box.depth, 4 * lanes);
    tileStep = tileStride == 1 && sumStride != 1 ? lanes : 1;
  }
  // The rows of the staged order are the outer loop, so that memory is read
  // along its rows.
  auto over = [&](const std::array<int64_t, 3> &part,
                  llvm::function_ref<void(Value)> body) {
    forEach(part[1] / part[2],
            [&](Value i) { body(add(index(part[0]), mul(i, part[2]))); });
  };
  for (auto rows : partsInSteps(box.tile, tileStep))
    for (auto steps : partsInSteps(box.depth, sumStep)) {
      auto one = [&](Value i, Value k) {
        k = add(box.k, k);
        convertTile(box.memory,
                    indicesOf(add(box.start, i), add(block.sumStart, k)),
                    {box.slot, i, k}, rows[2], steps[2]);
      };
      if (sumFirst)
        over(steps, [&](Value k) { over(rows, [&](Value i) { one(i, k); }); });
      else
        over(rows, [&](Value i) { over(steps, [&](Value k) { one(i, k); }); });
    }
}

// `to`: slot, tile, k.
void StridedOperand::convertTile(Value memoryOfCopy, ArrayRef<Value> from,
                                 SmallVector<Value> to, int64_t tile,
                                 int64_t steps) {
  SmallVector<int64_t> shape{tile, steps};
  if (sumFirst) {
    std::swap(shape[0], shape[1]);
    std::swap(to[1], to[2]);
  }
  auto whole = VectorType::get(shape, tiles.compute);
  SmallVector<int64_t> loaded, dims; // of the register tile that memory fills
  for (int64_t d = 0; d < 2; ++d) {
    bool isTile = (d == 0) != sumFirst;
    if (isTile ? repeatsTile : repeatsSum)
      continue;
    loaded.push_back(shape[d]);
    dims.push_back(d);
  }
  auto extend = [&](Value value) -> Value {
    if (element() == tiles.compute)
      return value;
    Type wide = tiles.compute;
    if (auto vector = dyn_cast<VectorType>(value.getType()))
      wide = vector.clone(wide);
    return b.create<arith::ExtFOp>(loc, wide, value);
  };
  Value value;
  if (loaded.empty())
    value = extend(b.create<memref::LoadOp>(loc, memory, from));
  else
    value = extend(load(VectorType::get(loaded, element()), memory, from,
                        alongOf(sumFirst)));
  if (value.getType() != whole)
    value = b.create<tile::BroadcastOp>(loc, whole, value, dims);
  store(value, memoryOfCopy, to, {1, 2});
}
