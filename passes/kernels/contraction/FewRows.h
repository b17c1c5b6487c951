// Few rows × quantized weights, as in decode, which are bound by memory:
// weights are read once, in place.
#pragma once
#include "passes/kernels/contraction/ContractionEngine.h"
#include "passes/kernels/contraction/QuantWeights.h"
#include "passes/kernels/contraction/StridedOperand.h"

namespace tessera {

/// Blocks of a super-block of which one word has the scales, or the minima.
inline constexpr int64_t kBlocksOfWord = 4;

/// Sums of one micropanel after another, a lane for each of its 16 columns,
/// then their epilogue.
class FewRows : public ContractionEngine {
public:
  FewRows(ContractionBlock &block, ContractionEpilogue &epilogue);
  void allocate() override;
  void emit() override;

protected:
  /// Some rows of the block that are multiplied by a micropanel together.
  struct Rows {
    mlir::Value first;
    int64_t count;
    bool prefetches; ///< whether it prefetches later weights
  };
  /// Memory for the rows, and the rows, in the form that is multiplied.
  virtual void allocateRows() {}
  virtual void stageRows() = 0;
  /// `sum` f32 [rows, 16] and what a group of `size` terms adds to it.
  virtual mlir::Value addGroup(mlir::Value micropanel, mlir::Value group,
                               const Rows &rows, int64_t size,
                               mlir::Value sum) = 0;
  /// i32 [1, 16], at index `at` of a micropanel's words.
  mlir::Value loadWords(mlir::Value micropanel, mlir::Value at,
                        const Rows &rows) const;
  void prefetchScales(mlir::Value micropanel, mlir::Value group) const;
  /// f32 [count]: elements from column k on of the block's row `row`.
  mlir::Value loadElements(mlir::Value row, mlir::Value k, int64_t count) const;
  /// f32 [rows, 16] of f32 [16].
  mlir::Value spreadColumns(mlir::Value x, const Rows &rows) const {
    return b.create<tile::BroadcastOp>(
        loc, mlir::VectorType::get({rows.count, kMicropanel}, b.getF32Type()),
        x, llvm::ArrayRef<int64_t>{1});
  }

  std::optional<StridedOperand> lhs; ///< absent if rows are integers
  QuantWeights weights;
  const QuantizedLayout &layout;

  /// Rows of the block that are there.
  void forEachRow(llvm::function_ref<void(mlir::Value)> body) const;

private:
  void emitMicropanel(mlir::Value slot);
  void emitSums(mlir::Value micropanel, mlir::Value slot, const Rows &rows);
  /// Prefetches from `memory` [micropanels, middle, 16] after index `at` of a
  /// micropanel, where one index corresponds to so many lines of words.
  void prefetchAfter(mlir::Value memory, mlir::Value micropanel, mlir::Value at,
                     int64_t lines) const;

  mlir::Value sums; ///< f32 [rows, columns of the block]
};

} // namespace tessera
