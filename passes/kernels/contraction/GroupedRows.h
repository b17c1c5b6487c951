// The offsets of groups of rows, read by the kernel: how many rows a group has
// is data, and the host does not wait for it.
#pragma once
#include "dialects/tile/TileOps.h"

namespace tessera {

/// Packed rows are divided into tiles that cross no group. Tile t of the group
/// whose rows begin at row b has slot b / size + (the group's number) + t.
/// Slots of different groups are disjoint: a group that ends at row e has at
/// most e / size - b / size + 1 tiles, and the next one begins at least that
/// many slots later. So slots ascend with groups, and a slot's group is found
/// by bisection of the offsets; a slot without a tile has no rows. Rows after
/// the last group are one more group.
///
/// If there are fewer rows than such slots, as when few tokens choose among
/// many experts, each row has a slot instead, and a tile that of its first row:
/// groups without rows have none.
inline bool slotsAreRows(int64_t rows, int64_t size, int64_t groups) {
  return rows < rows / size + groups + 1;
}
inline int64_t slotsOf(int64_t rows, int64_t size, int64_t groups) {
  return slotsAreRows(rows, size, groups) ? rows : rows / size + groups + 1;
}

/// The tile of a slot, as index values.
struct SlotRows {
  mlir::Value group; ///< its number; after all groups, that of the last one
  mlir::Value start; ///< its first row
  mlir::Value all;   ///< its rows, from 0 to the tile's size
  mlir::Value owned; ///< the same, or 0 after all groups
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
