#include "runtime/artifact/Shares.h"

#include "runtime/artifact/ElementTypes.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace tessera::artifact {

Range rangeOf(std::uint64_t size, std::uint64_t devices, std::uint64_t device) {
  const std::uint64_t quotient = size / devices, rest = size % devices;
  return {device * quotient + std::min(device, rest),
          quotient + (device < rest)};
}

Mesh::Mesh(const Artifact &artifact) {
  if (artifact.mesh())
    for (const MeshAxis *axis : *artifact.mesh()) {
      sizes.push_back(axis->size());
      count *= axis->size();
    }
}

Coordinates Mesh::coordinatesOf(std::uint32_t rank) const {
  Coordinates at(sizes.size());
  for (std::size_t axis = sizes.size(); axis-- > 0;) {
    at[axis] = rank % sizes[axis];
    rank /= sizes[axis];
  }
  return at;
}

std::uint32_t Mesh::rankAt(const Coordinates &at) const {
  std::uint32_t rank = 0;
  for (std::size_t axis = 0; axis < sizes.size(); ++axis)
    rank = rank * sizes[axis] + at[axis];
  return rank;
}

std::vector<std::uint32_t>
Mesh::groupOf(std::uint32_t rank, std::span<const std::uint32_t> of) const {
  Coordinates at = coordinatesOf(rank);
  std::uint32_t members = 1;
  for (const std::uint32_t axis : of)
    members *= sizes[axis];
  std::vector<std::uint32_t> group;
  for (std::uint32_t member = 0; member < members; ++member) {
    std::uint32_t rest = member;
    for (std::size_t i = of.size(); i-- > 0;) {
      at[of[i]] = rest % sizes[of[i]];
      rest /= sizes[of[i]];
    }
    group.push_back(rankAt(at));
  }
  return group;
}

Range rangeAt(const Cut &cut, const Mesh &mesh, const Coordinates &at) {
  Range range{0, cut.size()};
  if (cut.axes())
    for (const std::uint32_t axis : *cut.axes()) {
      const Range inner = rangeOf(range.size, mesh.size(axis), at[axis]);
      range = {range.start + inner.start, inner.size};
    }
  return range;
}

std::vector<std::uint64_t> globalShape(const Tensor &tensor) {
  std::vector<std::uint64_t> shape(tensor.shape()->begin(),
                                   tensor.shape()->end());
  if (tensor.cuts())
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      shape[dim] = 1;
      const auto at = static_cast<flatbuffers::uoffset_t>(dim);
      for (const Cut *cut : *tensor.cuts()->Get(at)->factors())
        shape[dim] *= cut->size();
    }
  return shape;
}

std::vector<std::uint32_t> firstHolders(const Tensor &tensor, const Mesh &mesh,
                                        const std::vector<bool> &isHolder) {
  std::vector<std::uint32_t> cutAxes, first;
  if (tensor.cuts())
    for (const DimCut *dim : *tensor.cuts())
      for (const Cut *cut : *dim->factors())
        if (cut->axes())
          cutAxes.insert(cutAxes.end(), cut->axes()->begin(),
                         cut->axes()->end());
  std::set<Coordinates> known;
  for (std::uint32_t rank = 0; rank < mesh.ranks(); ++rank) {
    if (!isHolder[rank])
      continue;
    const Coordinates at = mesh.coordinatesOf(rank);
    Coordinates part;
    for (const std::uint32_t axis : cutAxes)
      part.push_back(at[axis]);
    if (known.insert(part).second)
      first.push_back(rank);
  }
  return first;
}

std::uint64_t elementsOfShare(const Tensor &tensor, const Mesh &mesh,
                              const Coordinates &at) {
  std::uint64_t elements = 1;
  if (tensor.cuts())
    for (const DimCut *dim : *tensor.cuts())
      for (const Cut *cut : *dim->factors())
        elements *= rangeAt(*cut, mesh, at).size;
  else
    for (const std::int64_t size : *tensor.shape())
      elements *= static_cast<std::uint64_t>(size);
  return elements;
}

ShareRuns::ShareRuns(const Tensor &tensor, const Mesh &mesh,
                     const Coordinates &at) {
  append(1, {0, 1});
  if (tensor.cuts()) {
    for (const DimCut *dim : *tensor.cuts())
      for (const Cut *cut : *dim->factors())
        append(cut->size(), rangeAt(*cut, mesh, at));
  } else {
    for (const std::int64_t extent : *tensor.shape()) {
      const auto size = static_cast<std::uint64_t>(extent);
      append(size, {0, size});
    }
  }
  std::uint64_t stride = 1;
  for (std::size_t i = levels.size(); i-- > 0;) {
    levels[i].stride = stride;
    stride *= levels[i].size;
    isDone |= levels[i].range.size == 0;
  }
}

// A dimension that the rank has entirely is merged with the one before: a range
// of that, times the whole of this, is one range.
void ShareRuns::append(std::uint64_t size, Range range) {
  if (!levels.empty() && range.size == size) {
    Level &last = levels.back();
    last.size *= size;
    last.range = {last.range.start * size, last.range.size * size};
  } else if (!levels.empty() && levels.back().range.size == 1) {
    // So is any dimension after a single index.
    Level &last = levels.back();
    last.range = {last.range.start * size + range.start, range.size};
    last.size *= size;
  } else {
    levels.push_back({size, range});
  }
}

const Run *ShareRuns::next() {
  if (isDone)
    return nullptr;
  run.part += run.count;
  run.whole = 0;
  for (const Level &level : levels)
    run.whole += (level.range.start + level.index) * level.stride;
  run.count = levels.back().range.size;
  // The next index of all levels but the last, whose range is the run.
  isDone = true;
  for (std::size_t i = levels.size() - 1; i-- > 0 && isDone;) {
    isDone = ++levels[i].index == levels[i].range.size;
    if (isDone)
      levels[i].index = 0;
  }
  return &run;
}

void copyToShare(const Tensor &tensor, const Mesh &mesh, const Coordinates &at,
                 std::span<const std::byte> whole, std::span<std::byte> part) {
  const std::uint64_t each = elementBytes(tensor.type());
  for (ShareRuns runs(tensor, mesh, at); const Run *run = runs.next();)
    std::memcpy(part.data() + run->part * each,
                whole.data() + run->whole * each, run->count * each);
}

void copyFromShare(const Tensor &tensor, const Mesh &mesh,
                   const Coordinates &at, std::span<const std::byte> part,
                   std::span<std::byte> whole) {
  const std::uint64_t each = elementBytes(tensor.type());
  for (ShareRuns runs(tensor, mesh, at); const Run *run = runs.next();)
    std::memcpy(whole.data() + run->whole * each,
                part.data() + run->part * each, run->count * each);
}

} // namespace tessera::artifact
