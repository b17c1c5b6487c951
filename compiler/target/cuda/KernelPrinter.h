// Prints one kernel.
#pragma once
#include "compiler/target/cuda/CudaPrinter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"
#include <map>

namespace mlir::vector {
class InterleaveOp;
} // namespace mlir::vector
namespace tessera::tile {
class MmaQuantizedOp;
} // namespace tessera::tile

namespace tessera::cuda {

/// A piece of C++: its text, and how tightly its outermost operator binds.
struct Expression {
  enum Binding { atom, product, sum, shift, comparison, logic, choice };
  std::string text;
  Binding binding = atom;
};

/// `text`, in parentheses unless it binds at least as tightly as `limit`.
std::string within(const Expression &expression, Expression::Binding limit);

/// "float", "int64_t", … of a scalar type.
llvm::StringRef typeName(mlir::Type element);

/// The C++ of a pure op on scalars, given its operands; nullopt if it has none.
std::optional<Expression> printScalar(mlir::Operation *op,
                                      llvm::ArrayRef<Expression> operands,
                                      unsigned result);
/// Whether a value of this type is a tile; one without dimensions is a scalar.
inline bool isTile(mlir::Type type) {
  auto vector = mlir::dyn_cast<mlir::VectorType>(type);
  return vector && vector.getRank() > 0;
}
/// The literal of a number.
Expression printNumber(mlir::Attribute value);

class KernelPrinter {
public:
  KernelPrinter(tile::KernelOp kernel, const TileTarget &target)
      : kernel(kernel), target(target) {}

  llvm::Error print();
  std::string text;
  KernelShape shape;

private:
  /// The location of a memref's elements: base + offset + Σ index · stride.
  struct Memory {
    std::string base;
    Expression offset;
    llvm::SmallVector<Expression> strides;
    mlir::Value root; ///< the buffer or allocation
    bool swizzled = false;
  };

  // The kernel's head.
  llvm::Error printHeader();
  /// Requires that launches pass a buffer that begins at a multiple of 16
  /// bytes; returns its number.
  unsigned alignBuffer(mlir::BlockArgument buffer);
  std::string nameBuffer(unsigned i);
  std::string describeBuffer(unsigned i);
  llvm::Error printBuffer(unsigned i, const std::string &name);

  // Ops, loops and branches (PrintControl.cpp).
  llvm::Error printBlock(mlir::Block &block);
  llvm::Error printOp(mlir::Operation *op);
  llvm::Error printArithmetic(mlir::Operation *op);
  llvm::Error printSlice(tile::SliceOp op);
  llvm::Error printInterleave(mlir::vector::InterleaveOp op);
  llvm::Error printExtract(mlir::Operation *op);
  llvm::Error printFor(mlir::scf::ForOp loop);
  llvm::Error printIf(mlir::scf::IfOp branch);
  llvm::Error assign(mlir::Operation *terminator,
                     llvm::ArrayRef<std::string> to);

  // Memory and barriers (PrintMemory.cpp).
  llvm::Error printView(mlir::memref::ReinterpretCastOp op);
  llvm::Error printAlloc(tile::AllocOp op);
  llvm::Error printSynchronization(mlir::Operation *op);
  llvm::Error printElementLoad(mlir::memref::LoadOp op);
  llvm::Error printElementStore(mlir::memref::StoreOp op);
  llvm::Error printLoad(tile::LoadOp op);
  llvm::Error printStore(tile::StoreOp op);
  llvm::Error printConstantTile(mlir::arith::ConstantOp op);

  // Tiles (PrintTiles.cpp; printTile: KernelPrinter.cpp).
  llvm::Error printTile(mlir::Operation *op);
  llvm::Error printReduce(tile::ReduceOp op);
  llvm::Error printIota(tile::IotaOp op);
  llvm::Error printCopy(tile::CopyOp op);
  llvm::Error checkFragments(mlir::Operation *op);
  llvm::Error printCopyOfRow(tile::CopyOp op);
  llvm::Error printUpcast(tile::CopyOp op);
  llvm::Error printMma(tile::MmaOp op);
  llvm::Error printMmaQuantized(tile::MmaQuantizedOp op);
  bool isOfWarpgroups(tile::MmaOp op);
  bool isOfFewRows(tile::MmaOp op);

  // Roles (PrintRoles.cpp).
  void findMaps();
  llvm::Error printRing(tile::MakeRingOp op);
  llvm::Error printRoles(tile::WarpSpecializeOp op);
  llvm::Error printBulkCopy(tile::BulkCopyOp op);
  llvm::Error printMmaAsync(tile::MmaAsyncOp op);
  llvm::Error printInRole(mlir::Operation *op);
  bool bindOperand(tile::LoadOp op);
  int64_t alignmentOf(mlir::MemRefType type, mlir::ValueRange indices);
  template <typename Op> bool isProvenAligned(Op op, mlir::VectorType type);
  template <typename Op> std::string alignedAccess(Op op);

  // Layouts (PrintTiles.cpp).
  /// Which slice of a two-dimensional tile each tile of one dimension is.
  enum class Slice { rows, columns };
  void findSlices();
  bool unify(llvm::ArrayRef<mlir::Value> values);
  llvm::Error checkLayout(mlir::Type type, mlir::Operation *op);
  /// The name of a tile's layout in this kernel.
  std::string layoutOf(mlir::Value value);
  std::string layoutOf(mlir::Type type, Slice slice);

  // Values.
  bool isElementwise(mlir::Operation *op) const;
  bool isInlined(mlir::Operation *op) const;
  Expression scalar(mlir::Value value);
  /// The arguments of map: a function of elements and the tiles to take them
  /// from.
  struct Lambda {
    llvm::SmallVector<std::string> parameters, arguments;
    llvm::DenseMap<mlir::Value, std::string> seen; ///< parameter by value
  };
  Expression element(mlir::Value value, Lambda &lambda, bool isRoot);
  std::string tile(mlir::Value value) { return tile(value, layoutOf(value)); }
  std::string tile(mlir::Value value, llvm::StringRef layout);
  std::string typeOf(mlir::Value value);
  std::string address(const Memory &memory, mlir::ValueRange indices);
  std::string access(const Memory &memory, mlir::ValueRange indices,
                     llvm::ArrayRef<int64_t> along, mlir::ValueRange bounds);

  // Text.
  std::string fresh(llvm::StringRef hint);
  void line(const llvm::Twine &code);
  void define(mlir::Value value, llvm::StringRef hint,
              const llvm::Twine &expression);
  llvm::Error unsupported(mlir::Operation *op, const llvm::Twine &why);

  tile::KernelOp kernel;
  const TileTarget &target;
  unsigned depth = 1;
  llvm::StringMap<unsigned> names;
  llvm::DenseMap<mlir::Value, Expression> values;
  llvm::DenseMap<mlir::Value, Memory> memories;
  bool hasWarpgroups = false;      ///< products of warpgroups
  bool hasFewRows = false;         ///< a matmul of one fragment of rows
  tile::WarpSpecializeOp roles;    ///< null in most kernels
  std::string barrier = "sync();"; ///< of the threads that have tiles
  std::string turns; ///< the type of the consumers' ping-pong barriers
  std::vector<std::string> maps;                     ///< names, as shape.maps
  llvm::DenseMap<mlir::Operation *, unsigned> mapOf; ///< by bulk copy
  llvm::DenseMap<mlir::Value, Slice> slices;
  std::map<std::string, std::string> layouts; ///< name → definition
};

} // namespace tessera::cuda
