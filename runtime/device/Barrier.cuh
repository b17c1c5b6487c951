// What threads of sm_90 wait for: mbarriers, on which copies complete bytes;
// named barriers of a few warps; and what belongs to kernels whose warpgroups
// have different roles.
//
// An mbarrier goes through phases, 0, 1, 2, …. A phase ends when as many
// arrivals have come as the barrier was made for and all bytes that were
// expected have landed. `await` with the parity of a phase returns once that
// phase has ended; asked for the parity of the phase before the first one, 1,
// it returns at once.
#pragma once
#include "runtime/device/Async.cuh"

namespace tessera::device {

/// Eight bytes of shared memory that only these functions touch.
struct alignas(8) Barrier {
  uint64_t state;
};

//===--- mbarriers --------------------------------------------------------===//

/// Makes a barrier for `arrivals` arrivals a phase; by one thread.
/// mbarrier.init
TESSERA_DEVICE void initBarrier(Barrier &barrier, int arrivals) {
#if defined(__CUDACC__)
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
               :
               : "r"(sharedAddress(&barrier)), "r"(arrivals)
               : "memory");
#else
  machine->initBarrier(&barrier, static_cast<unsigned>(arrivals));
#endif
}

/// Called by the thread that initialized mbarriers, after the last one: makes
/// them visible to the copy engine. Other threads see them after a barrier of
/// the block. fence.mbarrier_init
TESSERA_DEVICE void fenceBarriers() {
#if defined(__CUDACC__)
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
  machine->fenceBarriers();
#endif
}

/// mbarrier.arrive
TESSERA_DEVICE void arrive(Barrier &barrier) {
#if defined(__CUDACC__)
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
               :
               : "r"(sharedAddress(&barrier))
               : "memory");
#else
  machine->arriveBarrier(&barrier, 0);
#endif
}

/// One arrival; the phase ends no earlier than `bytes` further bytes have
/// landed. Comes before the copies that bring them. mbarrier.arrive.expect_tx
TESSERA_DEVICE void arriveExpecting(Barrier &barrier, int bytes) {
#if defined(__CUDACC__)
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :
               : "r"(sharedAddress(&barrier)), "r"(bytes)
               : "memory");
#else
  machine->arriveBarrier(&barrier, static_cast<uint32_t>(bytes));
#endif
}

/// Waits for the end of the phase of that parity. What arrived before is
/// visible then, and so is what landed. mbarrier.try_wait.parity
TESSERA_DEVICE void await(Barrier &barrier, int parity) {
#if defined(__CUDACC__)
  asm volatile("{\n"
               ".reg .pred ended;\n"
               "again:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
               "@!ended bra again;\n"
               "}"
               :
               : "r"(sharedAddress(&barrier)), "r"(parity)
               : "memory");
#else
  machine->waitBarrier(&barrier, static_cast<unsigned>(parity));
#endif
}

/// Which of `Count` stages is next, and the parity of its phase. A consumer
/// waits for full[stage] with `parity`; the producer, which is one round ahead,
/// for empty[stage] with `parity ^ 1`.
template <int Count> struct Ring {
  int stage = 0, parity = 0;

  TESSERA_DEVICE void advance() {
    if (++stage == Count) {
      stage = 0;
      parity ^= 1;
    }
  }
};

//===--- named barriers ---------------------------------------------------===//

/// Waits until `threads` threads, whole warps, have come to barrier `id`, 1 to
/// 15 (0 is `sync()`). bar.sync
#if defined(__CUDACC__)
TESSERA_DEVICE void sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(threads) : "memory");
}
#else
inline void sync(int id, int threads,
                 std::source_location at = std::source_location::current()) {
  machine->barrier(static_cast<unsigned>(id), static_cast<unsigned>(threads),
                   Site::of(at));
}
#endif

/// Counts among these threads and goes on. bar.arrive
#if defined(__CUDACC__)
TESSERA_DEVICE void arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" : : "r"(id), "r"(threads) : "memory");
}
#else
inline void arrive(int id, int threads,
                   std::source_location at = std::source_location::current()) {
  machine->arrive(static_cast<unsigned>(id), static_cast<unsigned>(threads),
                  Site::of(at));
}
#endif

//===--- roles ------------------------------------------------------------===//

/// Four warps, 128 threads. The same number in all lanes of a warp, which must
/// all ask; the compiler knows that they agree.
TESSERA_DEVICE int warpgroup() {
#if defined(__CUDACC__)
  return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 128), 0);
#else
  return thread() / 128;
#endif
}

/// True for one lane of the warp, always the same one; all lanes ask.
/// elect.sync
TESSERA_DEVICE bool electLane() {
#if defined(__CUDACC__)
  uint32_t elected;
  asm volatile("{\n"
               ".reg .pred mine;\n"
               "elect.sync _|mine, 0xffffffff;\n"
               "selp.u32 %0, 1, 0, mine;\n"
               "}"
               : "=r"(elected));
  return elected != 0;
#else
  return machine->elect();
#endif
}

/// Gives registers back, or takes those that others gave: `Count` for each
/// thread from here on, a multiple of 8 from 24 to 256. By all warps of a
/// warpgroup; in a kernel made with TESSERA_ALONE, whose threads begin with
/// 65536 / threads, rounded down to a multiple of 8. setmaxnreg
template <int Count> TESSERA_DEVICE void releaseRegisters() {
#if defined(__CUDACC__)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(Count));
#else
  machine->setRegisters(Count, false);
#endif
}
template <int Count> TESSERA_DEVICE void acquireRegisters() {
#if defined(__CUDACC__)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(Count));
#else
  machine->setRegisters(Count, true);
#endif
}

/// What this thread has written to shared memory by ordinary stores (stmatrix
/// and cp.async too) may be read by bulk stores and wgmma; by those of other
/// threads, after a barrier. fence.proxy.async
TESSERA_DEVICE void fenceAsync() {
#if defined(__CUDACC__)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#else
  machine->fenceAsync();
#endif
}

} // namespace tessera::device
