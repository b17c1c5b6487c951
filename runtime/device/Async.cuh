// Asynchronous copies from global into shared memory (cp.async, sm_80), and how
// rows of shared memory are swizzled so that a column of 16-byte chunks is in
// different banks.
#pragma once
#include "runtime/device/Types.cuh"

namespace tessera::device {

#if defined(__CUDACC__)
TESSERA_DEVICE uint32_t sharedAddress(const void *shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
#endif

/// Starts a copy of 16 bytes, both sides aligned to 16: the first `valid` bytes
/// of memory, then zeros. It has landed after waitCopies has waited for the
/// group that the next commitCopies closes, and other threads see it after a
/// barrier.
TESSERA_DEVICE void copyAsync(void *shared, const void *global,
                              int valid = 16) {
#if defined(__CUDACC__)
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(sharedAddress(shared)), "l"(global), "r"(valid)
               : "memory");
#else
  machine->copyAsync(shared, global, 16, static_cast<std::size_t>(valid));
#endif
}

/// The same with all 16 bytes, which takes no operand for their number.
TESSERA_DEVICE void copyWholeAsync(void *shared, const void *global) {
#if defined(__CUDACC__)
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(sharedAddress(shared)), "l"(global)
               : "memory");
#else
  machine->copyAsync(shared, global, 16, 16);
#endif
}

TESSERA_DEVICE void commitCopies() {
#if defined(__CUDACC__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  machine->commitCopies();
#endif
}

/// Until at most `Pending` groups of this thread are in flight.
template <int Pending> TESSERA_DEVICE void waitCopies() {
#if defined(__CUDACC__)
  asm volatile("cp.async.wait_group %0;" : : "n"(Pending) : "memory");
#else
  machine->waitCopies(Pending);
#endif
}

/// Where 16-byte chunk `chunk` of row `row` lies, in chunks from the start of a
/// tile whose rows have `RowBytes` bytes. The patterns are those of TMA's
/// swizzles of 128, 64 and 32 bytes: eight rows that ldmatrix reads together
/// touch every bank once.
template <int RowBytes> TESSERA_DEVICE int swizzle(int row, int chunk) {
  static_assert(RowBytes >= 32 && RowBytes % 32 == 0, "rows of whole sectors");
  constexpr int kSpan = RowBytes % 128 == 0 ? 8 : RowBytes % 64 == 0 ? 4 : 2;
  constexpr int kRows = 8 / kSpan; // that share a pattern
  return row * (RowBytes / 16) + (chunk ^ (row / kRows % kSpan));
}

} // namespace tessera::device
