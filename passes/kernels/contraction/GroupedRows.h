// Where groups of rows begin and end, read by the kernel: how many rows a group
// has is data, and no host waits for it.
#pragma once
#include "dialects/tile/TileOps.h"

namespace tessera {

/// Packed rows are cut into tiles that cross no group. Tile t of the group
/// whose rows begin at row b has slot b / size + (the group's number) + t. The
/// slots of groups do not meet: a group that ends at row e has at most e / size
/// - b / size + 1 tiles, and the next one begins so many slots later or more.
/// So slots ascend with groups, and a slot's group is found by bisection of the
/// offsets; a slot that is no group's tile has no rows. Rows behind the last
/// group are one more group.
///
/// Where there are fewer rows than such slots, as when few tokens meet many
/// experts, each row has a slot instead, and a tile that of its first row: no
/// slot is there for groups that nobody chose.
inline bool slotsAreRows(int64_t rows, int64_t size, int64_t groups) {
  return rows < rows / size + groups + 1;
}
inline int64_t slotsOf(int64_t rows, int64_t size, int64_t groups) {
  return slotsAreRows(rows, size, groups) ? rows : rows / size + groups + 1;
}

/// The tile of a slot, as index values.
struct SlotRows {
  mlir::Value group; ///< its number, or that of the last one behind all groups
  mlir::Value start; ///< its first row
  mlir::Value all;   ///< its rows, from 0 to the tile's size
  mlir::Value owned; ///< the same, or 0 behind all groups
};

/// Decodes slot `slot` of `rows` rows in tiles of `size`. `offsets`: memref of
/// groups + 1 i32.
SlotRows emitSlotRows(mlir::OpBuilder &b, mlir::Location loc,
                      mlir::Value offsets, mlir::Value slot, int64_t groups,
                      int64_t rows, int64_t size);

/// Element `index` of a memref of i32, as an index.
mlir::Value emitLoadIndex(mlir::OpBuilder &b, mlir::Location loc,
                          mlir::Value memory, mlir::Value index);

/// `value` within [0, limit].
mlir::Value emitClamp(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value,
                      int64_t limit);

} // namespace tessera
