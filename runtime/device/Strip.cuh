// A one-dimensional tile over all threads of a block: what row, column and
// elementwise kernels work on.
//
// Thread t holds elements (g · Threads + t) · V + v for g = 0, 1, … and
// v = 0 … V − 1, so that neighbouring threads read neighbouring memory, V
// elements in one access.
#pragma once
#include "runtime/device/Math.cuh"

namespace tessera::device {

constexpr int vectorOf(int each, int size) {
  return each % 4 == 0 && size % 4 == 0   ? 4
         : each % 2 == 0 && size % 2 == 0 ? 2
                                          : 1;
}

template <typename T, int N, int Threads> struct Strip {
  static constexpr int kEach = (N + Threads - 1) / Threads;
  static constexpr int kVector = vectorOf(kEach, N);

  T at[kEach];

  /// The element that register `r` of this thread is.
  static TESSERA_DEVICE int index(int r) {
    return (r / kVector * Threads + thread()) * kVector + r % kVector;
  }
  /// Whether that is one of the N.
  static TESSERA_DEVICE bool holds(int r) {
    return N == kEach * Threads || index(r) < N;
  }
};

//===--- making -----------------------------------------------------------===//

template <int N, int Threads, typename T>
TESSERA_DEVICE Strip<T, N, Threads> splat(T value) {
  Strip<T, N, Threads> result;
  TESSERA_UNROLL
  for (int r = 0; r < result.kEach; ++r)
    result.at[r] = value;
  return result;
}

/// start, start + 1, …
template <int N, int Threads>
TESSERA_DEVICE Strip<int32_t, N, Threads> iota(int64_t start) {
  Strip<int32_t, N, Threads> result;
  TESSERA_UNROLL
  for (int r = 0; r < result.kEach; ++r)
    result.at[r] = static_cast<int32_t>(start + result.index(r));
  return result;
}

/// Element i of a table in the kernel's code.
template <int N, int Threads, typename T>
TESSERA_DEVICE Strip<T, N, Threads> fromTable(const T (&table)[N]) {
  Strip<T, N, Threads> result;
  TESSERA_UNROLL
  for (int r = 0; r < result.kEach; ++r)
    result.at[r] = result.holds(r) ? table[result.index(r)] : T{};
  return result;
}

/// f of the elements of one tile, of two, of three; scalars serve all.
template <typename T> struct Element {
  static TESSERA_DEVICE T of(const T &scalar, int) { return scalar; }
};
template <typename T, int N, int Threads> struct Element<Strip<T, N, Threads>> {
  static TESSERA_DEVICE T of(const Strip<T, N, Threads> &strip, int r) {
    return strip.at[r];
  }
};

template <int N, int Threads, typename F, typename... Operands>
TESSERA_DEVICE auto map(F f, const Operands &...operands) {
  Strip<decltype(f(Element<Operands>::of(operands, 0)...)), N, Threads> result;
  TESSERA_UNROLL
  for (int r = 0; r < result.kEach; ++r)
    result.at[r] = f(Element<Operands>::of(operands, r)...);
  return result;
}

//===--- memory -----------------------------------------------------------===//

template <typename T, int V> struct alignas(sizeof(T) * V) Packet {
  T at[V];
};

template <int V, typename T> TESSERA_DEVICE bool isAligned(const T *address) {
  return reinterpret_cast<uintptr_t>(address) % (sizeof(T) * V) == 0;
}

/// Elements from, from + stride, …; zeros from number `bound` on, which are
/// not touched.
template <int N, int Threads, typename T>
TESSERA_DEVICE auto load(const T *from, int64_t stride = 1, int64_t bound = N) {
  Strip<T, N, Threads> result;
  constexpr int V = result.kVector;
  bool packed = stride == 1 && isAligned<V>(from);
  TESSERA_UNROLL
  for (int r = 0; r < result.kEach; r += V) {
    int first = result.index(r);
    int64_t end = bound < N ? bound : N;
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

template <typename T, int N, int Threads>
TESSERA_DEVICE void store(const Strip<T, N, Threads> &strip, T *to,
                          int64_t stride = 1, int64_t bound = N) {
  constexpr int V = strip.kVector;
  bool packed = stride == 1 && isAligned<V>(to);
  TESSERA_UNROLL
  for (int r = 0; r < strip.kEach; r += V) {
    int first = strip.index(r);
    int64_t end = bound < N ? bound : N;
    if (packed && first + V <= end) {
      checkWrite(to + first, V);
      Packet<T, V> packet;
      TESSERA_UNROLL
      for (int v = 0; v < V; ++v)
        packet.at[v] = strip.at[r + v];
      *reinterpret_cast<Packet<T, V> *>(to + first) = packet;
      continue;
    }
    TESSERA_UNROLL
    for (int v = 0; v < V; ++v)
      if (first + v < end) {
        T *address = to + (first + v) * stride;
        checkWrite(address, 1);
        *address = strip.at[r + v];
      }
  }
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

//===--- across threads ---------------------------------------------------===//

/// Of the block's dynamic shared memory the first bytes are for the functions
/// below; a kernel's own begins behind them.
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

/// All N elements in one, in a fixed order; every thread gets it. The first
/// warp always has one.
template <typename Combine, typename T, int N, int Threads>
TESSERA_DEVICE T reduce(const Strip<T, N, Threads> &strip) {
  constexpr int kWarps = Threads / 32;
  T *ofWarps = reinterpret_cast<T *>(sharedMemory());
  int *present = reinterpret_cast<int *>(sharedMemory() + kScratchBytes / 2);
  T value{};
  int count = 0; // elements in `value`
  TESSERA_UNROLL
  for (int r = 0; r < strip.kEach; ++r)
    if (strip.holds(r))
      value = count++ ? Combine::of(value, strip.at[r]) : strip.at[r];
  TESSERA_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) {
    T other = shuffleXor(value, mask);
    int others = shuffleXor(count, mask);
    if (others)
      value = count ? Combine::of(value, other) : other;
    count += others;
  }
  if (kWarps == 1)
    return value;
  sync(); // the last use of the scratch is over
  if (lane() == 0) {
    checkShared(ofWarps + warp(), 1);
    checkShared(present + warp(), 1);
    ofWarps[warp()] = value;
    present[warp()] = count;
  }
  sync();
  value = ofWarps[0];
  TESSERA_UNROLL
  for (int w = 1; w < kWarps; ++w)
    if (present[w])
      value = Combine::of(value, ofWarps[w]);
  return value;
}

/// even[0], odd[0], even[1], odd[1], …, by way of the scratch.
template <typename T, int N, int Threads>
TESSERA_DEVICE Strip<T, 2 * N, Threads>
interleave(const Strip<T, N, Threads> &even, const Strip<T, N, Threads> &odd) {
  using Result = Strip<T, 2 * N, Threads>;
  Result result;
  // Where the registers fit, a thread has what it needs.
  if constexpr (Result::kEach == 2 * even.kEach &&
                Result::kVector == 2 * even.kVector) {
    TESSERA_UNROLL
    for (int r = 0; r < even.kEach; ++r) {
      result.at[2 * r] = even.at[r];
      result.at[2 * r + 1] = odd.at[r];
    }
    return result;
  }
  static_assert(2 * N * sizeof(T) <= kScratchBytes, "tile too long");
  T *all = reinterpret_cast<T *>(sharedMemory());
  sync();
  TESSERA_UNROLL
  for (int r = 0; r < even.kEach; ++r)
    if (even.holds(r)) {
      checkShared(all + 2 * even.index(r), 2);
      all[2 * even.index(r)] = even.at[r];
      all[2 * even.index(r) + 1] = odd.at[r];
    }
  sync();
  TESSERA_UNROLL
  for (int r = 0; r < result.kEach; ++r)
    if (result.holds(r)) {
      checkShared(all + result.index(r), 1);
      result.at[r] = all[result.index(r)];
    }
  return result;
}

} // namespace tessera::device
