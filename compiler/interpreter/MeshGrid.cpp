#include "compiler/interpreter/MeshGrid.h"
#include "llvm/Support/FormatVariadic.h"
#include <cstring>

using namespace mlir;
using namespace tessera::dist;
using namespace tessera::interpreter;

//===--- devices --------------------------------------------------------===//

MeshGrid::Part MeshGrid::partOf(AxisRefAttr ref) const {
  // Devices per step along the axis: those of all later axes.
  int64_t stride = 1;
  for (AxisAttr axis : llvm::reverse(axes)) {
    if (axis.getName() == ref.getName()) {
      if (ref.isWhole())
        return {axis.getSize(), stride};
      int64_t rest = axis.getSize() / (ref.getPre() * ref.getSize());
      return {ref.getSize(), stride * rest};
    }
    stride *= axis.getSize();
  }
  llvm_unreachable("the verifier knows the axis");
}

std::vector<int64_t> MeshGrid::groupOf(int64_t device,
                                       ArrayRef<AxisRefAttr> along) const {
  std::vector<int64_t> group{device};
  for (AxisRefAttr axis : along) {
    Part part = partOf(axis);
    std::vector<int64_t> wider;
    for (int64_t member : group)
      for (int64_t i = 0; i < part.size; ++i)
        wider.push_back(member + (i - part.of(member)) * part.stride);
    group = std::move(wider);
  }
  return group;
}

MeshGrid::Range MeshGrid::rangeOf(int64_t device, int64_t size,
                                  ArrayRef<AxisRefAttr> along) const {
  Range range{0, size};
  for (AxisRefAttr axis : along) {
    Part part = partOf(axis);
    int64_t each = range.size / part.size, larger = range.size % part.size,
            place = part.of(device);
    range.start += place * each + std::min(place, larger);
    range.size = each + (place < larger ? 1 : 0);
  }
  return range;
}

//===--- shares ---------------------------------------------------------===//

std::vector<std::vector<int64_t>>
MeshGrid::indicesOf(int64_t device, ShardingAttr sharding,
                    ArrayRef<int64_t> shape) const {
  std::vector<std::vector<int64_t>> indices;
  for (auto [d, size] : llvm::enumerate(shape)) {
    std::vector<int64_t> own{0};
    auto refine = [&](int64_t factor, ArrayRef<AxisRefAttr> cut) {
      Range range = rangeOf(device, factor, cut);
      std::vector<int64_t> finer;
      for (int64_t major : own)
        for (int64_t i = 0; i < range.size; ++i)
          finer.push_back(major * factor + range.start + i);
      own = std::move(finer);
    };
    ArrayRef<FactorAttr> factors;
    if (sharding)
      factors = sharding.getDims()[d].getFactors();
    if (factors.empty())
      refine(size, {});
    for (FactorAttr factor : factors)
      refine(factor.getSize() ? factor.getSize() : size, factor.getAxes());
    indices.push_back(std::move(own));
  }
  return indices;
}

static SmallVector<int64_t> shapeOf(ArrayRef<std::vector<int64_t>> indices) {
  return llvm::map_to_vector(indices, [](const std::vector<int64_t> &own) {
    return static_cast<int64_t>(own.size());
  });
}

// Calls `visit` with every index of a share and its index in the whole.
static void forEachOwn(
    ArrayRef<std::vector<int64_t>> indices,
    llvm::function_ref<void(ArrayRef<int64_t> own, ArrayRef<int64_t> whole)>
        visit) {
  SmallVector<int64_t> whole(indices.size());
  forEachIndex(shapeOf(indices), [&](ArrayRef<int64_t> own) {
    for (size_t d = 0; d < indices.size(); ++d)
      whole[d] = indices[d][own[d]];
    visit(own, whole);
  });
}

Tensor MeshGrid::shareOf(const Tensor &whole, ShardingAttr sharding,
                         int64_t device) const {
  auto indices = indicesOf(device, sharding, whole.shape);
  Tensor share(shapeOf(indices));
  bool first = !sharding || sharding.getKind() == ReduceKind::max ||
               llvm::all_of(sharding.getPartial(), [&](AxisRefAttr axis) {
                 return partOf(axis).of(device) == 0;
               });
  if (first)
    forEachOwn(indices, [&](ArrayRef<int64_t> own, ArrayRef<int64_t> from) {
      share.at(own) = whole.at(from);
    });
  return share;
}

// The parts of all devices along the partial axes as one, in their order.
static void combine(Tensor &into, const Tensor &part, ReduceKind kind) {
  for (auto [result, value] : llvm::zip_equal(into.data, part.data))
    result = kind == ReduceKind::sum ? result + value : std::max(result, value);
}

llvm::Expected<Tensor> MeshGrid::join(ArrayRef<const Tensor *> shares,
                                      ShardingAttr sharding,
                                      ArrayRef<int64_t> shape) const {
  SmallVector<AxisRefAttr> partial;
  if (sharding)
    llvm::append_range(partial, sharding.getPartial());
  Tensor whole(shape), writer(shape, -1);
  std::string error;
  for (auto [device, share] : llvm::enumerate(shares)) {
    auto indices = indicesOf(device, sharding, shape);
    if (shapeOf(indices) != share->shape)
      return llvm::createStringError(
          "device " + llvm::Twine(device) +
          " has a share of another shape than its sharding says");
    std::vector<int64_t> group = groupOf(device, partial);
    Tensor sum = *shares[group.front()];
    for (int64_t other : llvm::drop_begin(group))
      combine(sum, *shares[other], sharding.getKind());
    forEachOwn(indices, [&](ArrayRef<int64_t> own, ArrayRef<int64_t> at) {
      double value = sum.at(own), &result = whole.at(at), &by = writer.at(at);
      if (by < 0) {
        result = value;
        by = static_cast<double>(device);
      } else if (std::memcmp(&result, &value, sizeof(value)) != 0) {
        error = llvm::formatv("devices {0} and {1} have {2:e17} and {3:e17} as "
                              "one element",
                              static_cast<int64_t>(by), device, result, value);
      }
    });
  }
  if (!error.empty())
    return llvm::createStringError(error);
  return whole;
}
