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
  /// i32 [16]: that and the offset that makes weights unsigned
  /// (IntegerRows::offset).
  mlir::Value loadOffset(mlir::Value micropanel, mlir::Value group) const;
  /// i32 [terms, 16]: in row t word t / perWord.
  mlir::Value spreadWords(llvm::ArrayRef<mlir::Value> loaded) const;

  const QuantizedLayout &layout;
  mlir::Value words, scales; ///< [micropanels, of one, 16]

private:
  mlir::Value loadScales(mlir::Value micropanel, mlir::Value at) const;
  mlir::Value loadExponents(mlir::Value micropanel, mlir::Value group) const;
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

/// Weights of super-blocks (K-quants). `k` is a column of the matrix.
class SuperBlockWeights : ContractionPart {
public:
  explicit SuperBlockWeights(const QuantWeights &weights)
      : ContractionPart(weights.block), weights(weights),
        layout(weights.layout) {}
  /// f32 [16]: d and dmin of a super-block.
  mlir::Value loadD(mlir::Value micropanel, mlir::Value super) const;
  mlir::Value loadDmin(mlir::Value micropanel, mlir::Value super) const;
  /// i32 [16]: word `i` of the four with the super-block's integer scales, and
  /// minima.
  mlir::Value loadBytes(mlir::Value micropanel, mlir::Value super,
                        mlir::Value i) const;
  /// f32 [16] of byte `at` of such a word.
  mlir::Value extendByte(mlir::Value word, int64_t at) const;
  /// f32 [16]: the scale and the minimum of column k, d and dmin included.
  mlir::Value loadScale(mlir::Value micropanel, mlir::Value k) const;
  mlir::Value loadMinimum(mlir::Value micropanel, mlir::Value k) const;
  /// f32 [terms, 16]: q without their offset, of 8 or 16 columns from k on, a
  /// multiple of that.
  mlir::Value loadIntegers(mlir::Value micropanel, mlir::Value k,
                           int64_t terms) const;
  /// i32: the q of columns 8 i + odd + 2 b of a block, in bytes b. Of the
  /// block's `words` those that wordsOf names are set.
  llvm::SmallVector<int64_t> wordsOf(int64_t i, int64_t odd) const;
  mlir::Value bytesOf(llvm::ArrayRef<mlir::Value> words, int64_t i,
                      int64_t odd) const;

private:
  mlir::Value loadHalf(mlir::Value micropanel, mlir::Value super,
                       int64_t shift) const;
  mlir::Value loadPart(mlir::Value micropanel, mlir::Value k,
                       int64_t first) const;
  mlir::Value extendByteAt(mlir::Value word, mlir::Value shift) const;
  mlir::Value number(mlir::Type type, uint32_t value) const;
  mlir::Value splatWord(mlir::Value index) const;

  const QuantWeights &weights;
  const QuantizedLayout &layout;
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

/// f32 of scales of mxfp4, the bytes at `shift` of i32: scalars or vectors.
mlir::Value extendExponent(mlir::OpBuilder &b, mlir::Location loc,
                           mlir::Value word, mlir::Value shift);

/// f32 of weights of 8 bits, integers or e4m3, that are the upper bytes of i32.
mlir::Value extendUpperBytes(mlir::OpBuilder &b, mlir::Location loc,
                             const QuantizedLayout &layout, mlir::Value words);

} // namespace tessera
