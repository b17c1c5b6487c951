// Products of rows of bytes (IntegerRows) with the integers of quantized
// weights, as llama.cpp multiplies rows in q8_K: the steps that kernels of few
// and of many rows share, so that a row has the same bits in both.
//
// The products of a row and a super-block are
//
//   scale of the row × (d × Σ scale × Σ byte × q - dmin × Σ minimum × Σ byte)
//
// with all sums exact in 32 bits, so that they do not depend on the
// instruction: below 127 × 256 × 63 × 128 in magnitude. Groups of int4 and int8
// have neither integer scales nor minima: a group's sum is below 127 × 255 ×
// 2048.
//
// vpdpbusd adds products in 32 bits. AVX2 has vpmaddubsw, which adds two
// products in 16 bits: so many of them are added there as 16 bits can hold,
// then vpmaddwd multiplies the sums by their scale. Weights of 8 bits fill
// their bytes, and are extended to 16 bits before (tile.mma without `pairs`).
#pragma once
#include "passes/kernels/contraction/QuantWeights.h"

namespace tessera {

class ByteProducts : ContractionPart {
public:
  explicit ByteProducts(const QuantWeights &weights);
  /// Rows of a register tile.
  struct Rows {
    mlir::Value first; ///< of the packed rows
    int64_t count;
  };

  /// Words of four columns each whose products are added before they are
  /// multiplied by a scale.
  int64_t wordsAtOnce() const;
  /// Words that have the same scale.
  int64_t wordsOfPart() const { return IntegerRows::bytePart(layout) / 4; }

  /// i32 [1, 16] of unsigned bytes: word `at` of the eight of a block, whose
  /// own words are `words`, of which those that `wordsOf` names are set.
  mlir::Value unpack(llvm::ArrayRef<mlir::Value> words, int64_t at) const;
  llvm::SmallVector<int64_t> wordsOf(int64_t at) const;
  /// i32 [16]: scale `at` of a word of four, in the form for `addPart`.
  mlir::Value scaleOf(mlir::Value word, int64_t at) const;
  /// i32 [16]: minima `half` and `half` + 2 of a word of four, in 16 bits each.
  mlir::Value minimaOf(mlir::Value word, int64_t half) const;

  /// i32 [rows, 16]: where the products of a part start, which takes the offset
  /// of q into account.
  mlir::Value startPart(const Rows &rows, mlir::Value part) const;
  /// The same of a group, which has no integer scales. `offsets` i32 [16] are
  /// those of zero points (QuantWeights::loadOffset), null without.
  mlir::Value startGroup(const Rows &rows, mlir::Value group,
                         mlir::Value offsets) const;
  /// `sum` and the products of word `at` of the rows.
  mlir::Value addWord(const Rows &rows, mlir::Value at, mlir::Value q,
                      mlir::Value sum) const;
  /// `sum` and products × scale, which is i32 [16]; that of a group is `one`,
  /// if products are added in 16 bits.
  mlir::Value addPart(const Rows &rows, mlir::Value products, mlir::Value scale,
                      mlir::Value sum) const;
  mlir::Value one() const;
  /// i32 [rows, 16]: minus the rows' sums × the minima of four parts, `minima`
  /// being those of minimaOf: the `number`-th four of the matrix.
  mlir::Value addMinima(const Rows &rows, mlir::Value number,
                        llvm::ArrayRef<mlir::Value> minima,
                        mlir::Value sum) const;

  /// Of a group or a super-block, before the row's scale. `minima` is null
  /// where there are none.
  struct Sums {
    mlir::Value products, minima; ///< i32 [rows, 16]
    mlir::Value step, dmin;       ///< f32 [16]: of products and minima
  };
  /// `sum` f32 [rows, 16] and what the group adds to it.
  mlir::Value addGroup(const Rows &rows, mlir::Value group, const Sums &of,
                       mlir::Value sum) const;

  /// Whether products are added in 16 bits first.
  const bool pairs;

private:
  mlir::VectorType tileOf(const Rows &rows, mlir::Type element) const {
    return mlir::VectorType::get({rows.count, kMicropanel}, element);
  }
  /// [rows, 16], the same in each column.
  mlir::Value spread(const Rows &rows, mlir::Value at) const;
  mlir::Value spreadColumns(mlir::Value x, const Rows &rows) const;
  mlir::Value number(mlir::Type type, uint32_t value) const;

  const QuantizedLayout &layout;
  const SuperBlockWeights superBlocks;
  const IntegerRows packed;
  mlir::Value memory; ///< i32 [rows, width] of the packed rows
};

} // namespace tessera
