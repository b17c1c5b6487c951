// Where the elements of a tensor are: #dist.sharding in the form in which
// passes compute with it, with axes by number and the sizes of shards.
#pragma once
#include "dialects/dist/Cluster.h"
#include "dialects/dist/DistOps.h"
#include <functional>

namespace tessera::sharding {

/// One device's index along every axis of the mesh.
using Coordinates = llvm::SmallVector<int64_t, 4>;

/// A mesh with its axes by number, and what its devices and links cost.
struct Mesh {
  mlir::StringAttr name;
  llvm::SmallVector<dist::AxisAttr, 4> axes;
  hardware::Device device;
  double launch; ///< seconds between two kernels
  std::vector<hardware::Tier> tiers;
  /// For each axis the slowest links between devices along it.
  llvm::SmallVector<hardware::Link, 4> links;

  explicit Mesh(dist::MeshOp op);
  Mesh(mlir::StringAttr name, llvm::ArrayRef<dist::AxisAttr> axes,
       const hardware::ClusterRates &rates);
  unsigned rank() const { return axes.size(); }
  int64_t size(unsigned axis) const { return axes[axis].getSize(); }
  int64_t size(llvm::ArrayRef<unsigned> of) const;
  int64_t deviceCount() const;
  /// The devices along some axes, as far apart as along the nearest.
  planner::RankGroup group(llvm::ArrayRef<unsigned> of) const;
  std::optional<unsigned> find(llvm::StringRef axis) const;
  /// The last axis is the fastest.
  Coordinates coordinatesOf(int64_t device) const;
};

/// The elements that a device has of `size` elements sharded over n devices:
/// ⌈size/n⌉ for the first size mod n devices, ⌊size/n⌋ for the others
/// (runtime/artifact must agree).
struct Range {
  int64_t start, size;
};
Range rangeOf(int64_t size, int64_t devices, int64_t device);

/// A factor of a dimension's size, sharded along axes, major first.
struct Factor {
  int64_t size;
  llvm::SmallVector<unsigned, 2> axes;
  bool operator==(const Factor &) const = default;

  bool isCut() const { return !axes.empty(); }
  Range rangeAt(const Mesh &mesh, const Coordinates &at) const;
};

/// Factors of one dimension, the slowest-varying first; none: of size 1.
using DimPlacement = llvm::SmallVector<Factor, 2>;

struct Placement {
  llvm::SmallVector<DimPlacement, 4> dims;
  /// Along these axes, ascending, every device has a partial value.
  llvm::SmallVector<unsigned, 2> partial;
  dist::ReduceKind kind = dist::ReduceKind::sum;
  /// Axes of device-local row order, ascending: each device has other rows, in
  /// an order of its own.
  llvm::SmallVector<unsigned, 2> own = {};
  /// Rows that a device has a buffer for, of those that were sent to it; 0: as
  /// many as the first dimension and its axes say.
  int64_t room = 0;

  bool operator==(const Placement &) const = default;

  /// Replicated.
  static Placement whole(mlir::RankedTensorType type);
  static Placement fromAttr(dist::ShardingAttr attr,
                            mlir::RankedTensorType type, const Mesh &mesh);
  dist::ShardingAttr toAttr(mlir::MLIRContext *context, const Mesh &mesh) const;

  bool isWhole() const;
  /// Sharded along no axis; it may be partial.
  bool isUncut() const;
  bool uses(unsigned axis) const;
  Placement withoutPartial() const;
  /// The same, neither sharded nor partial along the axis.
  Placement without(unsigned axis) const;
  /// Brings it into normal form, in which equal placements compare equal:
  /// factors that are not sharded are joined, evenly sharded ones are joined
  /// with the factor after them.
  void normalize(const Mesh &mesh);

  /// The shape of the shard of the device at these coordinates.
  llvm::SmallVector<int64_t> localShape(const Mesh &mesh,
                                        const Coordinates &at) const;
  mlir::RankedTensorType localType(mlir::RankedTensorType type,
                                   const Mesh &mesh,
                                   const Coordinates &at) const;
};

/// Splits a dimension's factors such that the last ones multiply to `inner`;
/// nullopt if a sharded factor would have to be split inside a shard.
std::optional<std::pair<DimPlacement, DimPlacement>>
splitFactors(const DimPlacement &dim, int64_t inner, const Mesh &mesh);

/// Factors without those of size 1, joined where that loses nothing.
void normalizeFactors(DimPlacement &dim, const Mesh &mesh);

} // namespace tessera::sharding
