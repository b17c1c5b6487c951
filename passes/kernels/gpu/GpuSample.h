// What the kernels that draw a token by parts of a row share.
#pragma once
#include "passes/kernels/sampling/Sample.h"

namespace tessera::gpu {

/// Threads of a block, and tiles of as many tokens that a part has.
inline constexpr int64_t kThreadsOfPart = 128, kTilesOfPart = 8;
inline constexpr int64_t kTokensOfPart = kThreadsOfPart * kTilesOfPart;
/// Keys (bits of weights) that a walk tests, and walks that find one of the
/// 2^30.
inline constexpr int64_t kKeyBits = 30, kBitsOfKeys = 5,
                         kWalks = kKeyBits / kBitsOfKeys,
                         kKeys = 1 << kBitsOfKeys;
/// Words of a walk's state: the key that has been found, the digits that are
/// still to be, and, if it is of sums of weights, what they are to reach.
inline constexpr int64_t kStateOfCounts = 2, kStateOfSums = 3;

/// The block of a part of a row: part p has the tokens from kTokensOfPart p on.
/// That of the last part also loads some before them, so that it loads as many,
/// without bounds. Buffers of weights have kTokensOfPart for each block; those
/// of other parts' tokens are 0.
class SamplePart {
public:
  using Values = SampleOps::Values;
  using Compare = SampleOps::Compare;
  SamplePart(mlir::OpBuilder &builder, tile::KernelOp kernel,
             const SampleShape &shape);

  /// Parts of a row.
  static int64_t partsOf(const SampleShape &shape) {
    return (shape.vocab + kTokensOfPart - 1) / kTokensOfPart;
  }
  mlir::Value buffer(int64_t i) const { return buffers[i]; }
  /// Shared memory of a block; at the top of a kernel.
  mlir::Value allocate(llvm::ArrayRef<int64_t> shape, mlir::Type type) const;
  /// Word i of the row, or of the block, of a buffer that has `width` of each.
  mlir::Value ofRow(mlir::Value memory, int64_t width, int64_t i) const;
  mlir::Value ofBlock(mlir::Value memory, int64_t width, int64_t i) const;
  void storeOfBlock(mlir::Value value, mlir::Value memory, int64_t width,
                    int64_t i) const;
  /// A word of `limits` as i64.
  mlir::Value limit(mlir::Value limits, int64_t i) const {
    return e.extend(ofRow(limits, 4, i));
  }
  /// Copies what the block loads to shared memory. A compiler that is short of
  /// registers would load tile by tile.
  void copy(mlir::Value memory, mlir::Value begin, mlir::Value shared) const;
  /// The tiles of what the block loads, from `begin` on in `memory`.
  mlir::ValueRange
  overTiles(mlir::Value memory, mlir::Value begin, mlir::ValueRange init,
            llvm::function_ref<Values(mlir::Value at, mlir::Value tile,
                                      mlir::ValueRange)>
                body) const;
  /// All parts' words of a row of `memory`, combined; of those before this part
  /// alone, or all. `neutral` is what no part has.
  mlir::Value overParts(mlir::Value memory, mlir::Value neutral,
                        tile::ReduceKind kind, bool before = false) const;

  SampleOps e;      ///< a tile has an element of each thread
  SampleOps ofKeys; ///< a tile has one for each key of a walk
  SampleShape shape;
  int64_t parts;
  mlir::Value block, row, part;
  mlir::Value firstLogit;  ///< that the block loads, in the whole of logits
  mlir::Value firstToken;  ///< that is, of the row's tokens
  mlir::Value skipped;     ///< of these, other parts' tokens, which are first
  mlir::Value firstWeight; ///< of the block's weights

private:
  llvm::SmallVector<mlir::Value> buffers;
};

/// The last kernel. Buffers weights, limits, bests, firsts, drawn, numbers of
/// `limited`, state of the last walk of `top_p`, keys, sums and numbers of
/// `kept`; tokens.
void emitSampleDraw(const SamplePart &part);

} // namespace tessera::gpu
