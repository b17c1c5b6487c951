// Kernels made of the library for sm_90a. The emulated GPU runs them, right and
// with a planted defect; nvcc compiles them for the gates.
#pragma once
#include "runtime/device/Device.cuh"
#include "runtime/device/Hopper.cuh"

namespace tessera::device {

/// What `pipelined` below does wrong.
enum class Defect {
  none,
  noFullWait,       // multiplies a stage that may not have landed
  wrongFullParity,  // waits for the phase before
  noExpectedBytes,  // the phase ends with the arrival
  tooFewBytes,      // the phase ends before the last copy has landed
  tooManyBytes,     // the phase never ends
  noEmptyWait,      // fills a stage that is in use
  wrongEmptyParity, // waits for a stage that was never in use
  releasedTooEarly, // gives a stage back while wgmma reads it
  tooManyArrivals,  // all lanes give a stage back
  noBarrierFence,   // the copy engine has not seen the barriers
  noBarrierSync,    // other threads have not
  otherSwizzle,     // describes a stage as swizzled otherwise
  wrongStride,      // between groups of eight rows
  wrongLeading,     // between boxes of columns
  misplacedStage,   // does not start where its pattern does
  wrongCoordinate,  // copies the box beside
  noWgmmaFence,     // registers may not be ready
  readsEarly,       // reads accumulators before the wait
  writesEarly,      // writes them
  warpLeft,         // a warp leaves a product out
  noAsyncFence,     // bulk stores may miss what stmatrix wrote
  noNamedBarrier,   // stores what other warps have not written
  leavesEarly,      // ends before bulk stores have read
  tooManyRegisters, // more than there are
  last
};

// C = A × B in bf16, A [M, K] row-major, B [K, N] row-major, C [M, N]. One warp
// copies tiles of 64 in depth, two warpgroups multiply 64 rows each.
struct Pipelined {
  static constexpr int kM = 128, kN = 128, kK = 64, kStages = 3, kThreads = 384;
  using TileA = BoxTile<bf16, kM, kK>; ///< K-major
  using TileB = BoxTile<bf16, kK, kN>; ///< MN-major
  using TileC = BoxTile<bf16, 64, kN>; ///< of a warpgroup
  static constexpr int kStage = TileA::kBytes + TileB::kBytes;
  static constexpr int kBarriers = kStages * kStage + 2 * TileC::kBytes;
  static constexpr int kShared =
      kBarriers + 2 * kStages * static_cast<int>(sizeof(Barrier));

  const TensorMap &mapA, &mapB, &mapC;
  int row, column, depth;
  Defect defect;

  TESSERA_DEVICE TileA stageA(int stage) const {
    int shift = defect == Defect::misplacedStage ? 128 : 0;
    return {sharedMemory() + stage * kStage + shift};
  }
  TESSERA_DEVICE TileB stageB(int stage) const {
    return {sharedMemory() + stage * kStage + TileA::kBytes};
  }
  TESSERA_DEVICE TileC result(int group) const {
    return {sharedMemory() + kStages * kStage + group * TileC::kBytes};
  }
  TESSERA_DEVICE Barrier *full() const {
    return reinterpret_cast<Barrier *>(sharedMemory() + kBarriers);
  }
  TESSERA_DEVICE Barrier *empty() const { return full() + kStages; }

  TESSERA_DEVICE void makeBarriers() const {
    if (thread() == 0) {
      for (int stage = 0; stage < kStages; ++stage) {
        initBarrier(full()[stage], 1);
        initBarrier(empty()[stage], 8); // warps that multiply
      }
      if (defect != Defect::noBarrierFence)
        fenceBarriers();
    }
    if (defect != Defect::noBarrierSync)
      sync();
  }

  // By one thread.
  TESSERA_DEVICE void produce() const {
    acquireMap(mapA);
    acquireMap(mapB);
    Ring<kStages> ring;
    for (int k = 0; k < depth; k += kK, ring.advance()) {
      Barrier &landed = full()[ring.stage];
      if (defect != Defect::noEmptyWait)
        await(empty()[ring.stage], defect == Defect::wrongEmptyParity
                                       ? ring.parity
                                       : ring.parity ^ 1);
      int bytes = defect == Defect::noExpectedBytes ? 0
                  : defect == Defect::tooFewBytes   ? kStage - TileB::kBoxBytes
                  : defect == Defect::tooManyBytes  ? kStage + 16
                                                    : kStage;
      arriveExpecting(landed, bytes);
      int shift = defect == Defect::wrongCoordinate ? 1 : 0;
      stageA(ring.stage).load(mapA, landed, k, row + shift);
      stageB(ring.stage).load(mapB, landed, column, k);
    }
  }

  TESSERA_DEVICE void multiplyStage(float (&d)[kN / 2], int group, int stage,
                                    bool accumulates) const {
    TileA a = stageA(stage);
    TileB b = stageB(stage);
    TESSERA_UNROLL
    for (int step = 0; step < kK / 16; ++step) {
      uint64_t left = a.kMajor(step, 64 * group), right = b.mnMajor(step);
      const unsigned char *rows = a.base + group * 8192;
      if (defect == Defect::otherSwizzle)
        left = matrixDescriptor(rows + 32 * step, 16, 1024, Swizzle::none);
      if (defect == Defect::wrongStride)
        left = matrixDescriptor(rows + 32 * step, 16, 512, Swizzle::b128);
      if (defect == Defect::wrongLeading)
        right = operandMnMajor<Swizzle::b128>(b.base, 1024, step);
      if (defect == Defect::warpLeft && step == 2 && warp() % 4 == 1)
        continue;
      wgmma<Inputs::bf16, Major::k, Major::mn>(d, left, right,
                                               accumulates || step > 0);
    }
  }

  // By a warpgroup. One group of products stays in flight while the next is
  // issued; the stage before last is given back then.
  TESSERA_DEVICE void consume(float (&d)[kN / 2], int group) const {
    Ring<kStages> ring;
    int previous = 0;
    auto release = [&](int stage) {
      if (lane() == 0 || defect == Defect::tooManyArrivals)
        arrive(empty()[stage]);
    };
    for (int k = 0; k < depth; k += kK, ring.advance()) {
      if (defect != Defect::noFullWait)
        await(full()[ring.stage], defect == Defect::wrongFullParity
                                      ? ring.parity ^ 1
                                      : ring.parity);
      if (defect != Defect::noWgmmaFence)
        wgmmaFence(d);
      multiplyStage(d, group, ring.stage, k > 0);
      wgmmaCommit();
      if (defect == Defect::releasedTooEarly)
        release(ring.stage);
      if (defect == Defect::writesEarly)
        d[0] += 1;
      wgmmaWait<1>();
      if (k > 0 && defect != Defect::releasedTooEarly)
        release(previous);
      previous = ring.stage;
    }
    if (defect != Defect::readsEarly)
      wgmmaWait<0>(d);
  }

  // The group's 64 rows: rounded, into boxes of 64 columns, and out.
  TESSERA_DEVICE void store(const float (&d)[kN / 2], int group) const {
    TileC c = result(group);
    int first = warp() % 4 * 16 + lane() % 8 + lane() / 8 % 2 * 8;
    TESSERA_UNROLL
    for (int j = 0; j < kN / 16; ++j) {
      uint32_t at[4];
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i)
        at[i] = toBf16(d[8 * j + 2 * i]).bits |
                static_cast<uint32_t>(toBf16(d[8 * j + 2 * i + 1]).bits) << 16;
      storeMatrices(c.at(first, 16 * j + lane() / 16 * 8), at);
    }
    if (defect != Defect::noAsyncFence)
      fenceAsync();
    if (defect != Defect::noNamedBarrier)
      sync(1 + group, 128);
    if (thread() % 128 != 0)
      return;
    acquireMap(mapC);
    c.store(mapC, column, row + 64 * group);
    commitStores();
    if (defect != Defect::leavesEarly)
      waitStoresRead<0>();
  }

  TESSERA_DEVICE void run() const {
    makeBarriers();
    int group = warpgroup(); // the last one copies
    if (group == 2) {
      releaseRegisters<40>();
      if (warp() == 8 && electLane())
        produce();
    } else {
      if (defect == Defect::tooManyRegisters)
        acquireRegisters<240>();
      else
        acquireRegisters<232>();
      float d[kN / 2];
      consume(d, group);
      store(d, group);
      if (defect == Defect::readsEarly)
        wgmmaWait<0>(d);
    }
  }
};

// The defect is a size on the emulated GPU, so that one kernel has them all.
template <typename Instance>
TESSERA_DEVICE Defect defectOf(const Instance &instance) {
#if defined(__CUDACC__)
  return Defect::none;
#else
  return static_cast<Defect>(instance.sizes[2]);
#endif
}

// sizes: depth, columns of C in tiles, defect
TESSERA_KERNEL(pipelined, TESSERA_ALONE(Pipelined::kThreads), 3, 3) {
  const auto &instance = launch.instance();
  int across = static_cast<int>(instance.sizes[1]);
  int tile = static_cast<int>(blockNumber());
  Pipelined{*instance.buffer<const TensorMap>(0),
            *instance.buffer<const TensorMap>(1),
            *instance.buffer<const TensorMap>(2),
            tile / across * Pipelined::kM,
            tile % across * Pipelined::kN,
            static_cast<int>(instance.sizes[0]),
            defectOf(instance)}
      .run();
}

} // namespace tessera::device
