// Tensor cores as sm_80 has them: operand tiles from shared memory by ldmatrix,
// products by mma.sync. The layouts are those of the PTX ISA, "Matrix Fragments
// for mma.m16n8k16" and "…m16n8k8". With g = lane / 4 and q = lane % 4:
//
//   A, 16 × 16 of 16 bits   at[0] (g, 2q), (g, 2q+1)    at[1] the same of row
//   g+8
//                           at[2], at[3] the same of columns + 8
//   B, 16 × 8 of 16 bits    at[0] (2q, g), (2q+1, g)    at[1] rows + 8
//   A, 16 × 8 of tf32       at[0] (g, q)  at[1] (g+8, q)  at[2] (g, q+4)  at[3]
//   (g+8, q+4) B, 8 × 8 of tf32        at[0] (q, g)  at[1] (q+4, g) C, 16 × 8
//   of f32        at[0] (g, 2q)  at[1] (g, 2q+1)  at[2], at[3] row g+8
#pragma once
#include "runtime/device/Async.cuh"

namespace tessera::device {

struct FragmentA {
  uint32_t at[4];
};
struct FragmentB {
  uint32_t at[2];
};
struct FragmentC {
  float at[4];
};

//===--- operands ---------------------------------------------------------===//

/// Four 8 × 8 matrices of 16 bits: lane l hands in row l % 8 of matrix l / 8,
/// 16 bytes in shared memory, and gets of matrix i the elements (g, 2q), (g,
/// 2q+1) as at[i]; `Transposed`: (2q, g), (2q+1, g).
template <bool Transposed = false>
TESSERA_DEVICE void loadMatrices(uint32_t (&at)[4], const void *row) {
#if defined(__CUDACC__)
  if (Transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                 "{%0, %1, %2, %3}, [%4];"
                 : "=r"(at[0]), "=r"(at[1]), "=r"(at[2]), "=r"(at[3])
                 : "r"(sharedAddress(row))
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 "
                 "{%0, %1, %2, %3}, [%4];"
                 : "=r"(at[0]), "=r"(at[1]), "=r"(at[2]), "=r"(at[3])
                 : "r"(sharedAddress(row))
                 : "memory");
#else
  machine->checkShared(row, 16, 16);
  const void *rows[32];
  std::memcpy(rows, machine->exchange(~0u, &row, sizeof row, "ldmatrix"),
              sizeof rows);
  int g = lane() / 4, q = lane() % 4;
  for (int i = 0; i < 4; ++i) {
    uint16_t pair[2];
    for (int e = 0; e < 2; ++e) {
      int r = Transposed ? 2 * q + e : g, c = Transposed ? g : 2 * q + e;
      std::memcpy(&pair[e],
                  static_cast<const std::byte *>(rows[8 * i + r]) + 2 * c, 2);
    }
    std::memcpy(&at[i], pair, 4);
  }
#endif
}

//===--- products ---------------------------------------------------------===//

#if defined(__CUDACC__)
/// c += a × b by one instruction; for the functions below only.
#define TESSERA_MMA(shape, type)                                               \
  asm volatile("mma.sync.aligned." shape ".row.col.f32." type "." type         \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "           \
               "{%0, %1, %2, %3};"                                             \
               : "+f"(c.at[0]), "+f"(c.at[1]), "+f"(c.at[2]), "+f"(c.at[3])    \
               : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]),       \
                 "r"(b.at[0]), "r"(b.at[1]))
#else
/// What the host twins share: the operands of all lanes, by element.
struct MmaOperands {
  FragmentA a;
  FragmentB b;
};
struct MmaWarp {
  MmaOperands lanes[32];
  MmaWarp(const FragmentA &a, const FragmentB &b, const char *what) {
    MmaOperands mine{a, b};
    std::memcpy(lanes, machine->exchange(~0u, &mine, sizeof mine, what),
                sizeof lanes);
  }
};

/// c(row, column) += Σ product(row, column, k) over K, for this lane's
/// elements.
template <int K, typename Product>
void accumulate(FragmentC &c, Product product) {
  for (int i = 0; i < 4; ++i) {
    int row = lane() / 4 + i / 2 * 8, column = lane() % 4 * 2 + i % 2;
    for (int k = 0; k < K; ++k)
      c.at[i] += product(row, column, k);
  }
}

/// c += A × B for 16-bit operands, each converted to float by `upcast`.
template <typename Upcast>
void multiply16(FragmentC &c, const FragmentA &a, const FragmentB &b,
                Upcast upcast, const char *what) {
  MmaWarp warp(a, b, what);
  auto half = [&](uint32_t pair, int k) {
    return upcast(static_cast<uint16_t>(k % 2 ? pair >> 16 : pair));
  };
  accumulate<16>(c, [&](int row, int column, int k) {
    const MmaOperands &left = warp.lanes[row % 8 * 4 + k % 8 / 2],
                      &right = warp.lanes[column * 4 + k % 8 / 2];
    return half(left.a.at[row / 8 + k / 8 * 2], k) * half(right.b.at[k / 8], k);
  });
}
#endif

/// c += A × B on bf16.
TESSERA_DEVICE void multiplyBf16(FragmentC &c, const FragmentA &a,
                                 const FragmentB &b) {
#if defined(__CUDACC__)
  TESSERA_MMA("m16n8k16", "bf16");
#else
  multiply16(
      c, a, b, [](uint16_t bits) { return toFloat(bf16{bits}); },
      "mma.sync of bf16");
#endif
}

/// c += A × B on f16.
TESSERA_DEVICE void multiplyF16(FragmentC &c, const FragmentA &a,
                                const FragmentB &b) {
#if defined(__CUDACC__)
  TESSERA_MMA("m16n8k16", "f16");
#else
  multiply16(c, a, b, halfToFloat, "mma.sync of f16");
#endif
}

/// A float rounded to tf32 (ten bits of mantissa, ties away from zero), as
/// multiplyTf32 takes it.
TESSERA_DEVICE uint32_t toTf32(float value) {
#if defined(__CUDACC__)
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
#else
  uint32_t bits = floatToBits(value);
  if ((bits & 0x7f800000) == 0x7f800000)
    return bits;
  return (bits + 0x1000) & ~0x1fffu;
#endif
}

/// c += A × B on tf32, 16 × 8 times 8 × 8.
TESSERA_DEVICE void multiplyTf32(FragmentC &c, const FragmentA &a,
                                 const FragmentB &b) {
#if defined(__CUDACC__)
  TESSERA_MMA("m16n8k8", "tf32");
#else
  MmaWarp warp(a, b, "mma.sync of tf32");
  auto tf32 = [](uint32_t bits) { return bitsToFloat(bits & ~0x1fffu); };
  accumulate<8>(c, [&](int row, int column, int k) {
    return tf32(warp.lanes[row % 8 * 4 + k % 4].a.at[row / 8 + k / 4 * 2]) *
           tf32(warp.lanes[column * 4 + k % 4].b.at[k / 4]);
  });
#endif
}

#undef TESSERA_MMA

} // namespace tessera::device
