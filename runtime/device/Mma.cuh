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
  machine->loadMatrices(at, row, Transposed);
#endif
}

//===--- products ---------------------------------------------------------===//

// c += A × B, where c is a FragmentC in place. The sums may be used after
// finishWarpProducts.

#if defined(__CUDACC__)
/// For the functions below only.
#define TESSERA_MMA(shape, type)                                               \
  asm volatile("mma.sync.aligned." shape ".row.col.f32." type "." type         \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "           \
               "{%0, %1, %2, %3};"                                             \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                \
               : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]),       \
                 "r"(b.at[0]), "r"(b.at[1]))
#else
inline void issueProduct(MatrixElement element, float *c, const FragmentA &a,
                         const FragmentB &b) {
  machine->multiply(
      {element, {a.at[0], a.at[1], a.at[2], a.at[3]}, {b.at[0], b.at[1]}, c});
}
#endif

/// Until this thread's products are in its sums. A GPU's mma.sync is; the
/// emulated GPU computes one when the last lane has come to it, and switches
/// between threads here instead of in every product.
TESSERA_DEVICE void finishWarpProducts() {
#if !defined(__CUDACC__)
  machine->finishWarpProducts();
#endif
}

/// c += A × B on bf16.
TESSERA_DEVICE void multiplyBf16(float *c, const FragmentA &a,
                                 const FragmentB &b) {
#if defined(__CUDACC__)
  TESSERA_MMA("m16n8k16", "bf16");
#else
  issueProduct(MatrixElement::bf16, c, a, b);
#endif
}

/// c += A × B on f16.
TESSERA_DEVICE void multiplyF16(float *c, const FragmentA &a,
                                const FragmentB &b) {
#if defined(__CUDACC__)
  TESSERA_MMA("m16n8k16", "f16");
#else
  issueProduct(MatrixElement::f16, c, a, b);
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
TESSERA_DEVICE void multiplyTf32(float *c, const FragmentA &a,
                                 const FragmentB &b) {
#if defined(__CUDACC__)
  TESSERA_MMA("m16n8k8", "tf32");
#else
  issueProduct(MatrixElement::tf32, c, a, b);
#endif
}

#undef TESSERA_MMA

} // namespace tessera::device
