// The collectives, slices and copies that a reshard becomes on one device.
#pragma once
#include "dialects/graph/Build.h"
#include "passes/sharding/Placement.h"

namespace tessera::sharding {

/// The coordinates of the devices that differ from the one at `at` only along
/// `axes`, in the order of the members of a collective.
llvm::SmallVector<Coordinates> membersOf(const Mesh &mesh,
                                         const Coordinates &at,
                                         llvm::ArrayRef<unsigned> axes);

class Resharder {
public:
  /// Emits into `emit`'s builder, for the device at `at`.
  Resharder(graph::Emitter &emit, const Mesh &mesh, const Coordinates &at)
      : emit(emit), mesh(mesh), at(at) {}

  /// Turns `local`, a shard under `from`, into the shard under `to`. Null after
  /// an error at the emitter's location.
  mlir::Value reshard(mlir::Value local, const Placement &from,
                      const Placement &to);

  /// The index of this device's first element of `factor`: i32[].
  mlir::Value offsetOf(const Factor &factor);

  /// Axes as the attributes of collectives.
  mlir::ArrayAttr refs(llvm::ArrayRef<unsigned> axes) const;

private:
  /// A common factor of both placements, with the axes that shard it before
  /// (`now`) and after (`then`).
  struct Cell {
    int64_t size;
    llvm::SmallVector<unsigned, 2> now, then;
    /// The number of leading axes that both have: they stay.
    size_t kept() const;
    llvm::ArrayRef<unsigned> leaving() const;
    llvm::ArrayRef<unsigned> coming() const;
  };
  using Axes = llvm::SmallVector<unsigned, 2>;

  bool refine(const Placement &from, const Placement &to);
  mlir::Value viaWhole(mlir::Value local, const Placement &from,
                       const Placement &to);
  void reduce(Axes parts, dist::ReduceKind kind);
  void exchange();
  void slice(Cell &cell);
  void gather(Cell &cell);
  void scatter(Cell &cell, llvm::ArrayRef<unsigned> axes,
               dist::ReduceKind kind);
  int64_t sizeOf(const Cell &cell) const;
  llvm::SmallVector<int64_t> shares(const Cell &cell,
                                    llvm::ArrayRef<unsigned> cut,
                                    llvm::ArrayRef<unsigned> over) const;
  mlir::DenseI64ArrayAttr sharesAttr(llvm::ArrayRef<int64_t> shares) const;
  llvm::SmallVector<int64_t> shape() const;
  void toFront(const Cell &cell);
  void fromFront(const Cell &cell);

  graph::Emitter &emit;
  const Mesh &mesh;
  const Coordinates &at;
  llvm::SmallVector<Cell> cells;
  mlir::Value value; ///< one dimension for each cell, between steps
};

} // namespace tessera::sharding
