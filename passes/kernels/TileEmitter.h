// Emits a cluster's expression into a kernel: scalars at the loop where they
// are known, register tiles inside. All skeletons but the contraction's main
// loop and attention go through here.
#pragma once
#include "dialects/tile/TileOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/fusion/ClusterExpression.h"
#include <map>

namespace tessera {

/// The type of a tensor's elements in memory: booleans take a byte, integers
/// are signless.
mlir::Type memoryElement(mlir::Type element);
/// The type in which elements are held in registers: f32 for f32, bf16 and f16.
mlir::Type heldElement(mlir::Type element);
/// The dense global buffer of a tensor, flat.
mlir::MemRefType bufferType(mlir::Type tensor);

/// Memory form → held form and back, for scalars and vectors.
mlir::Value toHeld(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value,
                   mlir::Type element);
mlir::Value toMemory(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value,
                     mlir::Type element);

/// value of `element`'s held type: a number as a scalar constant.
mlir::Value emitConstant(mlir::OpBuilder &b, mlir::Location loc,
                         mlir::TypedAttr value);
mlir::Value emitIndex(mlir::OpBuilder &b, mlir::Location loc, int64_t value);

/// A dimension of the iteration space along a register tile.
struct TileDim {
  unsigned dim;
  int64_t size;
};

/// One kernel's view of one piece: where its buffers are.
struct EmitTarget {
  const ExprPiece &piece;
  /// The buffer of each cluster argument, null where it has none.
  llvm::SmallVector<mlir::Value> arguments;
  mlir::Location loc;
};

/// A loop level. A node is emitted at the outermost level that knows the
/// indices it depends on (loop-invariant code stays outside); at the innermost
/// level those along the tile are vectors. While a level's child is being
/// filled, its insertion point is before the child's loop.
class EmitScope {
public:
  EmitScope(const EmitTarget &target, mlir::OpBuilder builder)
      : target(target), builder(builder) {}
  EmitScope(EmitScope &parent, mlir::OpBuilder builder)
      : target(parent.target), parent(&parent), builder(builder),
        known(parent.known), indices(parent.indices) {}

  /// The index of the first element along `dim`, known from here on.
  void setIndex(unsigned dim, mlir::Value index);
  /// Makes this the innermost level, on tiles of these sizes. `bound`: number
  /// of valid elements along the last dimension (flat kernels).
  void setTile(llvm::ArrayRef<TileDim> dims, mlir::Value bound = {});
  /// With one bound for each dimension, null if the tile is whole along it.
  void setTile(llvm::ArrayRef<TileDim> dims,
               llvm::ArrayRef<mlir::Value> bounds);
  /// The tile of an outer level (reductions down columns).
  void copyTile(const EmitScope &outer) {
    tile = outer.tile;
    bounds = outer.bounds;
  }
  bool isScalar() const { return tile.empty(); }
  /// The value of a reduction or of a given node.
  void set(unsigned node, mlir::Value value);

  /// A scalar, or a vector of the tile's shape where the node varies along it.
  mlir::Value emit(unsigned node);
  /// Always of the tile's shape; a scalar without a tile.
  mlir::Value emitTile(unsigned node);
  /// The value, in register form, at `address` of a buffer of `element`s; of
  /// row `row` (an index) if rows of `rowStride` elements are gathered.
  mlir::Value load(mlir::Value buffer, mlir::Type element,
                   const Linear &address, mlir::Value row = {},
                   int64_t rowStride = 0);
  /// Stores a held value at `address` of `buffer`, converted to `element`.
  void store(mlir::Value value, mlir::Type element, mlir::Value buffer,
             const Linear &address, mlir::Value row = {},
             int64_t rowStride = 0);

  mlir::VectorType tileType(mlir::Type element) const;
  mlir::Location loc() const { return target.loc; }

  const EmitTarget &target;
  EmitScope *parent = nullptr;
  mlir::OpBuilder builder;

private:
  struct Access {
    mlir::Value memory;
    llvm::SmallVector<mlir::Value> indices;
    llvm::SmallVector<int64_t> along, shape; ///< of the tile's varying part
    llvm::SmallVector<int64_t> dims;       ///< their positions within the tile
    llvm::SmallVector<mlir::Value> bounds; ///< as tile.load takes them
  };
  EmitScope &owner(const ExprNode &node);
  EmitScope &outermost();
  mlir::Value make(const ExprNode &node);
  mlir::Value makeLoad(const ExprNode &node);
  mlir::Value makeIndex(const Linear &form, mlir::Type type);
  mlir::Value makeIndexBase(const Linear &form);
  std::optional<int64_t> randomGroups(const ExprNode &node) const;
  mlir::Value makeElementwise(const ExprNode &node);
  mlir::Value makeRandom(const ExprNode &node);
  mlir::Value spread(unsigned node, mlir::Value scalar);
  Access access(mlir::Value buffer, const Linear &address, mlir::Value row,
                int64_t rowStride);
  mlir::Value view(mlir::Value buffer, const Linear &address,
                   llvm::ArrayRef<unsigned> dims, int64_t rowStride);
  bool variesAlongTile(const Linear &form) const;

  uint64_t known = 0;
  llvm::SmallVector<mlir::Value> indices;
  llvm::SmallVector<TileDim> tile;
  llvm::SmallVector<mlir::Value> bounds; ///< one a dimension of the tile
  llvm::DenseMap<unsigned, mlir::Value> values;
  std::map<std::pair<unsigned, void *>, mlir::Value> spreads;
  std::map<std::vector<int64_t>, mlir::Value> views;
};

/// What a graph.random's numbers depend on besides their index: scalars;
/// `offset` may be null.
struct RandomOperands {
  mlir::Value seed, step, offset;
};

/// Philox4x32-10 for the elements at row-major indices `index` (i64 scalar or
/// vector) of a graph.random, as that op documents; f32 of the same shape.
mlir::Value emitRandom(mlir::OpBuilder &b, graph::RandomOp op,
                       mlir::Value index, const RandomOperands &operands);
/// The same for whole groups of four elements: `group` (i64 vector) are their
/// indices / 4, the result is four times as long. At a quarter of the cost;
/// with an offset the elements of an entry must be a multiple of four.
mlir::Value emitRandomGroups(mlir::OpBuilder &b, graph::RandomOp op,
                             mlir::Value group, const RandomOperands &operands);
/// Elements of one entry of the first dimension.
int64_t entryElements(graph::RandomOp op);

} // namespace tessera
