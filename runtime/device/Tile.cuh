// A tile in the registers of a block: elements, and a layout that says which of
// them a thread holds. Layouts are Micropanel (Micropanel.cuh) for one
// dimension over all threads, and Fragments, Rows and Columns (Fragments.cuh)
// for what tensor cores work on. Here is what needs no more of a layout than
// kEach, the elements that a thread holds.
#pragma once
#include "runtime/device/Math.cuh"

namespace tessera::device {

template <typename T, typename Layout> struct Tile {
  T at[Layout::kEach];
#if !defined(__CUDACC__)
  Tile() { poison(at); }
#endif
};

template <typename Layout, typename T>
TESSERA_DEVICE Tile<T, Layout> splat(T value) {
  Tile<T, Layout> result;
  TESSERA_UNROLL
  for (int r = 0; r < Layout::kEach; ++r)
    result.at[r] = value;
  return result;
}

/// What element `r` of a tile of `Layout` meets of an operand: a scalar serves
/// all elements; a slice (Fragments.cuh) those of its row or column.
template <typename Layout, typename Operand> struct Element {
  static TESSERA_DEVICE const Operand &of(const Operand &scalar, int) {
    return scalar;
  }
};
template <typename Layout, typename T> struct Element<Layout, Tile<T, Layout>> {
  static TESSERA_DEVICE T of(const Tile<T, Layout> &tile, int r) {
    return tile.at[r];
  }
};

/// f of the elements of tiles, slices and scalars.
template <typename Layout, typename F, typename... Operands>
TESSERA_DEVICE auto map(F f, const Operands &...operands) {
  Tile<decltype(f(Element<Layout, Operands>::of(operands, 0)...)), Layout>
      result;
  TESSERA_UNROLL
  for (int r = 0; r < Layout::kEach; ++r)
    result.at[r] = f(Element<Layout, Operands>::of(operands, r)...);
  return result;
}

/// A slice or a scalar, repeated over a whole tile.
template <typename Layout, typename Operand>
TESSERA_DEVICE auto spread(const Operand &operand) {
  return map<Layout>([](auto x) { return x; }, operand);
}

/// The tile in bf16, two neighbouring elements in a register.
template <typename Layout>
TESSERA_DEVICE Tile<bf16, Layout> toBf16(const Tile<float, Layout> &tile) {
  static_assert(Layout::kEach % 2 == 0, "whole pairs");
  Tile<bf16, Layout> result;
  TESSERA_UNROLL
  for (int r = 0; r < Layout::kEach; r += 2) {
    uint32_t pair = toBf16Pair(tile.at[r], tile.at[r + 1]);
    memcpy(&result.at[r], &pair, sizeof pair);
  }
  return result;
}
/// Elements r and r + 1 of such a tile.
template <typename Layout>
TESSERA_DEVICE uint32_t pairAt(const Tile<bf16, Layout> &tile, int r) {
  uint32_t pair;
  memcpy(&pair, &tile.at[r], sizeof pair);
  return pair;
}

//===--- memory -----------------------------------------------------------===//

/// The bound of a dimension of which all of the tile is there.
inline constexpr int64_t kWhole = INT64_MAX;

template <typename T, int V> struct alignas(sizeof(T) * V) Packet {
  T at[V];
};

template <int V, typename T> TESSERA_DEVICE bool isAligned(const T *address) {
  return reinterpret_cast<uintptr_t>(address) % (sizeof(T) * V) == 0;
}

/// One element, which all threads read.
template <typename T> TESSERA_DEVICE T read(const T *from) {
  checkRead(from, 1);
  return *from;
}

/// One element, which all threads know and one writes.
template <typename T> TESSERA_DEVICE void write(T value, T *to) {
  if (thread() == 0) {
    checkWrite(to, 1);
    *to = value;
  }
}

//===--- reductions -------------------------------------------------------===//

/// The first bytes of a block's dynamic shared memory are reserved for
/// exchanges between warps; a kernel's own begins after them.
inline constexpr int kScratchBytes = 4096;

struct Add {
  template <typename T> static TESSERA_DEVICE T of(T x, T y) { return x + y; }
};
struct Maximum {
  template <typename T> static TESSERA_DEVICE T of(T x, T y) {
    return maximum(x, y);
  }
};
struct Minimum {
  template <typename T> static TESSERA_DEVICE T of(T x, T y) {
    return minimum(x, y);
  }
};

} // namespace tessera::device
