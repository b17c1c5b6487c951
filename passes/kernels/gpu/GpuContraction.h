// Shared by the matmul kernels for GPUs: a block's tile of the product, its
// operands as views, and the epilogue. In one kernel all threads alternate
// between copying chunks of the operands and multiplying them
// (GpuContraction.cpp), as in the one with quantized weights
// (GpuQuantized.cpp); the third is warp-specialized (GpuPipeline.cpp).
#pragma once
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/Contraction.h"
#include "passes/kernels/gpu/GpuTiles.h"

namespace tessera::gpu {

/// One operand: a view of its buffer, and the staging of its chunks.
struct ProductSide {
  mlir::Value memory;
  bool advances[2]; ///< along the tile's dimension, along the sum
  bool sumInRows;   ///< staged as [sum, tile], not [tile, sum]
  int64_t tile;
  Staged staged;
};

class GpuProduct {
public:
  GpuProduct(const ContractionPlan &plan, graph::ClusterOp cluster,
             tile::KernelOp kernel, llvm::ArrayRef<mlir::Value> arguments,
             llvm::ArrayRef<mlir::Value> results, mlir::OpBuilder &builder)
      : plan(plan), cluster(cluster), kernel(kernel), results(results),
        b(builder), e{builder, kernel.getLoc()},
        epilogue{plan.expression.pieces.front(), llvm::to_vector(arguments),
                 kernel.getLoc()} {}

protected:
  /// Sets the indices of tile `number` of the product.
  void locate(mlir::Value number);
  /// Chunks of `size` elements of the sum. Before locate().
  void chooseChunks(int64_t size);
  /// How many of `steps` chunks the tile's sum has, where groups say so; null
  /// otherwise.
  mlir::Value ownSteps() const { return ownedSteps; }
  /// An operand, staged `stages` times.
  ProductSide makeSide(const ContractionOperand &operand, mlir::Value buffer,
                       int64_t stages, bool isLeft);
  /// Both operands.
  void makeSides(int64_t stages);
  /// The box of chunk `step` of an operand, without bounds.
  Source chunkOf(const ProductSide &side, mlir::Value step);
  /// A side's operand in a stage.
  mlir::Value operand(const ProductSide &side, mlir::Value stage);
  /// Computes the results of the tile from the product that `multiply` emits,
  /// or from zeros if no row of it belongs to a group.
  void emitTile(llvm::function_ref<mlir::Value()> multiply, EmitScope &top);
  /// Computes the results of the product (null: zeros); `top` is for
  /// loop-invariant values.
  void emitEpilogue(mlir::Value sum, EmitScope &top);
  /// Sets the gemm attribute of a kernel that is a plain GEMM.
  void describeGemm();

  const ContractionPlan &plan;
  graph::ClusterOp cluster;
  tile::KernelOp kernel;
  llvm::ArrayRef<mlir::Value> results;
  mlir::OpBuilder &b;
  TileBuilder e;
  EmitTarget epilogue;

  /// The product's tile in registers: the block's, or a larger one of which
  /// only the first rows are valid.
  int64_t tileRows = plan.blockRows;
  mlir::Type element; ///< of staged operands
  int64_t chunk, chunksOfSum, steps;
  ProductSide lhs, rhs;
  mlir::Value rowStart, columnStart, rowLimit,
      columnLimit;     // limits may be null
  mlir::Value isOwned; ///< whether a group has rows in the tile; may be null
  llvm::SmallVector<mlir::Value> outerIndices; ///< null but for plan.outer
  mlir::Value matrix; ///< of packed groups: the tile's one's number in rhs

private:
  std::pair<int64_t, int64_t> partShape();
  void emitPart(mlir::Value sum, std::pair<int64_t, int64_t> shape,
                mlir::Value row, mlir::Value column, EmitScope &top);

  std::optional<bool> accumulatesPlainly() const;
  void locateGroup(mlir::Value rowBlock);
  mlir::Value withoutStrangers(mlir::Value sum, mlir::Value row);

  // The tile's group, as far as it matters; null otherwise.
  mlir::Value ownedRows;  ///< rows of the tile that are not padding
  mlir::Value isUsed;     ///< whether it has rows
  mlir::Value ownedSteps; ///< chunks of the sum
  mlir::Value sumBegin, sumEnd;
};

/// Whether TMA can copy both operands of the product, and `target` has wgmma.
bool canPipeline(const ContractionPlan &plan, const TileTarget &target);
/// The block's tile for such a product.
void choosePipelinedGrid(ContractionPlan &plan, const TileTarget &target);
/// See otherGpuGrids.
std::vector<ContractionPlan> otherPipelinedGrids(const ContractionPlan &plan,
                                                 const TileTarget &target,
                                                 bool all);
/// The warp-specialized kernel of a producer and one or two consumer
/// warpgroups.
void emitPipelinedProduct(const ContractionPlan &plan, graph::ClusterOp cluster,
                          tile::KernelOp kernel,
                          llvm::ArrayRef<mlir::Value> arguments,
                          llvm::ArrayRef<mlir::Value> results,
                          mlir::OpBuilder &builder);

/// The kernel of a product with quantized weights.
void emitQuantizedProduct(const ContractionPlan &plan, graph::ClusterOp cluster,
                          tile::KernelOp kernel,
                          llvm::ArrayRef<mlir::Value> arguments,
                          llvm::ArrayRef<mlir::Value> results,
                          const TileTarget &target, mlir::OpBuilder &builder);

} // namespace tessera::gpu
