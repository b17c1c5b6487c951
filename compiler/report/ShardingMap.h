// Who holds what of a tensor.
#pragma once
#include <cstdint>
#include <vector>

#include "compiler/report/Json.h"
#include "runtime/artifact/Artifact_generated.h"
#include "runtime/artifact/Shares.h"

namespace tessera::report {

/// A part of a tensor that some ranks hold: in each dimension ranges of
/// indices, increasing.
struct Region {
  std::vector<std::vector<artifact::Range>> dims;
  std::vector<std::uint32_t> ranks;
};

/// The regions of the tensor of that name, in order of their first rank. All
/// ranks are covered, in shares that have the tensor.
std::vector<Region> regionsOf(const artifact::Artifact &root,
                              std::string_view tensor);

/// The state of one layer of each kind and of what is outside of layers, each
/// tensor with its regions; null without a mesh.
Json shardingJson(const artifact::Artifact &root);

} // namespace tessera::report
