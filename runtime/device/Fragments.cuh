// Two-dimensional tiles in the layout of mma.sync's accumulators, and their
// one-dimensional slices.
//
// A tile is divided into blocks of 16 × 16, which are assigned round-robin
// along both dimensions to the block's WarpsM × WarpsN warps; warps of one row
// of warps are numbered consecutively. Of each half of a block, 16 × 8, a
// thread holds, with g = lane / 4 and q = lane % 4, elements (g, 2q), (g,
// 2q+1), (g+8, 2q), (g+8, 2q+1): "Matrix Fragments for mma.m16n8k16" in the PTX
// ISA. Because of the round-robin order, adjacent rows or columns of a tile
// form a smaller tile of all warps: see `slice`.
#pragma once
#include "runtime/device/Tile.cuh"

namespace tessera::device {

/// One value for each row of an M-row tile; all threads that hold elements of a
/// row hold its value.
template <int M, int WarpsM, int WarpsN> struct Rows {
  static constexpr int kElements = M;
  static constexpr int kEach = M / WarpsM / 16 * 2;
  static_assert(M % (16 * WarpsM) == 0, "rows of whole fragments");

  static TESSERA_DEVICE int index(int r) {
    return (r / 2 * WarpsM + warp() / WarpsN) * 16 + lane() / 4 + r % 2 * 8;
  }
  /// Of the lanes that hold a value, the one that writes it, and of all
  /// threads.
  static TESSERA_DEVICE bool isFirstLane() { return lane() % 4 == 0; }
  static TESSERA_DEVICE bool isFirst() {
    return isFirstLane() && warp() % WarpsN == 0;
  }
};

/// One value for each column of an N-column tile.
template <int N, int WarpsM, int WarpsN> struct Columns {
  static constexpr int kElements = N;
  static constexpr int kEach = N / WarpsN / 8 * 2;
  static_assert(N % (16 * WarpsN) == 0, "columns of whole fragments");

  static TESSERA_DEVICE int index(int r) {
    return (r / 4 * WarpsN + warp() % WarpsN) * 16 + r / 2 % 2 * 8 +
           lane() % 4 * 2 + r % 2;
  }
  static TESSERA_DEVICE bool isFirstLane() { return lane() / 4 == 0; }
  static TESSERA_DEVICE bool isFirst() {
    return isFirstLane() && warp() / WarpsN == 0;
  }
};

template <int M, int N, int WarpsM, int WarpsN> struct Fragments {
  using OfRows = Rows<M, WarpsM, WarpsN>;
  using OfColumns = Columns<N, WarpsM, WarpsN>;
  static constexpr int kRows = M, kColumns = N;
  static constexpr int kWarpsM = WarpsM, kWarpsN = WarpsN;
  /// Halves of blocks, 16 × 8, that a warp has down and across; (i, j) is
  /// registers 4 (i · kAcross + j) to 4 (i · kAcross + j) + 3, and its first
  /// element is (firstRow(i), firstColumn(j)).
  static constexpr int kDown = M / WarpsM / 16, kAcross = N / WarpsN / 8;
  static constexpr int kEach = 4 * kDown * kAcross;

  static TESSERA_DEVICE int firstRow(int i) {
    return (i * WarpsM + warp() / WarpsN) * 16;
  }
  static TESSERA_DEVICE int firstColumn(int j) {
    return (j / 2 * WarpsN + warp() % WarpsN) * 16 + j % 2 * 8;
  }

  /// The register of a slice that belongs to register r of the tile.
  static TESSERA_DEVICE int rowRegister(int r) {
    return r / 4 / kAcross * 2 + r % 4 / 2;
  }
  static TESSERA_DEVICE int columnRegister(int r) {
    return r / 4 % kAcross * 2 + r % 2;
  }
  static TESSERA_DEVICE int row(int r) { return OfRows::index(rowRegister(r)); }
  static TESSERA_DEVICE int column(int r) {
    return OfColumns::index(columnRegister(r));
  }
};

template <typename Layout>
concept IsFragments = requires { Layout::kDown; };
template <typename Layout>
concept IsSlice = requires { Layout::isFirst(); };

/// A slice serves the elements of its rows or columns.
template <int M, int N, int WarpsM, int WarpsN, typename T>
struct Element<Fragments<M, N, WarpsM, WarpsN>,
               Tile<T, Rows<M, WarpsM, WarpsN>>> {
  static TESSERA_DEVICE T of(const Tile<T, Rows<M, WarpsM, WarpsN>> &slice,
                             int r) {
    return slice.at[Fragments<M, N, WarpsM, WarpsN>::rowRegister(r)];
  }
};
template <int M, int N, int WarpsM, int WarpsN, typename T>
struct Element<Fragments<M, N, WarpsM, WarpsN>,
               Tile<T, Columns<N, WarpsM, WarpsN>>> {
  static TESSERA_DEVICE T of(const Tile<T, Columns<N, WarpsM, WarpsN>> &slice,
                             int r) {
    return slice.at[Fragments<M, N, WarpsM, WarpsN>::columnRegister(r)];
  }
};

/// Row i, column j of a tile divided into tiles of `To`; both are known when
/// the enclosing loops are unrolled.
template <typename To, typename T, typename From>
TESSERA_DEVICE Tile<T, To> slice(const Tile<T, From> &tile, int i, int j) {
  static_assert(To::kWarpsM == From::kWarpsM && To::kWarpsN == From::kWarpsN,
                "of the same warps");
  Tile<T, To> result;
  TESSERA_UNROLL
  for (int r = 0; r < To::kEach; ++r)
    result.at[r] =
        tile.at[4 * ((i * To::kDown + r / 4 / To::kAcross) * From::kAcross +
                     j * To::kAcross + r / 4 % To::kAcross) +
                r % 4];
  return result;
}

/// start + the index along the slice, or along dimension Dim of the tile.
template <IsSlice Layout>
TESSERA_DEVICE Tile<int32_t, Layout> iota(int64_t start) {
  Tile<int32_t, Layout> result;
  TESSERA_UNROLL
  for (int r = 0; r < Layout::kEach; ++r)
    result.at[r] = static_cast<int32_t>(start + Layout::index(r));
  return result;
}
template <IsFragments Layout, int Dim>
TESSERA_DEVICE Tile<int32_t, Layout> iota(int64_t start) {
  if constexpr (Dim == 0)
    return spread<Layout>(iota<typename Layout::OfRows>(start));
  else
    return spread<Layout>(iota<typename Layout::OfColumns>(start));
}

//===--- memory -----------------------------------------------------------===//

/// Elements (i, j) at from + i · rowStride + j · columnStride; zeros in rows
/// from `rows` and columns from `columns` on, which are not touched.
template <IsFragments Layout, typename T>
TESSERA_DEVICE auto load(const T *from, int64_t rowStride, int64_t columnStride,
                         int64_t rows = Layout::kRows,
                         int64_t columns = Layout::kColumns) {
  Tile<T, Layout> result;
  bool paired = columnStride == 1 && rowStride % 2 == 0 && isAligned<2>(from);
  TESSERA_UNROLL
  for (int r = 0; r < Layout::kEach; r += 2) {
    int row = Layout::row(r), column = Layout::column(r);
    const T *address = from + row * rowStride + column * columnStride;
    if (paired && row < rows && column + 1 < columns) {
      checkRead(address, 2);
      auto pair = *reinterpret_cast<const Packet<T, 2> *>(address);
      result.at[r] = pair.at[0];
      result.at[r + 1] = pair.at[1];
      continue;
    }
    TESSERA_UNROLL
    for (int v = 0; v < 2; ++v) {
      result.at[r + v] = T{};
      if (row < rows && column + v < columns) {
        checkRead(address + v * columnStride, 1);
        result.at[r + v] = address[v * columnStride];
      }
    }
  }
  return result;
}

template <typename T, int M, int N, int WarpsM, int WarpsN>
TESSERA_DEVICE void store(const Tile<T, Fragments<M, N, WarpsM, WarpsN>> &tile,
                          T *to, int64_t rowStride, int64_t columnStride,
                          int64_t rows = M, int64_t columns = N) {
  using Layout = Fragments<M, N, WarpsM, WarpsN>;
  bool paired = columnStride == 1 && rowStride % 2 == 0 && isAligned<2>(to);
  TESSERA_UNROLL
  for (int r = 0; r < Layout::kEach; r += 2) {
    int row = Layout::row(r), column = Layout::column(r);
    T *address = to + row * rowStride + column * columnStride;
    if (paired && row < rows && column + 1 < columns) {
      checkWrite(address, 2);
      Packet<T, 2> pair{{tile.at[r], tile.at[r + 1]}};
      *reinterpret_cast<Packet<T, 2> *>(address) = pair;
      continue;
    }
    TESSERA_UNROLL
    for (int v = 0; v < 2; ++v)
      if (row < rows && column + v < columns) {
        checkWrite(address + v * columnStride, 1);
        address[v * columnStride] = tile.at[r + v];
      }
  }
}

/// All of a tile, of contiguous rows that begin at multiples of two elements,
/// as the planner has proven: without a test of it, so that all loads are in
/// flight before the first use.
template <IsFragments Layout, typename T>
TESSERA_DEVICE auto loadAligned(const T *from, int64_t rowStride) {
  Tile<T, Layout> result;
  TESSERA_UNROLL
  for (int r = 0; r < Layout::kEach; r += 2) {
    const T *address = from + Layout::row(r) * rowStride + Layout::column(r);
    checkRead(address, 2);
    auto pair = *reinterpret_cast<const Packet<T, 2> *>(address);
    result.at[r] = pair.at[0];
    result.at[r + 1] = pair.at[1];
  }
  return result;
}

/// All of a tile to memory as loadAligned reads it.
template <typename T, int M, int N, int WarpsM, int WarpsN>
TESSERA_DEVICE void
storeAligned(const Tile<T, Fragments<M, N, WarpsM, WarpsN>> &tile, T *to,
             int64_t rowStride) {
  using Layout = Fragments<M, N, WarpsM, WarpsN>;
  TESSERA_UNROLL
  for (int r = 0; r < Layout::kEach; r += 2) {
    T *address = to + Layout::row(r) * rowStride + Layout::column(r);
    checkWrite(address, 2);
    *reinterpret_cast<Packet<T, 2> *>(address) =
        Packet<T, 2>{{tile.at[r], tile.at[r + 1]}};
  }
}

/// A slice from from, from + stride, …; zeros from number `bound` on.
template <IsSlice Layout, typename T>
TESSERA_DEVICE auto load(const T *from, int64_t stride = 1,
                         int64_t bound = Layout::kElements) {
  Tile<T, Layout> result;
  TESSERA_UNROLL
  for (int r = 0; r < Layout::kEach; ++r) {
    int i = Layout::index(r);
    result.at[r] = T{};
    if (i < bound) {
      checkRead(from + i * stride, 1);
      result.at[r] = from[i * stride];
    }
  }
  return result;
}

template <typename T, IsSlice Layout>
TESSERA_DEVICE void store(const Tile<T, Layout> &slice, T *to,
                          int64_t stride = 1,
                          int64_t bound = Layout::kElements) {
  if (!Layout::isFirst())
    return;
  TESSERA_UNROLL
  for (int r = 0; r < Layout::kEach; ++r) {
    int i = Layout::index(r);
    if (i < bound) {
      checkWrite(to + i * stride, 1);
      to[i * stride] = slice.at[r];
    }
  }
}

//===--- reductions -------------------------------------------------------===//

/// `value` combined over the lanes that differ in the bits from Low up to High
/// of their number.
template <typename Combine, int Low, int High, typename T>
TESSERA_DEVICE T reduceLanes(T value) {
  if constexpr (Low < High)
    return butterfly<Low, High / 2>(value,
                                    [](T x, T y) { return Combine::of(x, y); });
  else
    return value;
}

/// A slice combined over the `Parts` warps that hold parts of the same rows or
/// columns; this warp has number `part` of them.
template <typename Combine, int Parts, typename T, typename Layout>
TESSERA_DEVICE void reduceWarps(Tile<T, Layout> &slice, int part) {
  if constexpr (Parts > 1) {
    static_assert(Parts * Layout::kElements * sizeof(T) <= kScratchBytes,
                  "tile too large for the scratch");
    T *all = reinterpret_cast<T *>(sharedMemory());
    sync(); // the last use of the scratch is over
    TESSERA_UNROLL
    for (int r = 0; r < Layout::kEach; ++r)
      if (Layout::isFirstLane()) {
        T *mine = all + part * Layout::kElements + Layout::index(r);
        checkWrite(mine, 1);
        *mine = slice.at[r];
      }
    sync();
    TESSERA_UNROLL
    for (int r = 0; r < Layout::kEach; ++r) {
      const T *first = all + Layout::index(r);
      checkShared(first, 1);
      T value = *first;
      TESSERA_UNROLL
      for (int other = 1; other < Parts; ++other) {
        checkShared(first + other * Layout::kElements, 1);
        value = Combine::of(value, first[other * Layout::kElements]);
      }
      slice.at[r] = value;
    }
  }
}

/// Along dimension Dim, which disappears: 1 leaves Rows, 0 leaves Columns. In a
/// fixed order; every thread gets what it holds of the slice.
template <typename Combine, int Dim, typename T, IsFragments Layout>
TESSERA_DEVICE auto reduce(const Tile<T, Layout> &tile) {
  // Threads with parts of one row differ in the lower bits of lane and warp
  // number, those with parts of one column in the upper bits.
  constexpr bool kAlongRow = Dim == 1;
  constexpr int kFirst = kAlongRow ? 1 : 4, kEnd = kAlongRow ? 4 : 32,
                kWarps = kAlongRow ? Layout::kWarpsN : Layout::kWarpsM;
  auto result = [] {
    if constexpr (kAlongRow)
      return Tile<T, typename Layout::OfRows>();
    else
      return Tile<T, typename Layout::OfColumns>();
  }();
  TESSERA_UNROLL
  for (int r = 0; r < Layout::kEach; ++r) {
    int row = Layout::rowRegister(r), column = Layout::columnRegister(r);
    T &sum = result.at[kAlongRow ? row : column];
    bool isFirst = (kAlongRow ? column : row) == 0;
    sum = isFirst ? tile.at[r] : Combine::of(sum, tile.at[r]);
  }
  TESSERA_UNROLL
  for (T &sum : result.at)
    sum = reduceLanes<Combine, kFirst, kEnd>(sum);
  int part = kAlongRow ? warp() % Layout::kWarpsN : warp() / Layout::kWarpsN;
  reduceWarps<Combine, kWarps>(result, part);
  return result;
}

/// All elements of a slice of columns in one, for every thread.
template <typename Combine, typename T, int N, int WarpsM, int WarpsN>
TESSERA_DEVICE T reduce(const Tile<T, Columns<N, WarpsM, WarpsN>> &slice) {
  T value = slice.at[0];
  TESSERA_UNROLL
  for (int r = 1; r < Columns<N, WarpsM, WarpsN>::kEach; ++r)
    value = Combine::of(value, slice.at[r]);
  value = reduceLanes<Combine, 1, 4>(value);
  if constexpr (WarpsN > 1) {
    T *all = reinterpret_cast<T *>(sharedMemory());
    sync(); // the last use of the scratch is over
    if (lane() == 0 && warp() / WarpsN == 0) {
      checkWrite(all + warp() % WarpsN, 1);
      all[warp() % WarpsN] = value;
    }
    sync();
    checkShared(all, WarpsN);
    value = all[0];
    TESSERA_UNROLL
    for (int other = 1; other < WarpsN; ++other)
      value = Combine::of(value, all[other]);
  }
  return value;
}

} // namespace tessera::device
