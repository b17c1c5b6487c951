// Tiles in shared memory that the copy engine fills and wgmma reads.
#pragma once
#include "runtime/device/Tma.cuh"
#include "runtime/device/Wgmma.cuh"

namespace tessera::device {

/// The widest swizzle whose spans divide rows of that many bytes.
template <int RowBytes>
inline constexpr Swizzle kWidestSwizzle = RowBytes % 128 == 0  ? Swizzle::b128
                                          : RowBytes % 64 == 0 ? Swizzle::b64
                                          : RowBytes % 32 == 0 ? Swizzle::b32
                                                               : Swizzle::none;

/// Rows × Columns elements; columns are contiguous in global memory. They are
/// split into consecutive boxes of kWidth columns, one span of the swizzle
/// wide, each with all rows. `base` is a multiple of 1024 from the start of
/// shared memory.
///
/// As an operand of wgmma it is K-major where its columns are depth, and its
/// rows those of A or columns of B; it is MN-major where its rows are depth.
template <typename T, int Rows, int Columns,
          Swizzle S = kWidestSwizzle<Columns *static_cast<int>(sizeof(T))>>
struct BoxTile {
  static constexpr int kRows = Rows, kColumns = Columns;
  static constexpr Swizzle kSwizzle = S;
  static constexpr int kWidth = kSpan<S> / static_cast<int>(sizeof(T));
  static constexpr int kBoxes = Columns / kWidth;
  static constexpr int kBoxBytes = Rows * kSpan<S>;
  static constexpr int kBytes = kBoxes * kBoxBytes;
  static_assert(Columns % kWidth == 0 && Rows <= 256 && Rows % 8 == 0,
                "whole boxes");

  unsigned char *base;

  TESSERA_DEVICE T *at(int row, int column) const {
    int byte = column % kWidth * static_cast<int>(sizeof(T));
    int chunk = row; // of the box
    if constexpr (S != Swizzle::none)
      chunk = swizzle<kSpan<S>>(row, byte / 16);
    return reinterpret_cast<T *>(base + column / kWidth * kBoxBytes +
                                 16 * chunk + byte % 16);
  }

  /// Fills the tile from column `column` on and the further coordinates, rows
  /// first; the map's boxes are kWidth × Rows. Completes kBytes on `barrier`.
  template <typename... Outer>
  TESSERA_DEVICE void load(const TensorMap &map, Barrier &barrier, int column,
                           Outer... outer) const {
    TESSERA_UNROLL
    for (int box = 0; box < kBoxes; ++box)
      loadBox(base + box * kBoxBytes, map, barrier, column + box * kWidth,
              outer...);
  }
  /// The other way; see storeBox.
  template <typename... Outer>
  TESSERA_DEVICE void store(const TensorMap &map, int column,
                            Outer... outer) const {
    TESSERA_UNROLL
    for (int box = 0; box < kBoxes; ++box)
      storeBox(map, base + box * kBoxBytes, column + box * kWidth, outer...);
  }

  /// The operand at depth `step` · 32 bytes, from row `row` on, a multiple of
  /// eight.
  TESSERA_DEVICE uint64_t kMajor(int step, int row = 0) const {
    const unsigned char *from = base + row * kSpan<S>;
    if constexpr (S == Swizzle::none) {
      return matrixDescriptor(from + 2 * step * kBoxBytes, kBoxBytes, 128, S);
    } else {
      constexpr int kSteps = kSpan<S> / 32; // in a box
      return operandKMajor<S>(from + step / kSteps * kBoxBytes, step % kSteps);
    }
  }
  /// The operand at depth `step` · 16, from column `column` on, a multiple of
  /// kWidth. Elements of 16 bits.
  TESSERA_DEVICE uint64_t mnMajor(int step, int column = 0) const {
    static_assert(sizeof(T) == 2, "only 16-bit operands may be MN-major");
    const unsigned char *from = base + column / kWidth * kBoxBytes;
    if constexpr (S == Swizzle::none)
      return matrixDescriptor(from + 256 * step, 128, kBoxBytes, S);
    else
      return operandMnMajor<S>(from, kBoxBytes, step);
  }
};

} // namespace tessera::device
