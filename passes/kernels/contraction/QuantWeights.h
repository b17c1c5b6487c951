// Quantized weights in memory (runtime/support/QuantizedLayout.h): micropanels
// of 16 rows of a matrix, a word of each next to each other.
#pragma once
#include "passes/kernels/contraction/ContractionBlock.h"

namespace tessera {

/// Words of a micropanel, and scales and zero points of its groups of columns.
struct QuantWeights : ContractionPart {
  explicit QuantWeights(ContractionBlock &block);
  /// i32 [16].
  mlir::Value loadWord(mlir::Value memory, mlir::Value micropanel,
                       mlir::Value at) const;
  /// f32 [16].
  mlir::Value loadScale(mlir::Value micropanel, mlir::Value group) const;
  /// f32 [16], all of them integers.
  mlir::Value loadZero(mlir::Value micropanel, mlir::Value group) const;

  const QuantizedLayout &layout;
  mlir::Value words, scales; ///< [micropanels, of one, 16]

private:
  mlir::Value loadScales(mlir::Value micropanel, mlir::Value at) const;
};

/// Absmax of nf4, which are quantized themselves: those of a micropanel's
/// groups are dequantized to shared memory before the weights that they scale,
/// once for all of a block's reads.
class Nf4Scales : ContractionPart {
public:
  explicit Nf4Scales(const QuantWeights &weights)
      : ContractionPart(weights.block), weights(weights) {}
  void allocate();
  /// Those that the chunk and the block's columns read.
  void stage(mlir::Value micropanel);
  /// f32 [16].
  mlir::Value load(mlir::Value group) const;

private:
  mlir::Value firstGroup() const;
  mlir::Value splatWord(mlir::Value index) const;
  mlir::Value dynamicNumbers(mlir::Value codes) const;

  const QuantWeights &weights;
  mlir::Value absmax; ///< f32 [groups, 16] of a micropanel
};

/// View of a buffer of the cluster as [micropanels, middle, 16].
mlir::Value micropanelView(ContractionBlock &block, unsigned argument,
                           int64_t middle);

struct Prefetch {
  int64_t bytes;
  unsigned locality; ///< of memref.prefetch: 2 for L2, 3 for L1
};
/// The prefetch distances of weights for few rows: `near` into L1, and the
/// target's far one into L2.
llvm::SmallVector<Prefetch, 2> prefetchDistances(const TileTarget &target,
                                                 int64_t near);

/// f32 of weights of 8 bits, integers or e4m3, that are the upper bytes of i32.
mlir::Value extendUpperBytes(mlir::OpBuilder &b, mlir::Location loc,
                             const QuantizedLayout &layout, mlir::Value words);

} // namespace tessera
