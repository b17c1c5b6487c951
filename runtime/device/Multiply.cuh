// Matmuls of tiles by mma.sync. Operands are in shared memory, as stored or
// transposed; the left one may be in registers, as the result of a matmul.
//
// bf16 operands are multiplied directly. Each fp32 operand is split into two
// tf32 values, and three of the four products are added ("3xTF32", Ootomo &
// Yokota 2022): close to fp32 at several times the speed of the scalar units.
// Tensor cores truncate their sums, always towards zero: these errors would add
// up, so that only eight terms are added there and the rest outside, as Ootomo
// & Yokota do it; but for operands in registers, such as weights of attention.
#pragma once
#include "runtime/device/Fragments.cuh"
#include "runtime/device/Mma.cuh"
#include "runtime/device/Shared.cuh"

namespace tessera::device {

//===--- bf16 operands ----------------------------------------------------===//

// Operand<X>: kRows, kColumns, left(row, k): the 16 × 16 fragment there, and
// right(k, column): the two 16 × 8 fragments at column and column + 8. Of steps
// along the sum, kUnrolled are one piece of code: more would be loaded early
// and take the registers of the sums.
template <typename X> struct Operand;

template <int M, int K> struct Operand<SharedTile<bf16, M, K>> {
  using Type = bf16;
  static constexpr int kRows = M, kColumns = K, kUnrolled = 2;
  SharedTile<bf16, M, K> tile;

  TESSERA_DEVICE void left(FragmentA &a, int row, int k, int) const {
    loadMatrices(a.at, tile.at(row + lane() % 16, k + lane() / 16 * 8));
  }
  TESSERA_DEVICE void right(FragmentB (&b)[2], int k, int column) const {
    uint32_t at[4];
    loadMatrices<true>(at, tile.at(k + lane() % 16, column + lane() / 16 * 8));
    b[0] = {{at[0], at[1]}};
    b[1] = {{at[2], at[3]}};
  }
};

template <int M, int K> struct Operand<Transposed<SharedTile<bf16, K, M>>> {
  using Type = bf16;
  static constexpr int kRows = M, kColumns = K, kUnrolled = 2;
  Transposed<SharedTile<bf16, K, M>> transposed;

  TESSERA_DEVICE void left(FragmentA &a, int row, int k, int) const {
    loadMatrices<true>(a.at,
                       transposed.tile.at(k + lane() / 16 * 8 + lane() % 8,
                                          row + lane() / 8 % 2 * 8));
  }
  TESSERA_DEVICE void right(FragmentB (&b)[2], int k, int column) const {
    uint32_t at[4];
    loadMatrices(at, transposed.tile.at(column + lane() / 16 * 8 + lane() % 8,
                                        k + lane() / 8 % 2 * 8));
    b[0] = {{at[0], at[1]}};
    b[1] = {{at[2], at[3]}};
  }
};

/// A product's result as a left operand: the warp that holds a row holds all of
/// it, and two blocks of 16 × 8 side by side are a fragment.
template <typename T, int M, int K, int WarpsM>
struct Operand<Tile<T, Fragments<M, K, WarpsM, 1>>> {
  using Type = T;
  using Layout = Fragments<M, K, WarpsM, 1>;
  static constexpr int kRows = M, kColumns = K, kUnrolled = K / 8;
  const Tile<T, Layout> &tile;

  /// `down`: the number of the fragment among those of this warp's rows.
  TESSERA_DEVICE void left(FragmentA &a, int, int k, int down) const {
    int block = 4 * (down * Layout::kAcross + k / 8);
    TESSERA_UNROLL
    for (int i = 0; i < 4; ++i)
      a.at[i] = pairAt(tile, block + 2 * i);
  }
};

//===--- float operands ---------------------------------------------------===//

/// Two tf32 that add up to a float, but for its last two bits or so.
template <typename Fragment> struct Split {
  Fragment high, low;
  TESSERA_DEVICE void set(int i, float value) {
    high.at[i] = toTf32(value);
    low.at[i] = toTf32(value - bitsToFloat(high.at[i]));
  }
};

/// Elements of a float operand, one at a time.
template <typename X> struct FloatOperand;
template <int M, int K> struct FloatOperand<SharedTile<float, M, K>> {
  static constexpr int kRows = M, kColumns = K, kUnrolled = 1;
  SharedTile<float, M, K> tile;
  TESSERA_DEVICE float get(int row, int column) const {
    checkShared(tile.at(row, column), 1);
    return *tile.at(row, column);
  }
  /// (row + g, k + 2q), (row + g + 8, k + 2q), and the same of k + 2q + 1.
  TESSERA_DEVICE void left(Split<FragmentA> &a, int row, int k, int) const {
    int g = lane() / 4, q = lane() % 4;
    TESSERA_UNROLL
    for (int i = 0; i < 4; ++i)
      a.set(i, get(row + g + i % 2 * 8, k + 2 * q + i / 2));
  }
};
template <int M, int K>
struct FloatOperand<Transposed<SharedTile<float, K, M>>> {
  static constexpr int kRows = M, kColumns = K, kUnrolled = 1;
  Transposed<SharedTile<float, K, M>> transposed;
  TESSERA_DEVICE float get(int row, int column) const {
    checkShared(transposed.tile.at(column, row), 1);
    return *transposed.tile.at(column, row);
  }
  TESSERA_DEVICE void left(Split<FragmentA> &a, int row, int k, int) const {
    int g = lane() / 4, q = lane() % 4;
    TESSERA_UNROLL
    for (int i = 0; i < 4; ++i)
      a.set(i, get(row + g + i % 2 * 8, k + 2 * q + i / 2));
  }
};
template <int M, int K, int WarpsM>
struct FloatOperand<Tile<float, Fragments<M, K, WarpsM, 1>>> {
  using Layout = Fragments<M, K, WarpsM, 1>;
  static constexpr int kRows = M, kColumns = K, kUnrolled = K / 8;
  const Tile<float, Layout> &tile;
  TESSERA_DEVICE void left(Split<FragmentA> &a, int, int k, int down) const {
    const float *block = tile.at + 4 * (down * Layout::kAcross + k / 8);
    a.set(0, block[0]);
    a.set(1, block[2]);
    a.set(2, block[1]);
    a.set(3, block[3]);
  }
};

//===--- products ---------------------------------------------------------===//

template <typename Layout, typename A, typename B>
TESSERA_DEVICE void multiplyBf16(Tile<float, Layout> &sum, const A &a,
                                 const B &b) {
  constexpr int kDown = Layout::kDown, kAcross = Layout::kAcross;
  static_assert(A::kColumns % 16 == 0 && kAcross % 2 == 0, "whole fragments");
  TESSERA_UNROLL_BY(A::kUnrolled)
  for (int k = 0; k < A::kColumns; k += 16) {
    FragmentA left[kDown];
    TESSERA_UNROLL
    for (int i = 0; i < kDown; ++i)
      a.left(left[i], Layout::firstRow(i), k, i);
    TESSERA_UNROLL
    for (int j = 0; j < kAcross; j += 2) {
      FragmentB right[2];
      b.right(right, k, Layout::firstColumn(j));
      TESSERA_UNROLL
      for (int i = 0; i < kDown; ++i)
        TESSERA_UNROLL
      for (int half = 0; half < 2; ++half) {
        multiplyBf16(sum.at + 4 * (i * kAcross + j + half), left[i],
                     right[half]);
      }
    }
  }
  finishWarpProducts();
}

/// The same sums in the same order for a warp that has 16 × 16 of them: it
/// would wait for the fragments of every step, and has registers for those of
/// several.
template <typename Layout, typename A, typename B>
TESSERA_DEVICE void multiplyBf16Ahead(Tile<float, Layout> &sum, const A &a,
                                      const B &b) {
  constexpr int kSteps = A::kColumns % 128 == 0  ? 8
                         : A::kColumns % 64 == 0 ? 4
                         : A::kColumns % 32 == 0 ? 2
                                                 : 1;
  static_assert(A::kColumns % 16 == 0, "whole fragments");
  static_assert(Layout::kDown == 1 && Layout::kAcross == 2, "16 × 16 a warp");
  TESSERA_UNROLL_BY(1)
  for (int k = 0; k < A::kColumns; k += 16 * kSteps) {
    FragmentA left[kSteps];
    FragmentB right[kSteps][2];
    TESSERA_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      a.left(left[step], Layout::firstRow(0), k + 16 * step, 0);
      b.right(right[step], k + 16 * step, Layout::firstColumn(0));
    }
    TESSERA_UNROLL
    for (int step = 0; step < kSteps; ++step)
      TESSERA_UNROLL
    for (int half = 0; half < 2; ++half)
      multiplyBf16(sum.at + 4 * half, left[step], right[step][half]);
  }
  finishWarpProducts();
}

template <typename Layout, typename A, typename B>
TESSERA_DEVICE void multiplyFloat(Tile<float, Layout> &sum, const A &a,
                                  const B &b) {
  constexpr int kDown = Layout::kDown, kAcross = Layout::kAcross;
  static_assert(A::kColumns % 8 == 0, "whole fragments");
  // Weights of attention are in registers, as is its output: too few are left.
  constexpr bool kAddsOutside = A::kUnrolled == 1;
  int g = lane() / 4, q = lane() % 4;
  TESSERA_UNROLL_BY(A::kUnrolled)
  for (int k = 0; k < A::kColumns; k += 8) {
    Split<FragmentA> left[kDown];
    TESSERA_UNROLL
    for (int i = 0; i < kDown; ++i)
      a.left(left[i], Layout::firstRow(i), k, i);
    TESSERA_UNROLL
    for (int j = 0; j < kAcross; ++j) {
      // Any order of k will do, if both sides have it: that of the left.
      Split<FragmentB> right;
      right.set(0, b.get(k + 2 * q, Layout::firstColumn(j) + g));
      right.set(1, b.get(k + 2 * q + 1, Layout::firstColumn(j) + g));
      FragmentC parts[kDown];
      TESSERA_UNROLL
      for (int i = 0; i < kDown; ++i) {
        parts[i] = {};
        float *at = kAddsOutside ? parts[i].at : sum.at + 4 * (i * kAcross + j);
        multiplyTf32(at, left[i].low, right.high);
        multiplyTf32(at, left[i].high, right.low);
        multiplyTf32(at, left[i].high, right.high);
      }
      if constexpr (!kAddsOutside)
        continue;
      finishWarpProducts();
      TESSERA_UNROLL
      for (int i = 0; i < kDown; ++i)
        TESSERA_UNROLL
      for (int e = 0; e < 4; ++e)
        sum.at[4 * (i * kAcross + j) + e] += parts[i].at[e];
    }
  }
  if constexpr (!kAddsOutside)
    finishWarpProducts();
}

template <typename X> struct ElementOf;
template <typename T, int M, int N> struct ElementOf<SharedTile<T, M, N>> {
  using Type = T;
};
template <typename X> struct ElementOf<Transposed<X>> : ElementOf<X> {};
template <typename T, typename Layout> struct ElementOf<Tile<T, Layout>> {
  using Type = T;
};
template <typename T> inline constexpr bool isFloat = false;
template <> inline constexpr bool isFloat<float> = true;

/// sum + a × b.
template <typename Layout, typename A, typename B>
TESSERA_DEVICE Tile<float, Layout> multiply(const A &a, const B &b,
                                            Tile<float, Layout> sum) {
  if constexpr (isFloat<typename ElementOf<A>::Type>)
    multiplyFloat(sum, FloatOperand<A>{a}, FloatOperand<B>{b});
  else
    multiplyBf16(sum, Operand<A>{a}, Operand<B>{b});
  return sum;
}

/// The same for 16 rows of bf16, whose fragments are loaded ahead.
template <typename Layout, typename A, typename B>
TESSERA_DEVICE Tile<float, Layout> multiplyAhead(const A &a, const B &b,
                                                 Tile<float, Layout> sum) {
  multiplyBf16Ahead(sum, Operand<A>{a}, Operand<B>{b});
  return sum;
}

} // namespace tessera::device
