// The positions of the ops of restored layers.
#pragma once
#include "passes/folding/Units.h"

namespace tessera::folding {

/// Puts copies of the third unit's ops where they would have been if no unit
/// had been removed. Ops of two neighbors may be mixed, as where a kernel of
/// one is computed in the middle of the other: every copy is then mixed alike
/// with its neighbors. If three are mixed, what reads a later layer follows it.
class LayerOrder {
public:
  /// The unit after the third is `copies[0]`, and so on; each has a copy of
  /// each of the unit's ops, in no block.
  LayerOrder(const Units &units,
             llvm::ArrayRef<std::vector<mlir::Operation *>> copies)
      : units(units), copies(copies) {}

  void apply(mlir::Block &block);
  /// Moves each op that reads what is computed after it to the end of what it
  /// reads. There is none if only neighbors are mixed, since all units have
  /// their ops in the same order. Once all blocks have their copies. Returns an
  /// op that cannot be moved, since collectives keep their order; null if there
  /// is none.
  static mlir::Operation *moveAfterProducers(mlir::Block &block);

private:
  /// Ops, by number, of which each unit has some before the preceding unit has
  /// its last: those of a forward pass, a backward pass, all updates.
  struct Segment {
    std::vector<unsigned> numbers;
    bool ascends; ///< earlier layers come first
  };

  void findPositions(mlir::Block &block);
  std::vector<Segment> segmentsOf(mlir::Block &block) const;
  void place(const Segment &segment);
  int64_t position(unsigned unit, unsigned number) const {
    return positions.lookup(units.ops[unit][number]);
  }
  /// Of a unit of the restored program, from 1 on.
  mlir::Operation *opOf(int64_t unit, unsigned number) const {
    return unit < 3 ? units.ops[unit][number] : copies[unit - 3][number];
  }

  const Units &units;
  llvm::ArrayRef<std::vector<mlir::Operation *>> copies;
  llvm::DenseMap<mlir::Operation *, int64_t> positions;
  std::vector<mlir::Operation *> own; ///< the block's ops, by position
  /// What comes before a position; one more at the end.
  std::vector<std::vector<mlir::Operation *>> before;
};

} // namespace tessera::folding
