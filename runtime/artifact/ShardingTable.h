// How the tensors of an artifact are sharded over its mesh, for display.
#pragma once
#include "runtime/artifact/Artifact_generated.h"

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::artifact {

/// Tensors of the state that differ only in their layer; for optimizer state,
/// also those of one parameter with equal shape and sharding.
struct ShardingRow {
  const Tensor *first = nullptr;
  /// The name, with # for numbers of layers; of the optimizer's state that of
  /// the parameter.
  std::string name;
  std::vector<std::string_view> parts; ///< "exp_avg", of the optimizer's state
  std::set<std::string_view> tensors;  ///< their names
  std::uint64_t ranks = 0;             ///< that have any of it
  std::uint64_t bytes = 0;             ///< of the whole tensors
  std::uint64_t rankBytes = 0;         ///< of the rank that has most of it
};

/// The state of all ranks; a parameter's optimizer state follows it.
std::vector<ShardingRow> shardingRows(const Artifact &artifact);

/// "[768, 3 x 4/tensor x 64]": the whole shape; dimensions with several factors
/// as their product, and the axes along which each factor is sharded.
std::string shardingText(const Artifact &artifact, const Tensor &tensor);

/// The rows as a table, and the sharding of inputs and outputs of `program`.
std::string shardingTable(const Artifact &artifact, const Program &program);

} // namespace tessera::artifact
