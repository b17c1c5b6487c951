#include "compiler/report/ShardingMap.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/report/Layers.h"
#include "runtime/artifact/CollectiveTable.h"
#include "runtime/artifact/ElementTypes.h"
#include "runtime/artifact/ShardingTable.h"

namespace tessera::report {

using artifact::Range;
using artifact::toView;

/// Ranges of a dimension and tensors that are shown.
static constexpr std::size_t kMostRanges = 64;
static constexpr std::size_t kMostTensors = 48;

// Indices of a dimension that a rank holds: factors in mixed radix, the
// slowest-varying first, of each of which it has a range.
static std::vector<Range> rangesOf(const artifact::DimCut &dim,
                                   const artifact::Mesh &mesh,
                                   const artifact::Coordinates &at) {
  std::vector<Range> ranges{{0, 1}};
  for (const artifact::Cut *cut : *dim.factors()) {
    const Range own = artifact::rangeAt(*cut, mesh, at);
    std::vector<Range> finer;
    for (const Range &each : ranges) {
      if (own.size == cut->size()) { // all of it: ranges stay whole
        finer.push_back({each.start * cut->size(), each.size * cut->size()});
        continue;
      }
      for (std::uint64_t i = 0; i < each.size && finer.size() <= kMostRanges;
           ++i)
        finer.push_back({(each.start + i) * cut->size() + own.start, own.size});
    }
    ranges = std::move(finer);
  }
  return ranges;
}

static std::vector<std::vector<Range>> dimsOf(const artifact::Tensor &tensor,
                                              const artifact::Mesh &mesh,
                                              const artifact::Coordinates &at) {
  std::vector<std::vector<Range>> dims;
  if (tensor.cuts() && tensor.cuts()->size()) {
    for (const artifact::DimCut *dim : *tensor.cuts())
      dims.push_back(rangesOf(*dim, mesh, at));
    return dims;
  }
  for (const std::int64_t size : *tensor.shape())
    dims.push_back({{0, std::uint64_t(size)}});
  return dims;
}

static const artifact::Tensor *findState(const artifact::Share &share,
                                         std::string_view name) {
  for (const artifact::Tensor *tensor : *share.state())
    if (toView(tensor->name()) == name)
      return tensor;
  return nullptr;
}

std::vector<Region> regionsOf(const artifact::Artifact &root,
                              std::string_view name) {
  const artifact::Mesh mesh(root);
  using Key = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  std::map<Key, Region> regions;
  for (const artifact::Share *share : *root.shares()) {
    const artifact::Tensor *tensor = findState(*share, name);
    if (!tensor)
      continue;
    for (const std::uint32_t rank : *share->ranks()) {
      auto dims = dimsOf(*tensor, mesh, mesh.coordinatesOf(rank));
      Key key;
      for (const auto &dim : dims) {
        for (const Range &range : dim)
          key.emplace_back(range.start, range.size);
        key.emplace_back(~std::uint64_t(0), 0);
      }
      Region &region = regions[key];
      region.dims = std::move(dims);
      region.ranks.push_back(rank);
    }
  }
  std::vector<Region> list;
  for (auto &[key, region] : regions) {
    std::ranges::sort(region.ranks);
    list.push_back(std::move(region));
  }
  std::ranges::sort(list, {}, [](const Region &each) { return each.ranks[0]; });
  return list;
}

static Json tensorJson(const artifact::Artifact &root,
                       const artifact::ShardingRow &row) {
  Json regions = Json::array();
  for (const Region &region : regionsOf(root, toView(row.first->name()))) {
    Json dims = Json::array();
    for (const auto &dim : region.dims) {
      Json ranges = Json::array();
      for (const Range &range : dim)
        ranges.push_back({range.start, range.size});
      dims.push_back(std::move(ranges));
    }
    regions.push_back({{"dims", std::move(dims)}, {"ranks", region.ranks}});
  }
  return {{"name", row.name},
          {"example", toView(row.first->name())},
          {"parts", row.parts},
          {"role", artifact::EnumNameRole(row.first->role())},
          {"type", artifact::EnumNameElementType(row.first->type())},
          {"shape", artifact::globalShape(*row.first)},
          {"cut", artifact::shardingText(root, *row.first)},
          {"tensors", row.tensors.size()},
          {"bytes", row.bytes},
          {"rankBytes", row.rankBytes},
          {"layered", layerInName(toView(row.first->name())) >= 0},
          {"regions", std::move(regions)}};
}

Json shardingJson(const artifact::Artifact &root) {
  if (!root.mesh() || root.mesh()->size() == 0)
    return nullptr;
  Json axes = Json::array(), tensors = Json::array();
  for (const artifact::MeshAxis *axis : *root.mesh())
    axes.push_back({{"name", toView(axis->name())}, {"size", axis->size()}});
  for (const artifact::ShardingRow &row : artifact::shardingRows(root))
    if (tensors.size() < kMostTensors)
      tensors.push_back(tensorJson(root, row));
  return {{"axes", std::move(axes)},
          {"ranks", artifact::Mesh(root).ranks()},
          {"text", artifact::meshText(root)},
          {"tensors", std::move(tensors)}};
}

} // namespace tessera::report
