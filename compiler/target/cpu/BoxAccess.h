// Boxes of memory: their addresses, and loads and stores of scalars, of pieces
// and of whole tiles.
#pragma once
#include "compiler/target/cpu/Pieces.h"

namespace tessera::cpu {

/// The type of an element in memory: bf16 as its bits, i1 as a byte.
mlir::Type inMemory(mlir::Type element);
int64_t bytesOf(mlir::Type element); ///< there

/// A memref: element (i0, i1, …) is at pointer[offset + Σ i·stride].
struct Memory {
  mlir::Value pointer;
  mlir::Value offset; // in elements; may be null
  int64_t fixedOffset = 0;
  mlir::Type element; // as declared: bf16 and i1, not their stored forms
  llvm::SmallVector<int64_t> shape, strides;
  bool pairs = false; // the last two dimensions as [k/2, n, 2]
};
/// A box of a memory: where it starts and how its dimensions step.
struct Box {
  mlir::Value start;
  mlir::Type element;
  llvm::SmallVector<int64_t> shape, strides;
};

/// Calls `visit(row, pointer offset in elements)` for every index of the
/// leading dimensions.
void forEachRow(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> strides,
                llvm::function_ref<void(int64_t, int64_t)> visit);

/// What a lowering derives from to emit loads and stores.
class BoxAccess {
protected:
  BoxAccess(mlir::OpBuilder &builder, int64_t lanes, mlir::Block &entry)
      : b(builder), loc(builder.getUnknownLoc()), lanes(lanes),
        p(builder, loc, lanes, entry) {}

  void setLocation(mlir::Location to) {
    loc = to;
    p.setLocation(to);
  }

  mlir::Value address(const Memory &memory,
                      llvm::ArrayRef<mlir::Value> indices);
  Box boxOf(const Memory &memory, llvm::ArrayRef<mlir::Value> indices,
            llvm::ArrayRef<int64_t> along, llvm::ArrayRef<int64_t> shape);
  mlir::Value step(mlir::Value pointer, mlir::Type element, int64_t elements);
  mlir::Value loadScalar(mlir::Value pointer, mlir::Type element);
  void storeScalar(mlir::Value value, mlir::Value pointer, mlir::Type element);
  /// One piece of `count` elements; `mask` overrides the static count.
  /// `alignment` in bytes, 0: an element's.
  mlir::Value loadPiece(mlir::Value pointer, mlir::Type element, int64_t count,
                        mlir::Value mask = {}, int64_t alignment = 0);
  void storePiece(mlir::Value piece, mlir::Value pointer, mlir::Type element,
                  int64_t count, mlir::Value mask = {});
  mlir::Value boundMask(mlir::Value bound, int64_t first);
  /// Elements from `bound` on along the last dimension are not there: zero, or
  /// not stored. Null: all are.
  Tile loadBox(const Box &box, mlir::Value bound);
  void storeBox(const Tile &tile, const Box &box, mlir::Value bound);

  mlir::OpBuilder &b;
  mlir::Location loc; ///< of the op that is lowered
  const int64_t lanes;
  PieceBuilder p;

private:
  Tile loadElements(const Box &box, mlir::Value bound);
  void storeElements(const Tile &tile, const Box &box, mlir::Value bound);
};

} // namespace tessera::cpu
