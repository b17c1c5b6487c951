// Products of tiles by wgmma: the same operands as `multiply`, for kernels of
// sm_90a. Each warpgroup has 64 rows of the result, all columns of them.
#pragma once
#include "runtime/device/BoxTile.cuh"
#include "runtime/device/Multiply.cuh"

namespace tessera::device {

// WarpgroupOperand<X>: the descriptor of an operand for wgmma, for step `step`
// of 16 along the reduction. left: 64 rows from `row` on; right: all columns.
template <typename X> struct WarpgroupOperand;

template <int M, int K> struct WarpgroupOperand<SharedTile<bf16, M, K>> {
  static constexpr int kSteps = K / 16;
  static constexpr Major kLeft = Major::k, kRight = Major::mn;
  SharedTile<bf16, M, K> tile;

  TESSERA_DEVICE uint64_t left(int row, int step) const {
    return BoxTile<bf16, M, K>{tile.base}.kMajor(step, row);
  }
  /// As K × N: rows run along the sum.
  TESSERA_DEVICE uint64_t right(int step) const {
    return BoxTile<bf16, M, K>{tile.base}.mnMajor(step);
  }
};

template <int M, int K>
struct WarpgroupOperand<Transposed<SharedTile<bf16, K, M>>> {
  static constexpr int kSteps = K / 16;
  static constexpr Major kLeft = Major::mn, kRight = Major::k;
  Transposed<SharedTile<bf16, K, M>> transposed;

  TESSERA_DEVICE uint64_t left(int row, int step) const {
    return BoxTile<bf16, K, M>{transposed.tile.base}.mnMajor(step, row);
  }
  TESSERA_DEVICE uint64_t right(int step) const {
    return BoxTile<bf16, K, M>{transposed.tile.base}.kMajor(step);
  }
};

/// A product's result as the left operand, in registers.
template <int M, int K, int WarpsM>
struct WarpgroupOperand<Tile<bf16, Fragments<M, K, WarpsM, 1>>> {
  static constexpr int kSteps = K / 16;
  static constexpr Major kLeft = Major::k;
  const Tile<bf16, Fragments<M, K, WarpsM, 1>> &tile;

  TESSERA_DEVICE FragmentA left(int, int step) const {
    FragmentA a;
    Operand<Tile<bf16, Fragments<M, K, WarpsM, 1>>>{tile}.left(a, 0, 16 * step,
                                                               0);
    return a;
  }
  /// Where Operand::left takes that from.
  TESSERA_DEVICE KeptWords kept(int step) const {
    const bf16 *block = tile.at + 4 * (16 * step / 8);
    return {{block, block + 2, block + 4, block + 6}};
  }
};

template <typename X> inline constexpr bool kIsRegisters = false;
template <typename T, typename Layout>
inline constexpr bool kIsRegisters<Tile<T, Layout>> = true;

/// Starts sum += a × b, or sum = a × b where it does not accumulate; `sum`
/// stays untouched until wgmmaWait. Data in shared memory must have been
/// written before a fenceAsync of its writers and a barrier, or by the copy
/// engine.
template <bool Accumulates = true, typename Layout, typename A, typename B>
TESSERA_DEVICE void multiplyAsync(const A &a, const B &b,
                                  Tile<float, Layout> &sum) {
  static_assert(Layout::kDown == 1 && Layout::kWarpsN == 1 &&
                    Layout::kWarpsM % 4 == 0,
                "a warp has sixteen rows and all columns");
  using Left = WarpgroupOperand<A>;
  using Right = WarpgroupOperand<B>;
  Left left{a};
  Right right{b};
  int row = warpgroup() * 64;
  // Fragments are in registers before the first product, and stay.
  decltype(left.left(0, 0)) lefts[Left::kSteps];
  TESSERA_UNROLL
  for (int step = 0; step < Left::kSteps; ++step)
    lefts[step] = left.left(row, step);
  wgmmaFence(sum.at, lefts);
  TESSERA_UNROLL
  for (int step = 0; step < Left::kSteps; ++step) {
    if constexpr (kIsRegisters<A>)
      wgmma<Inputs::bf16, Right::kRight>(sum.at, lefts[step], right.right(step),
                                         Accumulates || step > 0,
                                         left.kept(step));
    else
      wgmma<Inputs::bf16, Left::kLeft, Right::kRight>(
          sum.at, lefts[step], right.right(step), Accumulates || step > 0);
  }
  wgmmaCommit();
}

/// sum + a × b.
template <typename Layout, typename A, typename B>
TESSERA_DEVICE Tile<float, Layout> multiplyWarpgroups(const A &a, const B &b,
                                                      Tile<float, Layout> sum) {
  multiplyAsync(a, b, sum);
  wgmmaWait<0>(sum.at);
  return sum;
}

} // namespace tessera::device
