// How the tensors of an artifact are cut over its mesh, for people.
#pragma once
#include "runtime/artifact/Artifact_generated.h"

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::artifact {

/// Tensors of the state that differ in nothing but the number of their layer;
/// of the optimizer's also those of one parameter that are alike.
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

/// "[768, 3 x 4/tensor x 64]": the whole shape, each dimension with what it is
/// a product of where that matters, and over what it is cut.
std::string shardingText(const Artifact &artifact, const Tensor &tensor);

/// The rows as a table, and how inputs and outputs of `program` are cut.
std::string shardingTable(const Artifact &artifact, const Program &program);

} // namespace tessera::artifact
