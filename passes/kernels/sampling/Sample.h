// Shared by the launches of graph.sample. One masks disallowed tokens, one
// applies the listed changes to logits, and one, with a block for each row,
// draws (SampleChoice.cpp); long rows are drawn from by several launches on a
// GPU, with a block for each part (gpu/GpuSample.cpp).
#pragma once
#include "dialects/tile/TileOps.h"
#include "hardware/Targets.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/KernelOps.h"
#include "passes/kernels/Tiling.h"

namespace tessera {

struct SampleShape {
  int64_t batch, vocab;
  int64_t words;   ///< of a row of `allowed`
  int64_t entries; ///< of a row of `changed`
};

/// How logits become weights.
struct SampleScale {
  mlir::Value factor; ///< of the distance from the largest logit
  mlir::Value least;  ///< smaller weights are excluded
};

/// Emits scalars and tiles of one dimension; a scalar is broadcast when
/// combined with a tile.
struct SampleOps : KernelOps {
  using Compare = mlir::arith::CmpIPredicate;
  SampleOps(mlir::OpBuilder &b, mlir::Location loc, int64_t lanes)
      : KernelOps(b, loc), lanes(lanes) {}

  int64_t lanes;      ///< elements of a tile
  int64_t atOnce = 4; ///< tiles that are loaded before they are used

  mlir::Value i32(int64_t value) const;
  mlir::Value i64(int64_t value) const;
  mlir::Value f32(float value) const;
  /// x, broadcast if `like` is a tile and x is a scalar.
  mlir::Value spread(mlir::Value x, mlir::Value like) const;
  template <typename Op> mlir::Value make(mlir::Value x, mlir::Value y) const {
    return b.create<Op>(loc, spread(x, y), spread(y, x));
  }
  mlir::Value add(mlir::Value x, mlir::Value y) const {
    return make<mlir::arith::AddIOp>(x, y);
  }
  mlir::Value sub(mlir::Value x, mlir::Value y) const {
    return make<mlir::arith::SubIOp>(x, y);
  }
  mlir::Value mul(mlir::Value x, mlir::Value y) const {
    return make<mlir::arith::MulIOp>(x, y);
  }
  mlir::Value min(mlir::Value x, mlir::Value y) const {
    return make<mlir::arith::MinSIOp>(x, y);
  }
  mlir::Value compare(Compare predicate, mlir::Value x, mlir::Value y) const;
  mlir::Value select(mlir::Value condition, mlir::Value x, mlir::Value y) const;
  /// To i32, i64, f32 or index: the same number, its lower part, or, of an
  /// unsigned word, the same number.
  mlir::Value cast(mlir::Value x, mlir::Type element) const;
  mlir::Value extend(mlir::Value word) const; ///< i32 → i64, unsigned
  mlir::Value bitsOf(mlir::Value real) const; ///< f32 → i32
  mlir::Value realOf(mlir::Value bits) const; ///< i32 → f32

  mlir::Type elementOf(mlir::Value x) const;
  mlir::Value tileOf(mlir::Value scalar) const; ///< a tile of it
  mlir::Value reduce(mlir::Value tile, tile::ReduceKind kind) const;
  mlir::Value load(mlir::Value memory, mlir::Value at) const; ///< a scalar
  void store(mlir::Value value, mlir::Value memory, mlir::Value at) const;
  mlir::Value loadTile(mlir::Value memory, mlir::Value at,
                       mlir::Value bound) const;
  void storeTile(mlir::Value tile, mlir::Value memory, mlir::Value at,
                 mlir::Value bound) const;

  // As runtime/support/TokenChoice.h defines (SampleWeights.cpp).
  SampleScale scaleOf(mlir::Value temperature, mlir::Value minP) const;
  /// Of a tile of logits; 0 for what min_p excludes.
  mlir::Value weightOf(mlir::Value tile, mlir::Value best,
                       const SampleScale &scale) const;
  /// The weight with these bits, as an i64 in units of 2^-kFraction.
  mlir::Value units(mlir::Value bits) const;
  /// The upper half of `whole` × a number of 64 bits given as two words; all of
  /// them i64.
  mlir::Value partOf(mlir::Value whole, mlir::Value low,
                     mlir::Value high) const;
  /// Whether a logit is a finite number.
  mlir::Value isFinite(mlir::Value logit) const;

  /// A tile of elements [at, at + lanes), of which those from `bound` on are
  /// masked; null if none are.
  struct Place {
    mlir::Value at, bound;
  };
  /// Whether each element is valid, as a condition; null if all are.
  mlir::Value isThere(const Place &place) const;
  /// Tiles of the elements [begin, end), `most` at most, of a row that begins
  /// at `row`.
  mlir::ValueRange
  forTiles(mlir::Value memory, mlir::Value row, mlir::Value begin,
           mlir::Value end, int64_t most, mlir::ValueRange init,
           llvm::function_ref<Values(const Place &, mlir::Value tile,
                                     mlir::ValueRange)>
               body) const;
};

/// A launch of a cluster with one graph.sample. Buffers are its inputs, then
/// its results.
struct SampleLaunch {
  mutable graph::ClusterOp cluster;
  TilingContext &context;

  llvm::Expected<llvm::SmallVector<mlir::Value>>
  operator()(llvm::StringRef step, int64_t blocks, mlir::ValueRange inputs,
             llvm::ArrayRef<tile::Access> access, mlir::TypeRange results,
             BuildKernel build) const;
};

/// The kernel that draws: buffers adjusted logits, options, limits, weights
/// (which are written) and tokens.
void emitSampleChoice(mlir::OpBuilder &b, tile::KernelOp kernel,
                      const SampleShape &shape, const TileTarget &target);

namespace gpu {
/// Logits of a row from which on several blocks share it.
inline constexpr int64_t kLeastLogitsOfParts = 8193;

/// Draws a token from each row of `logits` with a block for each part of a row.
llvm::Expected<mlir::Value> drawByParts(const SampleLaunch &launch,
                                        const SampleShape &shape,
                                        mlir::Value logits, mlir::Value options,
                                        mlir::Value limits);
} // namespace gpu

} // namespace tessera
