// The one difference between a kernel on a GPU and the same text on the host:
// what this header makes of threads, barriers, shuffles and memory. Everything
// above it is written once.
#pragma once
#include <stdint.h>

#if defined(__CUDACC__)

#define TESSERA_DEVICE __device__ __forceinline__
#define TESSERA_UNROLL _Pragma("unroll")
#define TESSERA_PRAGMA(text) _Pragma(#text)
#define TESSERA_UNROLL_BY(n) TESSERA_PRAGMA(unroll n)

namespace tessera::device {

extern __shared__ __align__(1024) unsigned char sharedBytes[];

TESSERA_DEVICE int thread() { return static_cast<int>(threadIdx.x); }
TESSERA_DEVICE int lane() { return static_cast<int>(threadIdx.x % 32); }
TESSERA_DEVICE int warp() { return static_cast<int>(threadIdx.x / 32); }
TESSERA_DEVICE int64_t blockNumber() { return blockIdx.x; }
TESSERA_DEVICE unsigned char *sharedMemory() { return sharedBytes; }

/// Barrier for the whole block; shared memory written before is visible after.
TESSERA_DEVICE void sync() { __syncthreads(); }
/// The value that lane `lane ^ mask` of this warp has.
template <typename T> TESSERA_DEVICE T shuffleXor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}

/// `value` combined with that of lane ^ mask, for each mask from First to Last,
/// doubled or halved.
template <int First, int Last, typename T, typename Combine>
TESSERA_DEVICE T butterfly(T value, Combine combine) {
  value = combine(value, shuffleXor(value, First));
  if constexpr (First == Last)
    return value;
  else
    return butterfly<(First < Last ? First * 2 : First / 2), Last>(value,
                                                                   combine);
}

/// Checks of the emulated GPU; nothing here.
template <typename T> TESSERA_DEVICE void checkRead(const T *, int) {}
template <typename T> TESSERA_DEVICE void checkWrite(T *, int) {}
template <typename T> TESSERA_DEVICE void checkShared(const T *, int) {}
template <typename T> TESSERA_DEVICE void poison(T &) {}

} // namespace tessera::device

#else

#include "runtime/device/emulated/Machine.h"
#include <string.h>

// Those that the device library calls: <cmath> takes longer to compile than
// all of it.
extern "C" {
#define TESSERA_HOST_FUNCTION(name)                                            \
  double name(double) noexcept;                                                \
  float name##f(float) noexcept;
TESSERA_HOST_FUNCTION(exp)
TESSERA_HOST_FUNCTION(exp2)
TESSERA_HOST_FUNCTION(expm1)
TESSERA_HOST_FUNCTION(log)
TESSERA_HOST_FUNCTION(log2)
TESSERA_HOST_FUNCTION(log10)
TESSERA_HOST_FUNCTION(log1p)
TESSERA_HOST_FUNCTION(tanh)
TESSERA_HOST_FUNCTION(erf)
TESSERA_HOST_FUNCTION(sin)
TESSERA_HOST_FUNCTION(cos)
TESSERA_HOST_FUNCTION(sqrt)
TESSERA_HOST_FUNCTION(fabs)
TESSERA_HOST_FUNCTION(floor)
TESSERA_HOST_FUNCTION(ceil)
TESSERA_HOST_FUNCTION(trunc)
TESSERA_HOST_FUNCTION(rint)
#undef TESSERA_HOST_FUNCTION
double pow(double, double) noexcept;
float powf(float, float) noexcept;
double fma(double, double, double) noexcept;
float fmaf(float, float, float) noexcept;
float ldexpf(float, int) noexcept;
}

#define TESSERA_DEVICE inline
#define TESSERA_UNROLL
#define TESSERA_UNROLL_BY(n)
#define __global__
#define __launch_bounds__(...)
#define __grid_constant__
#define __restrict__

namespace tessera::device {

/// Set when a kernel is entered; all its threads share one machine. Hidden: a
/// symbol that all libraries share would keep this one loaded for ever.
[[gnu::visibility("hidden")]] inline thread_local Machine *machine = nullptr;

inline int thread() { return static_cast<int>(machine->threadIndex.x); }
inline int lane() { return thread() % 32; }
inline int warp() { return thread() / 32; }
inline int64_t blockNumber() { return machine->blockIndex.x; }
inline unsigned char *sharedMemory() {
  return reinterpret_cast<unsigned char *>(machine->shared);
}

inline void sync(std::source_location at = std::source_location::current()) {
  machine->barrier(0, machine->blockSize.x, Site::of(at));
}

template <typename T> T shuffleXor(T value, int mask) {
  const std::byte *lanes =
      machine->exchange(~0u, &value, sizeof(T), "a shuffle");
  memcpy(&value, lanes + (lane() ^ mask) * sizeof(T), sizeof(T));
  return value;
}

// What lane has after the steps up to mask Last, from what all lanes had.
template <int First, int Last, typename T, typename Combine>
T afterButterfly(const T *lanes, int lane, Combine combine) {
  if constexpr (First == Last) {
    return combine(lanes[lane], lanes[lane ^ Last]);
  } else {
    constexpr int kBefore = First < Last ? Last / 2 : Last * 2;
    return combine(afterButterfly<First, kBefore>(lanes, lane, combine),
                   afterButterfly<First, kBefore>(lanes, lane ^ Last, combine));
  }
}
/// The same combinations, but one exchange: switching threads is slow.
template <int First, int Last, typename T, typename Combine>
T butterfly(T value, Combine combine) {
  T lanes[32];
  memcpy(static_cast<void *>(lanes),
         machine->exchange(~0u, &value, sizeof(T), "a butterfly"),
         sizeof lanes);
  return afterButterfly<First, Last>(lanes, lane(), combine);
}

/// What is not written yet is NaN.
template <typename T> void poison(T &registers) {
  memset(static_cast<void *>(&registers), 0xff, sizeof registers);
}

inline bool isShared(const void *address) {
  auto at = reinterpret_cast<uintptr_t>(address),
       base = reinterpret_cast<uintptr_t>(machine->shared);
  return at - base < machine->sharedBytes;
}
/// Of `count` elements that are read.
template <typename T> void checkShared(const T *address, int count) {
  machine->checkShared(address, count * sizeof(T), alignof(T));
}
/// `count` elements from `address` on, in one access where count > 1.
template <typename T> void checkRead(const T *address, int count) {
  if (isShared(address))
    return checkShared(address, count);
  machine->checkGlobal(address, count * sizeof(T), count * sizeof(T),
                       Access::read);
}
template <typename T> void checkWrite(T *address, int count) {
  if (isShared(address))
    return machine->writeShared(address, count * sizeof(T), alignof(T));
  machine->checkGlobal(address, count * sizeof(T), count * sizeof(T),
                       Access::write);
}

} // namespace tessera::device

#endif
