// One tile.kernel as functions over machine vectors.
#pragma once
#include "compiler/target/cpu/BoxAccess.h"
#include "compiler/target/cpu/Pieces.h"
#include "compiler/target/cpu/Polynomials.h"
#include "dialects/tile/TileOps.h"
#include "dialects/tile/TileQuantOps.h"
#include "hardware/Targets.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"
#include <memory>

namespace tessera::cpu {

/// The integer attribute on a lowered kernel's function: bytes of scratch that
/// a thread needs, a multiple of 64.
inline constexpr llvm::StringLiteral kScratchAttr = "tessera.scratch_bytes";

/// Appends to `module` the functions @NAME (the kernel ABI: buffers, sizes,
/// first block, block past the last, scratch) and @NAME.block (one block).
/// The error names the kernel and the op that has no lowering.
llvm::Error lowerKernel(tile::KernelOp kernel, const TileTarget &target,
                        mlir::ModuleOp module);

/// Rows of a matrix register, and terms that one instruction adds.
inline constexpr int64_t kMatrixRows = 16, kMatrixTerms = 32;

/// Rows of lhs and columns of rhs that the matrix registers hold.
struct MatrixShape {
  int64_t rows, columns;
};
/// The shapes of a kernel's matrix registers, and the offset in its scratch of
/// the 64 bytes that describe them.
struct MatrixConfiguration {
  MatrixShape shape;
  int64_t place;
};

/// Configures the matrix registers (ldtilecfg), using 64 aligned bytes of
/// memory; all of them are then zero.
void configureMatrixRegisters(mlir::OpBuilder &b, mlir::Location loc,
                              mlir::Value memory, const MatrixShape &shape);
/// Releases them (tilerelease), so that the system has less state to save.
void releaseMatrixRegisters(mlir::OpBuilder &b, mlir::Location loc);

/// Walks a kernel's body and lowers it, every tile to its pieces.
class KernelLowering : BoxAccess {
public:
  KernelLowering(const TileTarget &target, mlir::OpBuilder &builder,
                 mlir::Block &entry);

  /// Buffers, sizes and block number of the kernel, in the order of its
  /// arguments; `scratch` is where tile.alloc takes memory from.
  llvm::Error lowerBody(tile::KernelOp kernel, mlir::ValueRange arguments,
                        mlir::Value scratch);
  int64_t scratchBytes() const { return scratchUsed; }
  /// Absent if the kernel uses no matrix registers.
  const std::optional<MatrixConfiguration> &matrixConfiguration() const {
    return configuration;
  }

private:
  /// A matrix that AMX registers are loaded from: its start, and the distance
  /// of its rows.
  struct Matrix {
    mlir::Value start;
    int64_t rowBytes;
    int64_t columnBytes = 64; ///< from one register's columns to the next's
  };

  struct Product {
    Matrix lhs, rhs, sums;
  };
  /// A loop whose iterations are interleaved with products: so many for each
  /// tile of rows, one in each block of terms.
  struct InterleavedLoop {
    mlir::scf::ForOp loop;
    int64_t iterations;
  };
  /// A product of many tiles of rows by one panel of rhs.
  struct Panel {
    const Product &product;
    tile::MmaStagedOp op;
    bool isMicropanels;
    llvm::ArrayRef<InterleavedLoop> interleaved;
    int64_t tiles;
    mlir::Value depth, last; ///< where the last block of terms starts
  };
  /// The term at which a product is, as an index, and their number.
  struct Terms {
    mlir::Value at, depth;
  };

  // Structure (Lowering.cpp).
  llvm::Error lowerBlock(mlir::Block &block);
  llvm::Error lowerOp(mlir::Operation *op);
  llvm::Error lowerFor(mlir::scf::ForOp loop);
  llvm::Error lowerWhile(mlir::scf::WhileOp loop);
  llvm::Error lowerIf(mlir::scf::IfOp branch);
  void yield(mlir::Operation *terminator);
  llvm::Error lowerConstant(mlir::arith::ConstantOp op);
  llvm::Error lowerElementwise(mlir::Operation *op);
  llvm::Error lowerConversion(mlir::Operation *op);
  mlir::Value lowerMath(mlir::Operation *op, mlir::ValueRange operands);
  llvm::SmallVector<mlir::Type> expandTypes(mlir::TypeRange types);
  llvm::Error bindResults(mlir::ValueRange originals, mlir::ValueRange pieces);
  llvm::Error error(mlir::Operation *op, const llvm::Twine &what);

  // Memory (LowerMemory.cpp).
  llvm::Expected<Memory> describe(mlir::Operation *op, mlir::MemRefType type,
                                  mlir::Value pointer);
  llvm::Error lowerAlloc(tile::AllocOp op);
  llvm::Error lowerMemory(mlir::Operation *op);
  llvm::Error lowerLoad(tile::LoadOp op);
  llvm::Error lowerStore(tile::StoreOp op);
  Tile loadScalars(const Box &box);
  Tile loadTransposedPairs(const Box &box);
  llvm::Expected<Tile> loadPairs(tile::LoadOp op, const Memory &memory);
  Tile loadPairScalars(const Memory &memory, mlir::Value start, int64_t m,
                       int64_t k, bool paired);
  llvm::Error checkPairs(mlir::Operation *op, const Memory &memory,
                         llvm::ArrayRef<int64_t> along, mlir::Value bound);

  // Staged copies (LowerCopy.cpp).
  llvm::Error lowerCopy(tile::CopyOp op);
  void copyRuns(const Box &from, const Box &to, int64_t dim);
  void copyTransposed(const Box &from, const Box &to, int64_t fromDim,
                      int64_t toDim);
  void copyToPairs(const Box &from, const Box &to, int64_t rowStride,
                   int64_t kDim, int64_t nDim);
  void transposePairs(mlir::Value source, mlir::Value sink, mlir::Type element,
                      int64_t nStep, int64_t rowStride, int64_t halves,
                      int64_t n);
  void loopNest(llvm::ArrayRef<int64_t> trips,
                llvm::function_ref<void(mlir::ValueRange)> body);
  mlir::Value advance(mlir::Value pointer, mlir::Type element,
                      mlir::ValueRange indices,
                      llvm::ArrayRef<int64_t> strides);

  // Computing (LowerCompute.cpp).
  llvm::Error lowerMma(tile::MmaOp op);
  llvm::Error lowerReduce(tile::ReduceOp op);
  llvm::Error lowerBroadcast(tile::BroadcastOp op);
  llvm::Error lowerIota(tile::IotaOp op);
  llvm::Error lowerLookup(tile::LookupOp op);
  llvm::Error lowerDotPairs(tile::DotPairsOp op);
  llvm::Error lowerVector(mlir::Operation *op);
  void castShape(const Tile &input, Tile &result);
  void interleave(const Tile &x, const Tile &y, Tile &result);
  llvm::Error sliceTile(mlir::vector::ExtractStridedSliceOp op, Tile &result);
  void broadcast(const Tile &input, llvm::ArrayRef<int64_t> dims, Tile &result);
  mlir::Value combine(tile::ReduceKind kind, mlir::Value x, mlir::Value y);
  /// Left operand, element (i, k): a splat, or the scalar if `type` is one.
  mlir::Value leftElement(const Tile &lhs, int64_t i, int64_t k, bool isBf16,
                          mlir::Type type);
  mlir::Value multiplyBytes(mlir::Value sum, mlir::Value left,
                            mlir::Value right);
  mlir::Value multiplyPairs(mlir::Value sum, mlir::Value left,
                            mlir::Value right);
  mlir::Value leftPair(const Tile &lhs, int64_t i, int64_t k);
  mlir::Value rightPair(const Tile &rhs, int64_t k, int64_t chunk);
  mlir::Value rightRow(const Tile &rhs, int64_t k, int64_t chunk, bool isBf16);

  // Matrix registers (LowerMatrix.cpp).
  llvm::Error lowerMmaStaged(tile::MmaStagedOp op,
                             llvm::ArrayRef<InterleavedLoop> interleaved);
  llvm::Expected<Product> productOf(tile::MmaStagedOp op);
  /// Whether rhs has consecutive panels of 16 columns.
  bool meetsMicropanels(tile::MmaStagedOp op);
  void lowerOneTile(const Product &product, tile::MmaStagedOp op);
  void multiplyTile(const Matrix &left, const Matrix &right,
                    tile::MmaStagedOp op);
  /// Whether the registers were reconfigured and must be restored.
  bool setMatrixShape(const MatrixShape &shape, bool isExact);
  void startSums(const Matrix &sums, int64_t rows, int64_t columns,
                 mlir::Value keep);
  void storeSums(const Matrix &sums, int64_t rows, int64_t columns);
  void multiplyBlock(const Matrix &nextLeft, const Matrix &nextRight);
  void loadLeft(const Matrix &lhs, int64_t i);
  void loadRight(const Matrix &rhs, int64_t j);
  void prefetchSums(const Matrix &sums, mlir::Value k);
  void prefetchMicropanels(const Matrix &rhs, int64_t columns);
  void prefetchNextPanel(const Matrix &rhs, int64_t columns,
                         mlir::Value firstRow, int64_t tiles,
                         const Terms &terms);
  void moveMatrix(llvm::StringRef intrinsic, const Matrix &matrix,
                  int64_t first, int64_t rows, int64_t columns, int64_t pitch);
  void prefetchMatrix(const Matrix &lhs, int64_t rows, mlir::Value k,
                      mlir::Value depth);

  // Many tiles of rows, and interleaved loops (LowerPanel.cpp).
  llvm::Error lowerWithLoops(tile::MmaStagedOp op);
  llvm::SmallVector<InterleavedLoop> interleavedLoops(tile::MmaStagedOp op,
                                                      int64_t tiles);
  llvm::Error lowerPanel(const Product &product, tile::MmaStagedOp op,
                         bool isMicropanels,
                         llvm::ArrayRef<InterleavedLoop> interleaved);
  llvm::Error lowerPassingTile(const Panel &panel, mlir::Value tile);
  Matrix leftAt(const Panel &panel, mlir::Value tile, mlir::Value k);
  Matrix rightAt(const Panel &panel, mlir::Value k);
  llvm::Error lowerIteration(const InterleavedLoop &work, mlir::Value tile,
                             mlir::Value iteration);
  llvm::Error lowerIterations(const InterleavedLoop &work, mlir::Value tile,
                              mlir::Value begin);
  llvm::Error lowerIterationDuring(const InterleavedLoop &work,
                                   mlir::Value tile, mlir::Value block);
  llvm::Error lowerRemainingIterations(const InterleavedLoop &work,
                                       mlir::Value tile, mlir::Value begin);
  mlir::Value hasTileBefore(mlir::Value tile); ///< whether it is not the first
  mlir::Value tileBefore(mlir::Value tile);

  Tile &tileOf(mlir::Value value) { return tiles[value]; }
  mlir::Value scalarOf(mlir::Value value) { return tiles[value].pieces[0]; }
  llvm::SmallVector<mlir::Value> scalarsOf(mlir::ValueRange values);
  void bind(mlir::Value value, Tile tile) { tiles[value] = std::move(tile); }

  const TileTarget &target;
  FloatPolynomials math;
  DoublePolynomials doubleMath;
  mlir::Value scratch;
  int64_t scratchUsed = 0;
  std::optional<MatrixConfiguration> configuration;
  bool roundsAtOnce = false; ///< to bf16, by an instruction
  /// Ops that were lowered earlier than in program order.
  llvm::SmallPtrSet<mlir::Operation *, 8> done;
  llvm::DenseMap<mlir::Value, Tile> tiles;
  llvm::DenseMap<mlir::Value, Memory> memories;
};

} // namespace tessera::cpu
