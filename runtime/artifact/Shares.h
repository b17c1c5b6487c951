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

/// What is bounded so that ranks can be counted: ranks of a mesh, and its axes.
inline constexpr std::uint64_t kMaxRanks = std::uint64_t(1) << 20;
inline constexpr std::size_t kMaxMeshAxes = 16;

/// The input of programs in which a rank finds where its ranges start:
/// Share.offsets.
inline constexpr std::string_view kOffsetsInput = "mesh.offsets";

/// Indices [start, start + size).
struct Range {
  std::uint64_t start = 0, size = 0;
};

/// What device `device` of `devices` has of `size` elements: ⌈size/devices⌉ for
/// the first size mod devices of them, ⌊size/devices⌋ for the others.
Range rangeOf(std::uint64_t size, std::uint64_t devices, std::uint64_t device);

/// A rank's place along every axis.
using Coordinates = std::vector<std::uint32_t>;

/// Artifact.mesh of an artifact whose mesh is known to be in bounds.
class Mesh {
public:
  explicit Mesh(const Artifact &artifact);
  std::size_t axes() const { return sizes.size(); }
  std::uint32_t size(std::uint32_t axis) const { return sizes[axis]; }
  /// 1 without axes.
  std::uint32_t ranks() const { return count; }
  Coordinates coordinatesOf(std::uint32_t rank) const;
  std::uint32_t rankAt(const Coordinates &at) const;
  /// The ranks that differ from `rank` along `of` alone, itself among them, in
  /// the order of their numbers as members. `of` names axes of the mesh, each
  /// once.
  std::vector<std::uint32_t> groupOf(std::uint32_t rank,
                                     std::span<const std::uint32_t> of) const;

private:
  std::vector<std::uint32_t> sizes;
  std::uint32_t count = 1;
};

/// The range of a factor at these coordinates.
Range rangeAt(const Cut &cut, const Mesh &mesh, const Coordinates &at);

/// The shape of all shares of `tensor` together.
std::vector<std::uint64_t> globalShape(const Tensor &tensor);

/// The ranks that write `tensor` for all: of those that have the same elements
/// of it the first one, ascending. `isHolder[r]` says whether rank r has any.
std::vector<std::uint32_t> firstHolders(const Tensor &tensor, const Mesh &mesh,
                                        const std::vector<bool> &isHolder);

/// Of the share of the rank at `at`.
std::uint64_t elementsOfShare(const Tensor &tensor, const Mesh &mesh,
                              const Coordinates &at);

/// Elements that lie next to each other both in the whole tensor and in a
/// share: [whole, whole + count) and [part, part + count).
struct Run {
  std::uint64_t whole = 0, part = 0, count = 0;
};

/// The share of a tensor that the rank at some coordinates has, as runs that
/// are as long as they can be, in the order of the share. Both tensors are
/// row-major. Allocates when it is made and not after.
///
///   for (ShareRuns runs(tensor, mesh, at); const Run *run = runs.next();)
///
class ShareRuns {
public:
  ShareRuns(const Tensor &tensor, const Mesh &mesh, const Coordinates &at);
  /// Null after the last one. Valid until the next call.
  const Run *next();

private:
  /// A factor that is cut, or several that are not: what of it the rank has.
  struct Level {
    std::uint64_t size;
    Range range;
    std::uint64_t stride = 0; ///< elements of the whole from index to index
    std::uint64_t index = 0;  ///< in the range
  };
  void append(std::uint64_t size, Range range);

  std::vector<Level> levels; ///< the last one is what a run is made of
  Run run;
  bool isDone = false;
};

/// Copies between a whole tensor and the share of the rank at `at`; both
/// row-major and of the tensor's size.
void copyToShare(const Tensor &tensor, const Mesh &mesh, const Coordinates &at,
                 std::span<const std::byte> whole, std::span<std::byte> part);
void copyFromShare(const Tensor &tensor, const Mesh &mesh,
                   const Coordinates &at, std::span<const std::byte> part,
                   std::span<std::byte> whole);

} // namespace tessera::artifact
