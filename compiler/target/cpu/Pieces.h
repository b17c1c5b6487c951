// Splits register tiles into machine values: one-dimensional vectors and
// scalars.
#pragma once
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

namespace tessera::cpu {

/// How the elements of a tile are distributed over its pieces. bf16 elements
/// are i16 in all forms.
enum class Form {
  /// For every index of the leading dimensions, row-major, ceil(C / lanes)
  /// vectors of `lanes` elements along the last dimension C, the excess lanes
  /// unspecified; a scalar where C is 1 or the tile has no dimension.
  vectors,
  /// [m, k] as one scalar an element, row-major: left operands of a product.
  /// Where bf16 is multiplied in pairs, one i32 for two elements along k.
  scalars,
  /// [k, n] of bf16 as ceil(k/2) × ceil(n/lanes) vectors of `lanes` i32, each
  /// holding elements (k, n) and (k+1, n); zero where k+1 exceeds the tile.
  pairs,
};

struct Tile {
  llvm::SmallVector<int64_t> shape;
  llvm::SmallVector<mlir::Value> pieces;
  Form form = Form::vectors;
};

/// Vector helpers for all lowering steps. Constants are made once for each
/// function, at its entry.
class PieceBuilder {
public:
  PieceBuilder(mlir::OpBuilder &b, mlir::Location loc, int64_t lanes,
               mlir::Block &entry)
      : b(b), loc(loc), lanes(lanes), entry(entry) {}

  // Types. `element` is the tile's; bf16 gives i16.
  static mlir::Type stored(mlir::Type element);
  mlir::VectorType vectorOf(mlir::Type element) const;
  /// Pieces of one row of `columns` elements.
  int64_t chunks(int64_t columns) const {
    return columns == 1 ? 1 : (columns + lanes - 1) / lanes;
  }
  mlir::Type pieceType(llvm::ArrayRef<int64_t> shape, mlir::Type element) const;
  int64_t pieceCount(llvm::ArrayRef<int64_t> shape) const;

  // Constants.
  mlir::Value constant(mlir::TypedAttr value);
  mlir::Value index(int64_t value) { return constant(b.getIndexAttr(value)); }
  /// An integer or float constant, splat where `type` is a vector.
  mlir::Value number(mlir::Type type, double value);
  mlir::Value bits(mlir::Type type, uint64_t value);
  /// [first, first + lanes) as i32 lanes.
  mlir::Value laneNumbers(int64_t first);
  /// The lanes below `count`, as i1.
  mlir::Value laneMask(int64_t count);

  // Lanes.
  mlir::Value splat(mlir::Value scalar);
  mlir::Value lane(mlir::Value vector, int64_t i);
  mlir::Value setLane(mlir::Value vector, mlir::Value scalar, int64_t i);
  mlir::Value shuffle(mlir::Value x, mlir::Value y,
                      llvm::ArrayRef<int64_t> mask);
  /// A vector of these scalars; at most `lanes`, the rest zero.
  mlir::Value gatherLanes(llvm::ArrayRef<mlir::Value> scalars);
  /// `scalar` itself if the operation's target is scalar, else its splat.
  mlir::Value like(mlir::Value scalar, mlir::Type type);

  /// Element `column` of the row that starts at piece `row` × chunks.
  mlir::Value element(const Tile &tile, int64_t row, int64_t column);
  /// Reduces the lanes of one vector by halves: a fixed tree.
  mlir::Value reduceLanes(
      mlir::Value vector,
      llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)> combine);
  /// `lanes` vectors of `lanes` elements, rows to columns.
  llvm::SmallVector<mlir::Value> transpose(llvm::ArrayRef<mlir::Value> rows);
  /// A `vectors` tile [m, n] as [n, m].
  Tile transpose(const Tile &tile);
  /// Rows k and k+1 of bf16 as pairs; a null `odd` counts as zeros.
  mlir::Value pairRows(mlir::Value even, mlir::Value odd);

  /// The even or the odd rows of pairs, extended to f32.
  mlir::Value halfOfPair(mlir::Value words, bool odd);

  // Conversions of bf16 bits (i16 pieces); round to nearest even.
  mlir::Value extendBf16(mlir::Value piece);
  mlir::Value truncateToBf16(mlir::Value piece, bool hasInstruction);

  mlir::OpBuilder &builder() { return b; }
  mlir::Location location() const { return loc; }
  void setLocation(mlir::Location l) { loc = l; }
  int64_t laneCount() const { return lanes; }

private:
  llvm::SmallVector<mlir::Value>
  transpose32(llvm::SmallVector<mlir::Value> rows);

  mlir::OpBuilder &b;
  mlir::Location loc;
  int64_t lanes;
  mlir::Block &entry;
  llvm::DenseMap<mlir::Attribute, mlir::Value> constants;
};

} // namespace tessera::cpu
