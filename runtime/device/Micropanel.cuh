// A one-dimensional tile over all threads of a block: what row, column and
// elementwise kernels work on.
//
// Thread t holds elements (g · Threads + t) · V + v for g = 0, 1, … and
// v = 0 … V − 1, so that neighbouring threads read neighbouring memory, V
// elements in one access.
#pragma once
#include "runtime/device/Tile.cuh"

namespace tessera::device {

constexpr int vectorOf(int each, int size) {
  return each % 4 == 0 && size % 4 == 0   ? 4
         : each % 2 == 0 && size % 2 == 0 ? 2
                                          : 1;
}

template <int N, int Threads> struct Micropanel {
  static constexpr int kElements = N;
  static constexpr int kThreads = Threads;
  static constexpr int kEach = (N + Threads - 1) / Threads;
  static constexpr int kVector = vectorOf(kEach, N);

  /// Whether every thread has as many.
  static constexpr bool kIsWhole = N == kEach * Threads;

  /// The element that register `r` of this thread is.
  static TESSERA_DEVICE int index(int r) {
    return (r / kVector * Threads + thread()) * kVector + r % kVector;
  }
  /// Whether that is one of the N.
  static TESSERA_DEVICE bool holds(int r) { return kIsWhole || index(r) < N; }
};

template <typename Layout>
concept IsMicropanel = requires { Layout::kVector; };

//===--- making -----------------------------------------------------------===//

/// start, start + 1, …
template <IsMicropanel Layout>
TESSERA_DEVICE Tile<int32_t, Layout> iota(int64_t start) {
  Tile<int32_t, Layout> result;
  TESSERA_UNROLL
  for (int r = 0; r < Layout::kEach; ++r)
    result.at[r] = static_cast<int32_t>(start + Layout::index(r));
  return result;
}

/// Element i of a table in the kernel's code.
template <IsMicropanel Layout, typename T, int N>
TESSERA_DEVICE Tile<T, Layout> fromTable(const T (&table)[N]) {
  Tile<T, Layout> result;
  TESSERA_UNROLL
  for (int r = 0; r < Layout::kEach; ++r)
    result.at[r] = Layout::holds(r) ? table[Layout::index(r)] : T{};
  return result;
}

//===--- memory -----------------------------------------------------------===//

/// A whole tile, V elements in an access, without a branch between accesses.
template <IsMicropanel Layout, typename T>
TESSERA_DEVICE void loadWhole(const T *from, Tile<T, Layout> &result) {
  constexpr int V = Layout::kVector;
  TESSERA_UNROLL
  for (int r = 0; r < Layout::kEach; r += V) {
    const T *address = from + Layout::index(r);
    checkRead(address, V);
    auto packet = *reinterpret_cast<const Packet<T, V> *>(address);
    TESSERA_UNROLL
    for (int v = 0; v < V; ++v)
      result.at[r + v] = packet.at[v];
  }
}

/// Elements from, from + stride, …; zeros from number `bound` on, which are
/// not touched.
template <IsMicropanel Layout, typename T>
TESSERA_DEVICE auto load(const T *from, int64_t stride = 1,
                         int64_t bound = Layout::kElements) {
  Tile<T, Layout> result;
  constexpr int V = Layout::kVector;
  [[maybe_unused]] bool packed = stride == 1 && (V == 1 || isAligned<V>(from));
  if constexpr (Layout::kEach > V &&
                Layout::kElements == Layout::kEach * Layout::kThreads)
    if (packed && bound >= Layout::kElements) {
      loadWhole<Layout>(from, result);
      return result;
    }
  TESSERA_UNROLL
  for (int r = 0; r < Layout::kEach; r += V) {
    int first = Layout::index(r);
    int64_t end = bound < Layout::kElements ? bound : Layout::kElements;
    if constexpr (V > 1) // or there would be two paths for one element
      if (packed && first + V <= end) {
        checkRead(from + first, V);
        auto packet = *reinterpret_cast<const Packet<T, V> *>(from + first);
        TESSERA_UNROLL
        for (int v = 0; v < V; ++v)
          result.at[r + v] = packet.at[v];
        continue;
      }
    TESSERA_UNROLL
    for (int v = 0; v < V; ++v) {
      result.at[r + v] = T{};
      if (first + v < end) {
        const T *address = from + (first + v) * stride;
        checkRead(address, 1);
        result.at[r + v] = *address;
      }
    }
  }
  return result;
}

/// The same of memory that begins at a multiple of V elements, as the planner
/// has proven, without a test of it. Elements beyond the tile's are zeros.
template <IsMicropanel Layout, typename T>
TESSERA_DEVICE auto loadAligned(const T *from) {
  Tile<T, Layout> result;
  constexpr int V = Layout::kVector;
  static_assert(V * sizeof(T) <= 16, "one access");
  if constexpr (Layout::kIsWhole) {
    loadWhole<Layout>(from, result);
    return result;
  }
  TESSERA_UNROLL
  for (int r = 0; r < Layout::kEach; r += V) {
    Packet<T, V> packet{};
    if (Layout::holds(r)) {
      checkRead(from + Layout::index(r), V);
      packet = *reinterpret_cast<const Packet<T, V> *>(from + Layout::index(r));
    }
    TESSERA_UNROLL
    for (int v = 0; v < V; ++v)
      result.at[r + v] = packet.at[v];
  }
  return result;
}

template <typename T, int N, int Threads>
TESSERA_DEVICE void store(const Tile<T, Micropanel<N, Threads>> &micropanel,
                          T *to, int64_t stride = 1, int64_t bound = N) {
  using Layout = Micropanel<N, Threads>;
  constexpr int V = Layout::kVector;
  [[maybe_unused]] bool packed = stride == 1 && isAligned<V>(to);
  TESSERA_UNROLL
  for (int r = 0; r < Layout::kEach; r += V) {
    int first = Layout::index(r);
    int64_t end = bound < N ? bound : N;
    if constexpr (V > 1)
      if (packed && first + V <= end) {
        checkWrite(to + first, V);
        Packet<T, V> packet;
        TESSERA_UNROLL
        for (int v = 0; v < V; ++v)
          packet.at[v] = micropanel.at[r + v];
        *reinterpret_cast<Packet<T, V> *>(to + first) = packet;
        continue;
      }
    TESSERA_UNROLL
    for (int v = 0; v < V; ++v)
      if (first + v < end) {
        T *address = to + (first + v) * stride;
        checkWrite(address, 1);
        *address = micropanel.at[r + v];
      }
  }
}

/// All of a tile to memory as loadAligned reads it.
template <typename T, int N, int Threads>
TESSERA_DEVICE void
storeAligned(const Tile<T, Micropanel<N, Threads>> &micropanel, T *to) {
  using Layout = Micropanel<N, Threads>;
  constexpr int V = Layout::kVector;
  static_assert(V * sizeof(T) <= 16, "one access");
  TESSERA_UNROLL
  for (int r = 0; r < Layout::kEach; r += V) {
    if (!Layout::holds(r))
      continue;
    T *address = to + Layout::index(r);
    checkWrite(address, V);
    Packet<T, V> packet;
    TESSERA_UNROLL
    for (int v = 0; v < V; ++v)
      packet.at[v] = micropanel.at[r + v];
    *reinterpret_cast<Packet<T, V> *>(address) = packet;
  }
}

//===--- across threads ---------------------------------------------------===//

/// What a thread has of a reduction: `count` elements in `value`.
template <typename T> struct Partial {
  T value;
  int count;
};
#if defined(__CUDACC__)
template <typename T>
TESSERA_DEVICE Partial<T> shuffleXor(Partial<T> partial, int mask) {
  return {shuffleXor(partial.value, mask), shuffleXor(partial.count, mask)};
}
#endif

/// All N elements in one, in a fixed order; every thread gets it. The first
/// warp always has one.
template <typename Combine, typename T, int N, int Threads>
TESSERA_DEVICE T reduce(const Tile<T, Micropanel<N, Threads>> &micropanel) {
  using Layout = Micropanel<N, Threads>;
  constexpr int kWarps = Threads / 32;
  T *ofWarps = reinterpret_cast<T *>(sharedMemory());
  [[maybe_unused]] int *present =
      reinterpret_cast<int *>(sharedMemory() + kScratchBytes / 2);
  // Whether every thread has an element, so that none need be counted.
  constexpr bool kIsFull = N >= Threads * Layout::kVector;
  Partial<T> mine{};
  TESSERA_UNROLL
  for (int r = 0; r < Layout::kEach; ++r)
    if (Layout::holds(r))
      mine.value = mine.count++ ? Combine::of(mine.value, micropanel.at[r])
                                : micropanel.at[r];
  Partial<T> ofWarp = mine;
  if constexpr (kIsFull)
    ofWarp.value = butterfly<16, 1>(mine.value,
                                    [](T x, T y) { return Combine::of(x, y); });
  else
    ofWarp = butterfly<16, 1>(mine, [](Partial<T> x, Partial<T> y) {
      if (y.count)
        x.value = x.count ? Combine::of(x.value, y.value) : y.value;
      x.count += y.count;
      return x;
    });
  if (kWarps == 1)
    return ofWarp.value;
  sync(); // the last use of the scratch is over
  if (lane() == 0) {
    checkWrite(ofWarps + warp(), 1);
    ofWarps[warp()] = ofWarp.value;
    if constexpr (!kIsFull) {
      checkWrite(present + warp(), 1);
      present[warp()] = ofWarp.count;
    }
  }
  sync();
  checkShared(ofWarps, kWarps);
  if constexpr (!kIsFull)
    checkShared(present, kWarps);
  T value = ofWarps[0];
  TESSERA_UNROLL
  for (int w = 1; w < kWarps; ++w)
    if (kIsFull || present[w])
      value = Combine::of(value, ofWarps[w]);
  return value;
}

/// even[0], odd[0], even[1], odd[1], …, by way of the scratch.
template <typename T, int N, int Threads>
TESSERA_DEVICE Tile<T, Micropanel<2 * N, Threads>>
interleave(const Tile<T, Micropanel<N, Threads>> &even,
           const Tile<T, Micropanel<N, Threads>> &odd) {
  using From = Micropanel<N, Threads>;
  using To = Micropanel<2 * N, Threads>;
  Tile<T, To> result;
  // Where the registers fit, a thread has what it needs.
  if constexpr (To::kEach == 2 * From::kEach &&
                To::kVector == 2 * From::kVector) {
    TESSERA_UNROLL
    for (int r = 0; r < From::kEach; ++r) {
      result.at[2 * r] = even.at[r];
      result.at[2 * r + 1] = odd.at[r];
    }
    return result;
  }
  static_assert(2 * N * sizeof(T) <= kScratchBytes, "tile too long");
  T *all = reinterpret_cast<T *>(sharedMemory());
  sync();
  TESSERA_UNROLL
  for (int r = 0; r < From::kEach; ++r)
    if (From::holds(r)) {
      checkWrite(all + 2 * From::index(r), 2);
      all[2 * From::index(r)] = even.at[r];
      all[2 * From::index(r) + 1] = odd.at[r];
    }
  sync();
  TESSERA_UNROLL
  for (int r = 0; r < To::kEach; ++r)
    if (To::holds(r)) {
      checkShared(all + To::index(r), 1);
      result.at[r] = all[To::index(r)];
    }
  return result;
}

} // namespace tessera::device
