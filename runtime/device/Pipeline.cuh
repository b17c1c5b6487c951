// A ring of stages in shared memory: a producer thread issues copies of boxes
// of tensors into stages, and consumer warpgroups multiply and then release
// them.
#pragma once
#include "runtime/device/WarpgroupMultiply.cuh"

namespace tessera::device {

/// The state of one side of a ring, in registers. A producer calls acquire,
/// `bring` for all parts of the stage, acquire, …; consumers await,
/// multiplyAsync, release, await, …
template <int Stages, int Consumers> struct Pipeline {
  static constexpr int kBytes = 2 * Stages * static_cast<int>(sizeof(Barrier));

  Barrier *barriers; ///< full ones, then empty ones
  Ring<Stages> next = {};
  int taken = -1, held = -1; ///< the last stage awaited, and the one before

  TESSERA_DEVICE explicit Pipeline(unsigned char *shared)
      : barriers(reinterpret_cast<Barrier *>(shared)) {}

  /// Called by all threads of the block, before warps specialize.
  TESSERA_DEVICE void make() const {
    if (thread() == 0) {
      TESSERA_UNROLL
      for (int stage = 0; stage < Stages; ++stage) {
        initBarrier(full(stage), 1);
        initBarrier(empty(stage), 4 * Consumers); // their warps
      }
      fenceBarriers();
    }
    sync();
  }

  TESSERA_DEVICE Barrier &full(int stage) const { return barriers[stage]; }
  TESSERA_DEVICE Barrier &empty(int stage) const {
    return barriers[Stages + stage];
  }

  /// The next stage, once it is empty; it is full when `bytes` have landed.
  TESSERA_DEVICE int acquire(int bytes) {
    int stage = next.stage;
    tessera::device::await(empty(stage), next.parity ^ 1);
    arriveExpecting(full(stage), bytes);
    next.advance();
    return stage;
  }

  /// The next stage, once it is full.
  TESSERA_DEVICE int await() {
    taken = next.stage;
    tessera::device::await(full(taken), next.parity);
    next.advance();
    return taken;
  }

  /// Called after the matmul of the last stage was started: once no other is in
  /// flight, releases the stage before.
  TESSERA_DEVICE void release() {
    wgmmaWait<1>();
    if (held >= 0 && lane() == 0)
      arrive(empty(held));
    held = taken;
  }
  /// Called between the start of a matmul on the last stage and the wait for
  /// it: the code before this call overlaps with the matmul. The stage is full
  /// already, so this does not wait; but ptxas, which would otherwise move that
  /// code after the matmul, moves nothing across the branch.
  TESSERA_DEVICE void meanwhile() const {
    tessera::device::await(full(taken), next.parity ^ (next.stage == 0));
  }

  /// Releases the last stage and one that is still held, after all matmuls that
  /// read them have completed.
  TESSERA_DEVICE void releaseLast() {
    if (lane() == 0) {
      if (held >= 0)
        arrive(empty(held));
      arrive(empty(taken));
    }
    held = -1;
  }
};

/// Ping-pong order of consumer warpgroups: while one multiplies, the others
/// compute. Each passes the turn to the next, the last to the first; all take
/// and pass it equally often. Uses named barriers from 2 on.
template <int Consumers> struct Turns {
  static constexpr int kFirst = 2, kThreads = 2 * 128;
  static_assert(Consumers > 1, "ping-pong needs two consumers");

  /// Called before the first turn and after the last one.
  TESSERA_DEVICE static void begin() {
    if (warpgroup() == Consumers - 1)
      arrive(kFirst, kThreads);
  }
  TESSERA_DEVICE static void end() {
    if (warpgroup() == 0)
      sync(kFirst, kThreads);
  }
  TESSERA_DEVICE static void take() { sync(kFirst + warpgroup(), kThreads); }
  TESSERA_DEVICE static void pass() {
    arrive(kFirst + (warpgroup() + 1) % Consumers, kThreads);
  }
};

/// Issues the copies that fill a stage, from column `column` and the further
/// coordinates, rows first. The map's boxes are its rows × one span of its
/// swizzle.
template <typename T, int Rows, int Columns, typename... Outer>
TESSERA_DEVICE void bring(SharedTile<T, Rows, Columns> to, const TensorMap &map,
                          Barrier &full, int64_t column, Outer... outer) {
  BoxTile<T, Rows, Columns>{to.base}.load(map, full, static_cast<int>(column),
                                          static_cast<int>(outer)...);
}

} // namespace tessera::device
