// One kernel for each kind of wgmma: C = A × B of one warpgroup, operands
// brought by the copy engine.
#pragma once
#include "runtime/device/Device.cuh"
#include "runtime/device/Hopper.cuh"

// Keeps the number of instructions what the text says.
#if defined(__CUDACC__)
#define TESSERA_ROLLED _Pragma("unroll 1")
#else
#define TESSERA_ROLLED
#endif

namespace tessera::device {

template <Inputs I> struct WgmmaElement {
  using Type = uint8_t;
};
template <> struct WgmmaElement<Inputs::bf16> {
  using Type = bf16;
};
template <> struct WgmmaElement<Inputs::f16> {
  using Type = uint16_t;
};
template <> struct WgmmaElement<Inputs::tf32> {
  using Type = float;
};

/// `Rows` rows of A, or columns of B, 128 bytes deep.
template <Inputs I, Major M, Swizzle S, int Rows> struct Side {
  using T = typename WgmmaElement<I>::Type;
  static constexpr int kDepth = 128 / static_cast<int>(sizeof(T));
  using Boxes = BoxTile<T, M == Major::k ? Rows : kDepth,
                        M == Major::k ? kDepth : Rows, S>;
  Boxes tile;

  TESSERA_DEVICE void load(const TensorMap &map, Barrier &barrier,
                           int k) const {
    if (M == Major::k)
      tile.load(map, barrier, k, 0);
    else
      tile.load(map, barrier, 0, k);
  }
  TESSERA_DEVICE uint64_t descriptor(int step) const {
    if constexpr (M == Major::k)
      return tile.kMajor(step);
    else
      return tile.mnMajor(step);
  }
  /// The warp's rows as a fragment; K-major.
  TESSERA_DEVICE FragmentA fragment(int step) const {
    FragmentA a;
    TESSERA_UNROLL
    for (int r = 0; r < 4; ++r) {
      int row = warp() * 16 + lane() / 4 + r % 2 * 8;
      int byte = 32 * step + r / 2 * 16 + lane() % 4 * 4;
      const T *place = tile.at(row, byte / static_cast<int>(sizeof(T)));
      auto *word = reinterpret_cast<const uint32_t *>(place);
      checkShared(word, 1);
      a.at[r] = *word;
    }
    return a;
  }
};

template <Inputs I, int N, Major A, Major B, Swizzle S, bool Registers>
struct SingleProduct {
  using SideA = Side<I, A, S, 64>;
  using SideB = Side<I, B, S, N>;
  /// Whose registers they are: those of 16 columns where there are only 8.
  using Accumulators = Fragments<64, (N + 15) / 16 * 16, 4, 1>;
  static constexpr int kDepth = SideA::kDepth;
  static constexpr int kStage = SideA::Boxes::kBytes + SideB::Boxes::kBytes;
  static constexpr int kShared = kStage + static_cast<int>(sizeof(Barrier));

  const TensorMap &mapA, &mapB;
  float *c; // [rows, columns]
  int rows, columns, depth;

  TESSERA_DEVICE void run() const {
    SideA a{{sharedMemory()}};
    SideB b{{sharedMemory() + SideA::Boxes::kBytes}};
    Barrier &landed = *reinterpret_cast<Barrier *>(sharedMemory() + kStage);
    if (thread() == 0) {
      initBarrier(landed, 1);
      fenceBarriers();
      acquireMap(mapA);
      acquireMap(mapB);
    }
    sync();
    float d[N / 2];
    int parity = 0;
    TESSERA_ROLLED
    for (int k = 0; k < depth; k += kDepth, parity ^= 1) {
      if (warp() == 0 && electLane()) {
        arriveExpecting(landed, kStage);
        a.load(mapA, landed, k);
        b.load(mapB, landed, k);
      }
      await(landed, parity);
      multiply(d, a, b, k > 0);
      sync(); // all have read
    }
    store(d);
  }

  TESSERA_DEVICE void multiply(float (&d)[N / 2], SideA a, SideB b,
                               bool accumulates) const {
    FragmentA at[4];
    if constexpr (Registers) {
      TESSERA_UNROLL
      for (int step = 0; step < 4; ++step)
        at[step] = a.fragment(step);
      wgmmaFence(d, at);
    } else {
      wgmmaFence(d);
    }
    TESSERA_UNROLL
    for (int step = 0; step < 4; ++step)
      if constexpr (Registers)
        wgmma<I, B>(d, at[step], b.descriptor(step), accumulates || step > 0);
      else
        wgmma<I, A, B>(d, a.descriptor(step), b.descriptor(step),
                       accumulates || step > 0);
    wgmmaCommit();
    wgmmaWait<0>(d);
  }

  TESSERA_DEVICE void store(const float (&d)[N / 2]) const {
    TESSERA_UNROLL
    for (int i = 0; i < N / 2; ++i) {
      int row = Accumulators::row(i), column = Accumulators::column(i);
      if (row >= rows || column >= columns)
        continue;
      checkWrite(c + row * columns + column, 1);
      c[row * columns + column] = d[i];
    }
  }
};

/// CASE(name, inputs, n, major of A, of B, swizzle, A in registers)
#define TESSERA_WGMMA_CASES(CASE)                                              \
  CASE(n8, bf16, 8, k, k, b128, false)                                         \
  CASE(n16, bf16, 16, k, k, b128, false)                                       \
  CASE(n32, bf16, 32, k, k, b128, false)                                       \
  CASE(n48, bf16, 48, k, k, b128, false)                                       \
  CASE(n64, bf16, 64, k, k, b128, false)                                       \
  CASE(n80, bf16, 80, k, k, b128, false)                                       \
  CASE(n96, bf16, 96, k, k, b128, false)                                       \
  CASE(n112, bf16, 112, k, k, b128, false)                                     \
  CASE(n128, bf16, 128, k, k, b128, false)                                     \
  CASE(n160, bf16, 160, k, k, b128, false)                                     \
  CASE(n176, bf16, 176, k, k, b128, false)                                     \
  CASE(n192, bf16, 192, k, k, b128, false)                                     \
  CASE(n224, bf16, 224, k, k, b128, false)                                     \
  CASE(n256, bf16, 256, k, k, b128, false)                                     \
  CASE(bMn, bf16, 128, k, mn, b128, false)                                     \
  CASE(bMnWide, bf16, 256, k, mn, b128, false)                                 \
  CASE(aMn, bf16, 64, mn, k, b128, false)                                      \
  CASE(bothMn, bf16, 192, mn, mn, b128, false)                                 \
  CASE(k64, bf16, 64, k, k, b64, false)                                        \
  CASE(k32, bf16, 80, k, k, b32, false)                                        \
  CASE(kNone, bf16, 48, k, k, none, false)                                     \
  CASE(mn64, bf16, 96, mn, mn, b64, false)                                     \
  CASE(mn32, bf16, 112, mn, mn, b32, false)                                    \
  CASE(mnNone, bf16, 8, mn, mn, none, false)                                   \
  CASE(registers, bf16, 64, k, k, b128, true)                                  \
  CASE(registersMn, bf16, 128, k, mn, b128, true)                              \
  CASE(registersMn64, bf16, 96, k, mn, b64, true)                              \
  CASE(registersWide, bf16, 256, k, k, b32, true)                              \
  CASE(f16, f16, 176, k, k, b128, false)                                       \
  CASE(f16Mn, f16, 64, mn, mn, b128, false)                                    \
  CASE(f16Registers, f16, 128, k, mn, b128, true)                              \
  CASE(tf32, tf32, 64, k, k, b128, false)                                      \
  CASE(tf32None, tf32, 8, k, k, none, false)                                   \
  CASE(tf32Registers, tf32, 32, k, k, b64, true)                               \
  CASE(e4m3, e4m3, 64, k, k, b128, false)                                      \
  CASE(e4m3e5m2, e4m3e5m2, 32, k, k, b64, false)                               \
  CASE(e5m2e4m3, e5m2e4m3, 16, k, k, b128, true)                               \
  CASE(e5m2, e5m2, 128, k, k, b32, true)

TESSERA_WGMMA(f16)
TESSERA_WGMMA(tf32)
TESSERA_WGMMA(e4m3)
TESSERA_WGMMA(e4m3e5m2)
TESSERA_WGMMA(e5m2e4m3)
TESSERA_WGMMA(e5m2)

// sizes: rows, columns and depth of the product
#define TESSERA_SINGLE_PRODUCT(name, inputs, n, a, b, swizzle, registers)      \
  TESSERA_KERNEL(product_##name, TESSERA_ALONE(128), 3, 3) {                   \
    const auto &instance = launch.instance();                                  \
    SingleProduct<Inputs::inputs, n, Major::a, Major::b, Swizzle::swizzle,     \
                  registers>{*instance.buffer<const TensorMap>(0),             \
                             *instance.buffer<const TensorMap>(1),             \
                             instance.buffer<float>(2),                        \
                             static_cast<int>(instance.sizes[0]),              \
                             static_cast<int>(instance.sizes[1]),              \
                             static_cast<int>(instance.sizes[2])}              \
        .run();                                                                \
  }
TESSERA_WGMMA_CASES(TESSERA_SINGLE_PRODUCT)
#undef TESSERA_SINGLE_PRODUCT

} // namespace tessera::device
