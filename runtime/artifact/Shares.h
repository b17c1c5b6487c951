// Which elements of a tensor a rank has, and their order in its local tensor:
// the meaning of Artifact.mesh, Cut and DimCut. The compiler's
// passes/sharding/Placement.h defines the same.
#pragma once
#include "runtime/artifact/Artifact_generated.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tessera::artifact {

/// Limits of a mesh, so that ranks can be enumerated: ranks and axes.
inline constexpr std::uint64_t kMaxRanks = std::uint64_t(1) << 20;
inline constexpr std::size_t kMaxMeshAxes = 16;

/// The input of programs with the starts of a rank's ranges: Share.offsets.
inline constexpr std::string_view kOffsetsInput = "mesh.offsets";

/// Indices [start, start + size).
struct Range {
  std::uint64_t start = 0, size = 0;
};

/// The range of device `device` of `devices` out of `size` elements:
/// ⌈size/devices⌉ for the first size mod devices of them, ⌊size/devices⌋ for
/// the others.
Range rangeOf(std::uint64_t size, std::uint64_t devices, std::uint64_t device);

/// A rank's index along every axis.
using Coordinates = std::vector<std::uint32_t>;

/// Artifact.mesh, of an artifact whose mesh was validated.
class Mesh {
public:
  explicit Mesh(const Artifact &artifact);
  std::size_t axes() const { return sizes.size(); }
  std::uint32_t size(std::uint32_t axis) const { return sizes[axis]; }
  /// 1 without axes.
  std::uint32_t ranks() const { return count; }
  Coordinates coordinatesOf(std::uint32_t rank) const;
  std::uint32_t rankAt(const Coordinates &at) const;
  /// The ranks that differ from `rank` only along `of`, including itself, in
  /// the order of members. `of` names axes of the mesh, each once.
  std::vector<std::uint32_t> groupOf(std::uint32_t rank,
                                     std::span<const std::uint32_t> of) const;

private:
  std::vector<std::uint32_t> sizes;
  std::uint32_t count = 1;
};

/// The range of a factor at these coordinates.
Range rangeAt(const Cut &cut, const Mesh &mesh, const Coordinates &at);

/// The shape of the whole tensor of which `tensor` is a shard.
std::vector<std::uint64_t> globalShape(const Tensor &tensor);

/// The ranks that write `tensor`: of those with the same elements the first
/// one, ascending. `isHolder[r]`: whether rank r has any.
std::vector<std::uint32_t> firstHolders(const Tensor &tensor, const Mesh &mesh,
                                        const std::vector<bool> &isHolder);

/// Elements of the local tensor of the rank at `at`.
std::uint64_t elementsOfShare(const Tensor &tensor, const Mesh &mesh,
                              const Coordinates &at);

/// Elements that are contiguous both in the whole tensor and in a local one:
/// [whole, whole + count) and [part, part + count).
struct Run {
  std::uint64_t whole = 0, part = 0, count = 0;
};

/// The local tensor of the rank at some coordinates, as runs of maximal length
/// in its order. Both tensors are row-major. Allocates only in the constructor.
///
///   for (ShareRuns runs(tensor, mesh, at); const Run *run = runs.next();)
///
class ShareRuns {
public:
  ShareRuns(const Tensor &tensor, const Mesh &mesh, const Coordinates &at);
  /// Null after the last one. Valid until the next call.
  const Run *next();

private:
  /// A sharded factor, or several unsharded ones, with the rank's range.
  struct Level {
    std::uint64_t size;
    Range range;
    std::uint64_t stride = 0; ///< elements of the whole from index to index
    std::uint64_t index = 0;  ///< in the range
  };
  void append(std::uint64_t size, Range range);

  std::vector<Level> levels; ///< a run is a range of the last one
  Run run;
  bool isDone = false;
};

/// Copies between a whole tensor and the local tensor of the rank at `at`; both
/// row-major and complete.
void copyToShare(const Tensor &tensor, const Mesh &mesh, const Coordinates &at,
                 std::span<const std::byte> whole, std::span<std::byte> part);
void copyFromShare(const Tensor &tensor, const Mesh &mesh,
                   const Coordinates &at, std::span<const std::byte> part,
                   std::span<std::byte> whole);

} // namespace tessera::artifact
