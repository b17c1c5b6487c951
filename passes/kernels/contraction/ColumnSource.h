// Where the columns of a contraction come from: strided memory, micropanels of
// bf16 (the packed layout) or quantized weights.
#pragma once
#include "passes/kernels/contraction/ContractionBlock.h"

namespace tessera {

/// Columns of a block, copied to shared memory as panels of a register tile's
/// columns, or read in place (ContractionTiles::stagesColumns).
class ColumnSource : public ContractionPart {
public:
  using ContractionPart::ContractionPart;
  virtual ~ColumnSource() = default;

  /// Memory for what is computed of the scales; before other allocations.
  virtual void allocateScales() {}
  /// Memory for the copy, if there is one.
  void allocate();
  /// Copies the chunk's columns.
  virtual void stage() = 0;
  /// Where a panel begins: in its copy, or among the product's columns.
  mlir::Value beginOf(mlir::Value panel) const {
    return tiles.stagesColumns ? index(0) : block.firstColumn(panel);
  }
  /// Prefetches from columns in place, before the rows are loaded.
  virtual void prefetch(mlir::Value column, mlir::Value k) {}
  /// [steps, columns] of a panel that begins at `column`, from step k of the
  /// chunk on.
  mlir::Value load(const TilePlace &place, mlir::Value column, mlir::Value k,
                   int64_t steps);

  /// The slot of the copy that has a panel.
  mlir::Value slotOf(mlir::Value panel) const;
  /// All terms of the chunk of a panel, as tile.mma_staged reads them.
  struct Panel {
    mlir::Value memory;
    llvm::SmallVector<mlir::Value> indices;
  };
  virtual Panel panelInPlace(mlir::Value panel) = 0;
  /// If dequantization is interleaved with products: stages so many blocks of
  /// terms of the panel after `panel`, if there is one.
  virtual void stageNext(mlir::Value panel, mlir::Value blocks) {}

  mlir::Value copy; ///< [panels, k, columns]; null if in place

protected:
  virtual mlir::Value loadInPlace(const TilePlace &place, mlir::Value column,
                                  mlir::Value k, int64_t steps) = 0;
};

/// Those of the plan. Emits views of the operand's buffers.
std::unique_ptr<ColumnSource> columnsOf(ContractionBlock &block);
std::unique_ptr<ColumnSource> stridedColumns(ContractionBlock &block);
std::unique_ptr<ColumnSource> micropanelColumns(ContractionBlock &block);
std::unique_ptr<ColumnSource> quantColumns(ContractionBlock &block);

} // namespace tessera
