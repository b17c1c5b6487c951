#include "passes/sharding/Placement.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;

//===--- meshes -----------------------------------------------------------===//

Mesh::Mesh(dist::MeshOp op)
    : Mesh(op.getSymNameAttr(),
           llvm::to_vector(op.getAxes().getAsRange<dist::AxisAttr>()),
           dist::ratesOf(op)) {}

Mesh::Mesh(StringAttr name, ArrayRef<dist::AxisAttr> axes,
           const hardware::ClusterRates &rates)
    : name(name), axes(axes), device(rates.device), launch(rates.launch),
      tiers(rates.links) {
  const planner::CollectiveCost costs(tiers);
  for (unsigned axis = 0; axis < rank(); ++axis)
    links.push_back(costs.slowest(group(axis)));
}

int64_t Mesh::size(ArrayRef<unsigned> of) const {
  int64_t devices = 1;
  for (unsigned axis : of)
    devices *= size(axis);
  return devices;
}

int64_t Mesh::deviceCount() const {
  int64_t devices = 1;
  for (dist::AxisAttr axis : axes)
    devices *= axis.getSize();
  return devices;
}

planner::RankGroup Mesh::group(ArrayRef<unsigned> of) const {
  int64_t stride = 1;
  for (unsigned axis = rank(); axis-- > 0 && !llvm::is_contained(of, axis);)
    stride *= size(axis);
  return {size(of), stride};
}

std::optional<unsigned> Mesh::find(StringRef axis) const {
  for (auto [i, candidate] : llvm::enumerate(axes))
    if (candidate.getName() == axis)
      return i;
  return std::nullopt;
}

Coordinates Mesh::coordinatesOf(int64_t device) const {
  Coordinates at(rank());
  for (unsigned axis = rank(); axis-- > 0;) {
    at[axis] = device % size(axis);
    device /= size(axis);
  }
  return at;
}

//===--- factors ----------------------------------------------------------===//

Range sharding::rangeOf(int64_t size, int64_t devices, int64_t device) {
  int64_t quotient = size / devices, rest = size % devices;
  return {device * quotient + std::min(device, rest),
          quotient + (device < rest)};
}

Range Factor::rangeAt(const Mesh &mesh, const Coordinates &at) const {
  Range range{0, size};
  for (unsigned axis : axes) {
    Range inner = rangeOf(range.size, mesh.size(axis), at[axis]);
    range = {range.start + inner.start, inner.size};
  }
  return range;
}

// Whether all shards have one size, so that the axes may move into the next
// factor.
static bool isEven(const Factor &factor, const Mesh &mesh) {
  return factor.size % mesh.size(factor.axes) == 0;
}

void sharding::normalizeFactors(DimPlacement &dim, const Mesh &mesh) {
  DimPlacement kept;
  for (const Factor &factor : dim) {
    if (factor.size == 1 && factor.axes.empty())
      continue;
    bool joins = !kept.empty() && factor.axes.empty() &&
                 (kept.back().axes.empty() || isEven(kept.back(), mesh));
    if (joins)
      kept.back().size *= factor.size;
    else
      kept.push_back(factor);
  }
  dim = std::move(kept);
}

std::optional<std::pair<DimPlacement, DimPlacement>>
sharding::splitFactors(const DimPlacement &dim, int64_t inner,
                       const Mesh &mesh) {
  DimPlacement outer = dim, tail;
  while (inner > 1 && !outer.empty()) {
    Factor last = outer.pop_back_val();
    if (inner % last.size == 0) {
      tail.insert(tail.begin(), last);
      inner /= last.size;
      continue;
    }
    if (last.size % inner)
      return std::nullopt;
    // The axes go to the outer half if its shards are even too.
    Factor major{last.size / inner, last.axes};
    if (!last.axes.empty() && !isEven(major, mesh))
      return std::nullopt;
    outer.push_back(major);
    tail.insert(tail.begin(), Factor{inner, {}});
    inner = 1;
  }
  if (inner != 1)
    return std::nullopt;
  return std::pair(outer, tail);
}

//===--- placements -------------------------------------------------------===//

Placement Placement::whole(RankedTensorType type) {
  Placement placement;
  for (int64_t size : type.getShape()) {
    DimPlacement &dim = placement.dims.emplace_back();
    if (size != 1)
      dim.push_back({size, {}});
  }
  return placement;
}

static SmallVector<unsigned, 2> numbersOf(ArrayRef<dist::AxisRefAttr> axes,
                                          const Mesh &mesh) {
  SmallVector<unsigned, 2> numbers;
  for (dist::AxisRefAttr axis : axes)
    numbers.push_back(*mesh.find(axis.getName()));
  return numbers;
}

static SmallVector<dist::AxisRefAttr>
refsOf(ArrayRef<unsigned> axes, MLIRContext *context, const Mesh &mesh) {
  SmallVector<dist::AxisRefAttr> refs;
  for (unsigned axis : axes)
    refs.push_back(
        dist::AxisRefAttr::get(context, mesh.axes[axis].getName(), 1, 0));
  return refs;
}

Placement Placement::fromAttr(dist::ShardingAttr attr, RankedTensorType type,
                              const Mesh &mesh) {
  Placement placement;
  for (auto [dim, size] : llvm::zip(attr.getDims(), type.getShape())) {
    DimPlacement &factors = placement.dims.emplace_back();
    for (dist::FactorAttr factor : dim.getFactors())
      factors.push_back({factor.getSize() ? factor.getSize() : size,
                         numbersOf(factor.getAxes(), mesh)});
    if (factors.empty())
      factors.push_back({size, {}});
  }
  placement.partial = numbersOf(attr.getPartial(), mesh);
  llvm::sort(placement.partial);
  placement.kind = attr.getKind();
  placement.own = numbersOf(attr.getOwn(), mesh);
  placement.room = attr.getRoom();
  placement.normalize(mesh);
  return placement;
}

dist::ShardingAttr Placement::toAttr(MLIRContext *context,
                                     const Mesh &mesh) const {
  SmallVector<dist::DimShardingAttr> attrs;
  for (const DimPlacement &dim : dims) {
    if (dim.size() <= 1) {
      ArrayRef<unsigned> axes;
      if (!dim.empty())
        axes = dim.front().axes;
      attrs.push_back(dist::DimShardingAttr::get(
          context, ArrayRef<dist::AxisRefAttr>(refsOf(axes, context, mesh))));
      continue;
    }
    SmallVector<dist::FactorAttr> factors;
    for (const Factor &factor : dim)
      factors.push_back(dist::FactorAttr::get(
          context, factor.size, refsOf(factor.axes, context, mesh)));
    attrs.push_back(dist::DimShardingAttr::get(
        context, ArrayRef<dist::FactorAttr>(factors)));
  }
  return dist::ShardingAttr::get(context, FlatSymbolRefAttr::get(mesh.name),
                                 attrs, kind, refsOf(partial, context, mesh),
                                 refsOf(own, context, mesh), room);
}

bool Placement::isUncut() const {
  return llvm::all_of(dims, [](const DimPlacement &dim) {
    return llvm::all_of(
        dim, [](const Factor &factor) { return factor.axes.empty(); });
  });
}

bool Placement::isWhole() const {
  return partial.empty() && own.empty() && room == 0 && isUncut();
}

bool Placement::uses(unsigned axis) const {
  if (llvm::is_contained(partial, axis))
    return true;
  return llvm::any_of(dims, [&](const DimPlacement &dim) {
    return llvm::any_of(dim, [&](const Factor &factor) {
      return llvm::is_contained(factor.axes, axis);
    });
  });
}

Placement Placement::withoutPartial() const {
  Placement copy = *this;
  copy.partial.clear();
  copy.kind = dist::ReduceKind::sum;
  return copy;
}

Placement Placement::without(unsigned axis) const {
  Placement copy = *this;
  for (DimPlacement &dim : copy.dims)
    for (Factor &factor : dim)
      llvm::erase(factor.axes, axis);
  llvm::erase(copy.partial, axis);
  return copy;
}

void Placement::normalize(const Mesh &mesh) {
  for (DimPlacement &dim : dims)
    normalizeFactors(dim, mesh);
  llvm::sort(partial);
  llvm::sort(own);
  if (partial.empty())
    kind = dist::ReduceKind::sum;
}

SmallVector<int64_t> Placement::localShape(const Mesh &mesh,
                                           const Coordinates &at) const {
  SmallVector<int64_t> shape;
  for (const DimPlacement &dim : dims) {
    int64_t size = 1;
    for (const Factor &factor : dim)
      size *= factor.rangeAt(mesh, at).size;
    shape.push_back(size);
  }
  if (room > 0)
    shape.front() = room;
  return shape;
}

RankedTensorType Placement::localType(RankedTensorType type, const Mesh &mesh,
                                      const Coordinates &at) const {
  return RankedTensorType::get(localShape(mesh, at), type.getElementType());
}
