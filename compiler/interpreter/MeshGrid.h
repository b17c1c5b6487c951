// Devices of a mesh by number, and which elements of a tensor each of them has.
// Written from the dialect's documentation alone: passes are tested against it.
#pragma once
#include "compiler/interpreter/Tensor.h"
#include "dialects/dist/DistOps.h"
#include "llvm/Support/Error.h"

namespace tessera::interpreter {

class MeshGrid {
public:
  explicit MeshGrid(dist::MeshOp mesh)
      : axes(mesh.getAxes().getAsRange<dist::AxisAttr>()),
        count(mesh.getDeviceCount()) {}

  int64_t deviceCount() const { return count; }

  /// The devices that differ from `device` along `axes` only, `device` among
  /// them, in their order along the axes, the last one fastest.
  std::vector<int64_t> groupOf(int64_t device,
                               llvm::ArrayRef<dist::AxisRefAttr> axes) const;

  /// The first index and the number of those that a device has of `size`
  /// elements cut along `axes`, major first.
  struct Range {
    int64_t start, size;
  };
  Range rangeOf(int64_t device, int64_t size,
                llvm::ArrayRef<dist::AxisRefAttr> axes) const;

  /// What a device has of `whole`; of a partial tensor device 0 along the
  /// partial axes has it all, the others zeros (sum) or the same (max). Null
  /// `sharding`: everything.
  Tensor shareOf(const Tensor &whole, dist::ShardingAttr sharding,
                 int64_t device) const;

  /// Joins the shards of all devices to a tensor of `shape`. Errors: a shard of
  /// another shape; replicas with different bits.
  llvm::Expected<Tensor> join(llvm::ArrayRef<const Tensor *> shares,
                              dist::ShardingAttr sharding,
                              llvm::ArrayRef<int64_t> shape) const;

private:
  /// The place of devices along one axis or a part of one: `stride` apart.
  struct Part {
    int64_t size, stride;
    int64_t of(int64_t device) const { return device / stride % size; }
  };
  Part partOf(dist::AxisRefAttr axis) const;
  /// The indices of each dimension that a device has.
  std::vector<std::vector<int64_t>>
  indicesOf(int64_t device, dist::ShardingAttr sharding,
            llvm::ArrayRef<int64_t> shape) const;

  llvm::SmallVector<dist::AxisAttr> axes;
  int64_t count;
};

} // namespace tessera::interpreter
