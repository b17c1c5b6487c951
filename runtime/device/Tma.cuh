// The copy engine of sm_90 (TMA): one thread issues the copy of a box of a
// tensor, or of bytes, and continues. A copy into shared memory completes its
// bytes on an mbarrier; copies to global memory are waited for in groups.
//
// A box is stored densely in shared memory, innermost dimension first, its
// 16-byte chunks permuted by the map's swizzle; it starts at a multiple of 128
// bytes, of 1024 for what wgmma reads. Coordinates are elements, innermost
// first, and may be negative. Elements outside of the tensor are zeros when
// they come in (their bytes count) and are left out when they go out.
#pragma once
#include "runtime/device/Barrier.cuh"
#include "runtime/device/TensorMap.h"

namespace tessera::device {

#if defined(__CUDACC__)
/// One instruction for each rank; for the functions below only. `before` and
/// `after` stand around the map and the coordinates; operand 0 is the map, 1
/// is shared memory, 2 the barrier, then come the coordinates.
#define TESSERA_BOX(before, after, barrier)                                    \
  uint64_t address = reinterpret_cast<uint64_t>(&map);                         \
  int c[] = {at...};                                                           \
  if constexpr (sizeof...(at) == 1)                                            \
    asm volatile(before("1d") "[%0, {%3}]" after                               \
                 :                                                             \
                 : TESSERA_BOX_OPERANDS(barrier), "r"(c[0])                    \
                 : "memory");                                                  \
  else if constexpr (sizeof...(at) == 2)                                       \
    asm volatile(before("2d") "[%0, {%3, %4}]" after                           \
                 :                                                             \
                 : TESSERA_BOX_OPERANDS(barrier), "r"(c[0]), "r"(c[1])         \
                 : "memory");                                                  \
  else if constexpr (sizeof...(at) == 3)                                       \
    asm volatile(before("3d") "[%0, {%3, %4, %5}]" after                       \
                 :                                                             \
                 : TESSERA_BOX_OPERANDS(barrier), "r"(c[0]), "r"(c[1]),        \
                   "r"(c[2])                                                   \
                 : "memory");                                                  \
  else if constexpr (sizeof...(at) == 4)                                       \
    asm volatile(before("4d") "[%0, {%3, %4, %5, %6}]" after                   \
                 :                                                             \
                 : TESSERA_BOX_OPERANDS(barrier), "r"(c[0]), "r"(c[1]),        \
                   "r"(c[2]), "r"(c[3])                                        \
                 : "memory");                                                  \
  else                                                                         \
    asm volatile(before("5d") "[%0, {%3, %4, %5, %6, %7}]" after               \
                 :                                                             \
                 : TESSERA_BOX_OPERANDS(barrier), "r"(c[0]), "r"(c[1]),        \
                   "r"(c[2]), "r"(c[3]), "r"(c[4])                             \
                 : "memory")
#define TESSERA_BOX_OPERANDS(barrier)                                          \
  "l"(address), "r"(sharedAddress(shared)), "r"(barrier)
#define TESSERA_LOAD_BOX(rank)                                                 \
  "cp.async.bulk.tensor." rank                                                 \
  ".shared::cluster.global.mbarrier::complete_tx::bytes [%1], "
#define TESSERA_STORE_BOX(rank)                                                \
  "cp.async.bulk.tensor." rank ".global.shared::cta.bulk_group "
#define TESSERA_ADD_BOX(rank)                                                  \
  "cp.reduce.async.bulk.tensor." rank ".global.shared::cta.add.bulk_group "
#endif

//===--- into shared memory -----------------------------------------------===//

/// Starts the copy of the box at coordinates `at` (1 to 5 of them) to `shared`.
/// On `barrier` it completes all bytes of the box, which arriveExpecting has
/// announced. What lay there must have been read by then.
/// cp.async.bulk.tensor
template <typename... Coordinates>
TESSERA_DEVICE void loadBox(void *shared, const TensorMap &map,
                            Barrier &barrier, Coordinates... at) {
  static_assert(sizeof...(at) >= 1 && sizeof...(at) <= 5, "rank 1 to 5");
#if defined(__CUDACC__)
  TESSERA_BOX(TESSERA_LOAD_BOX, ", [%2];", sharedAddress(&barrier));
#else
  const int32_t c[] = {static_cast<int32_t>(at)...};
  machine->loadBox(shared, map, c, sizeof...(at), &barrier);
#endif
}

/// The same for `bytes` bytes, a multiple of 16, both sides aligned to 16.
/// cp.async.bulk
TESSERA_DEVICE void loadBytes(void *shared, const void *global, int bytes,
                              Barrier &barrier) {
#if defined(__CUDACC__)
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::"
               "bytes [%0], [%1], %2, [%3];"
               :
               : "r"(sharedAddress(shared)), "l"(global), "r"(bytes),
                 "r"(sharedAddress(&barrier))
               : "memory");
#else
  machine->loadBytes(shared, global, static_cast<std::size_t>(bytes), &barrier);
#endif
}

/// Before the first copy by a map in global memory, by the thread that copies:
/// the copy engine sees what the host has written there.
/// fence.proxy.tensormap
TESSERA_DEVICE void acquireMap(const TensorMap &map) {
#if defined(__CUDACC__)
  asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;"
               :
               : "l"(&map)
               : "memory");
#else
  machine->acquireMap(map);
#endif
}

/// The copy engine reads the map now instead of at the first copy.
/// prefetch.tensormap
TESSERA_DEVICE void prefetch(const TensorMap &map) {
#if defined(__CUDACC__)
  asm volatile("prefetch.tensormap [%0];" : : "l"(&map) : "memory");
#else
  static_cast<void>(map);
#endif
}

//===--- out of shared memory ---------------------------------------------===//

// Threads that wrote `shared` must have called fenceAsync, and then a barrier,
// before these. One thread issues, commits and waits.

/// Starts the copy of a box to the tensor. cp.async.bulk.tensor
template <typename... Coordinates>
TESSERA_DEVICE void storeBox(const TensorMap &map, const void *shared,
                             Coordinates... at) {
  static_assert(sizeof...(at) >= 1 && sizeof...(at) <= 5, "rank 1 to 5");
#if defined(__CUDACC__)
  TESSERA_BOX(TESSERA_STORE_BOX, ", [%1];", 0);
#else
  const int32_t c[] = {static_cast<int32_t>(at)...};
  machine->storeBox(map, c, sizeof...(at), shared, false);
#endif
}

/// The same, adding to what is there; f32. cp.reduce.async.bulk.tensor
template <typename... Coordinates>
TESSERA_DEVICE void addBox(const TensorMap &map, const void *shared,
                           Coordinates... at) {
  static_assert(sizeof...(at) >= 1 && sizeof...(at) <= 5, "rank 1 to 5");
#if defined(__CUDACC__)
  TESSERA_BOX(TESSERA_ADD_BOX, ", [%1];", 0);
#else
  const int32_t c[] = {static_cast<int32_t>(at)...};
  machine->storeBox(map, c, sizeof...(at), shared, true);
#endif
}

/// For `bytes` bytes, a multiple of 16, both sides aligned to 16.
/// cp.async.bulk
TESSERA_DEVICE void storeBytes(void *global, const void *shared, int bytes) {
#if defined(__CUDACC__)
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               :
               : "l"(global), "r"(sharedAddress(shared)), "r"(bytes)
               : "memory");
#else
  machine->storeBytes(global, shared, static_cast<std::size_t>(bytes), false);
#endif
}

/// The same, adding. In which order several blocks add is left to chance.
/// cp.reduce.async.bulk
TESSERA_DEVICE void addBytes(float *global, const float *shared, int bytes) {
#if defined(__CUDACC__)
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 "
               "[%0], [%1], %2;"
               :
               : "l"(global), "r"(sharedAddress(shared)), "r"(bytes)
               : "memory");
#else
  machine->storeBytes(global, shared, static_cast<std::size_t>(bytes), true);
#endif
}

/// Closes a group of this thread's stores. cp.async.bulk.commit_group
TESSERA_DEVICE void commitStores() {
#if defined(__CUDACC__)
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#else
  machine->commitStores();
#endif
}

/// Until all but the last `Pending` groups have read shared memory, which may
/// be overwritten then. A thread must not end before that.
/// cp.async.bulk.wait_group.read
template <int Pending> TESSERA_DEVICE void waitStoresRead() {
#if defined(__CUDACC__)
  asm volatile("cp.async.bulk.wait_group.read %0;" : : "n"(Pending) : "memory");
#else
  machine->waitStores(Pending, true);
#endif
}

/// Until they are in memory. cp.async.bulk.wait_group
template <int Pending> TESSERA_DEVICE void waitStores() {
#if defined(__CUDACC__)
  asm volatile("cp.async.bulk.wait_group %0;" : : "n"(Pending) : "memory");
#else
  machine->waitStores(Pending, false);
#endif
}

#if defined(__CUDACC__)
#undef TESSERA_BOX
#undef TESSERA_BOX_OPERANDS
#undef TESSERA_LOAD_BOX
#undef TESSERA_STORE_BOX
#undef TESSERA_ADD_BOX
#endif

} // namespace tessera::device
