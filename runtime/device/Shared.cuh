// Tiles in shared memory, and how they are filled from global memory.
#pragma once
#include "runtime/device/Async.cuh"
#include "runtime/device/Tile.cuh"

namespace tessera::device {

/// Rows × Columns elements in consecutive panels. Each has all rows of 128, 64
/// or 32 bytes of columns, with swizzled 16-byte chunks: the layout that
/// ldmatrix reads without bank conflicts, that wgmma requires and that TMA
/// writes. `base` is aligned to eight rows of a panel.
template <typename T, int Rows, int Columns> struct SharedTile {
  using Element = T;
  static constexpr int kRows = Rows, kColumns = Columns;
  static constexpr int kRowBytes = Columns * static_cast<int>(sizeof(T));
  static constexpr int kBytes = Rows * kRowBytes;
  static constexpr int kPerChunk = 16 / static_cast<int>(sizeof(T));
  /// Bytes of a panel's rows, and of a panel.
  static constexpr int kSpan = kRowBytes % 128 == 0  ? 128
                               : kRowBytes % 64 == 0 ? 64
                                                     : 32;
  static constexpr int kPanelBytes = Rows * kSpan;

  unsigned char *base;

  TESSERA_DEVICE T *at(int row, int column) const {
    constexpr int kChunks = kSpan / 16; // of a panel's row
    int chunk = column / kPerChunk;
    return reinterpret_cast<T *>(base + chunk / kChunks * kPanelBytes +
                                 swizzle<kSpan>(row, chunk % kChunks) * 16 +
                                 column % kPerChunk *
                                     static_cast<int>(sizeof(T)));
  }
};

/// Count rows of a tile from row `first` on, as something to be filled.
template <typename Tile, int Count> struct SharedRows {
  using Element = typename Tile::Element;
  static constexpr int kRows = Count, kColumns = Tile::kColumns;
  static constexpr int kRowBytes = Tile::kRowBytes;
  static constexpr int kPerChunk = Tile::kPerChunk;
  Tile tile;
  int first;

  TESSERA_DEVICE Element *at(int row, int column) const {
    return tile.at(first + row, column);
  }
};
template <int Count, typename Tile>
TESSERA_DEVICE SharedRows<Tile, Count> rowsOf(Tile tile, int first) {
  return {tile, first};
}

/// `Count` consecutive tiles.
template <typename T, int Count, int Rows, int Columns> struct SharedTiles {
  using One = SharedTile<T, Rows, Columns>;
  unsigned char *base;

  TESSERA_DEVICE One operator[](int64_t i) const {
    return {base + static_cast<int>(i) * One::kBytes};
  }
};

/// The tile with its two dimensions exchanged; nothing moves.
template <typename Tile> struct Transposed {
  Tile tile;
};
template <typename Tile> TESSERA_DEVICE Transposed<Tile> transposed(Tile tile) {
  return {tile};
}

/// Fills a tile, or rows of one, with elements (i, j) from `from` + i ·
/// rowStride + j, with zeros in rows from `rows` and columns from `columns` on.
/// By cp.async: they have landed after waitCopies, and a barrier, for the next
/// group that commitCopies closes. `from` and all rows are aligned to 16 bytes.
template <int Threads, typename To, typename T>
TESSERA_DEVICE void stagePacked(To to, const T *from, int64_t rowStride,
                                int64_t rows = To::kRows,
                                int64_t columns = To::kColumns) {
  constexpr int kChunks = To::kRowBytes / 16, kAll = To::kRows * kChunks;
  // With few threads there are many iterations: all of their addresses at once
  // would spill.
  TESSERA_UNROLL_BY(8)
  for (int first = 0; first < kAll; first += Threads) {
    int i = first + thread();
    if (kAll % Threads && i >= kAll)
      break;
    int row = i / kChunks, column = i % kChunks * To::kPerChunk;
    int64_t valid = row < rows ? columns - column : 0;
    valid = valid < 0 ? 0 : valid < To::kPerChunk ? valid : To::kPerChunk;
    const T *address = valid ? from + row * rowStride + column : from;
    copyAsync(to.at(row, column), address,
              static_cast<int>(valid) * static_cast<int>(sizeof(T)));
  }
}

/// stagePacked of a tile or rows of which nothing is beyond a bound: for
/// kernels whose time is that of such copies' instructions.
template <int Threads, typename To, typename T>
TESSERA_DEVICE void stageWhole(To to, const T *from, int64_t rowStride) {
  constexpr int kChunks = To::kRowBytes / 16, kAll = To::kRows * kChunks;
  TESSERA_UNROLL_BY(8)
  for (int first = 0; first < kAll; first += Threads) {
    int i = first + thread();
    if (kAll % Threads && i >= kAll)
      break;
    int row = i / kChunks, column = i % kChunks * To::kPerChunk;
    copyWholeAsync(to.at(row, column), from + row * rowStride + column);
  }
}

/// stagePacked for any strides, alignment and type, through registers: they are
/// there after a barrier.
template <int Threads, typename To, typename From>
TESSERA_DEVICE void stage(To to, const From *from, int64_t rowStride,
                          int64_t columnStride, int64_t rows = To::kRows,
                          int64_t columns = To::kColumns) {
  using T = typename To::Element;
  constexpr int Rows = To::kRows, Columns = To::kColumns;
  // Adjacent threads read along the contiguous dimension. All threads execute
  // every iteration: divergent loop exits cost registers for reconvergence.
  constexpr int kAll = Rows * Columns;
  bool alongRows = rowStride == 1 && columnStride != 1;
  TESSERA_UNROLL_BY(4)
  for (int first = 0; first < kAll; first += Threads) {
    int i = first + thread();
    int row = alongRows ? i % Rows : i / Columns;
    int column = alongRows ? i / Rows : i % Columns;
    bool isTile = kAll % Threads == 0 || i < kAll;
    From value{};
    if (isTile && row < rows && column < columns) {
      const From *address = from + row * rowStride + column * columnStride;
      checkRead(address, 1);
      value = *address;
    }
    if (isTile) {
      T *place = to.at(row, column);
      checkWrite(place, 1);
      *place = Convert<T>::from(value);
    }
  }
}

/// Fills Count elements of shared memory with those at from, from + stride, …,
/// and with zeros from number `bound` on, which are not touched. They are there
/// after a barrier.
template <int Threads, int Count, typename To, typename From>
TESSERA_DEVICE void stageRow(To *to, const From *from, int64_t stride,
                             int64_t bound = Count) {
  TESSERA_UNROLL
  for (int first = 0; first < Count; first += Threads) {
    int i = first + thread();
    if (Count % Threads && i >= Count)
      break;
    From value{};
    if (i < bound) {
      checkRead(from + i * stride, 1);
      value = from[i * stride];
    }
    checkWrite(to + i, 1);
    to[i] = Convert<To>::from(value);
  }
}

//===--- integers to floats -----------------------------------------------===//

/// Four integers, the lowest byte first, as the words of so many floats; exact.
TESSERA_DEVICE Packet<uint32_t, 2> bytesToFloats(uint32_t bytes, bf16) {
#if defined(__CUDACC__)
  // From 128 to 256 the last place of bf16 is 1: x is 128 with the low seven
  // bits, less 128 or, of a negative number, 256.
  Packet<uint32_t, 2> pairs{
      {__byte_perm(bytes, 0, 0x4140), __byte_perm(bytes, 0, 0x4342)}};
  TESSERA_UNROLL
  for (uint32_t &pair : pairs.at)
    asm("fma.rn.bf16x2 %0, %1, %2, %3;"
        : "=r"(pair)
        : "r"((pair & 0x007f007fu) | 0x43004300u), "r"(0x3f803f80u),
          "r"((pair & 0x00800080u) | 0xc300c300u));
  return pairs;
#else
  auto number = [&](int i) {
    return static_cast<float>(static_cast<int8_t>(bytes >> 8 * i));
  };
  return {{toBf16Pair(number(0), number(1)), toBf16Pair(number(2), number(3))}};
#endif
}
TESSERA_DEVICE Packet<uint32_t, 4> bytesToFloats(uint32_t bytes, float) {
  Packet<uint32_t, 4> result;
  TESSERA_UNROLL
  for (int i = 0; i < 4; ++i)
    result.at[i] =
        floatToBits(static_cast<float>(static_cast<int8_t>(bytes >> 8 * i)));
  return result;
}

/// A tile of integers that has landed in shared memory, as floats in another
/// one. They are there after a barrier.
template <int Threads, typename T, int Rows, int Columns>
TESSERA_DEVICE void widen(SharedTile<T, Rows, Columns> to,
                          SharedTile<int8_t, Rows, Columns> from) {
  constexpr int kChunks = Columns / 16, kAll = Rows * kChunks,
                kPerChunk = 16 / static_cast<int>(sizeof(T));
  using Bytes = Packet<uint32_t, 4>;
  using Chunk = Packet<T, kPerChunk>;
  TESSERA_UNROLL_BY(4)
  for (int first = 0; first < kAll; first += Threads) {
    int i = first + thread();
    if (kAll % Threads && i >= kAll)
      break;
    int row = i / kChunks, column = i % kChunks * 16;
    auto *bytes = reinterpret_cast<const Bytes *>(from.at(row, column));
    checkShared(bytes, 1);
    Packet<uint32_t, static_cast<int>(sizeof(T))> words[4];
    TESSERA_UNROLL
    for (int word = 0; word < 4; ++word)
      words[word] = bytesToFloats(bytes->at[word], T{});
    TESSERA_UNROLL
    for (int chunk = 0; chunk < static_cast<int>(sizeof(T)); ++chunk) {
      auto *place =
          reinterpret_cast<Chunk *>(to.at(row, column + chunk * kPerChunk));
      Chunk wide;
      memcpy(&wide, reinterpret_cast<unsigned char *>(words) + 16 * chunk, 16);
      checkWrite(place, 1);
      *place = wide;
    }
  }
}

} // namespace tessera::device
