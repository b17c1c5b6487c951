// Tensor cores as sm_90a has them: wgmma.mma_async. A warpgroup multiplies
// A, 64 rows, by B, N columns, 32 bytes deep, while its threads go on.
//
//   inputs              depth   A                        B
//   bf16, f16           16      shared (either major)    shared (either major)
//                               or registers
//   tf32                8       shared or registers      shared, K-major
//   e4m3, e5m2          32      shared or registers      shared, K-major
//
// Accumulators are f32. Warp w of the warpgroup has rows 16 w to 16 w + 15,
// with g = lane / 4 and q = lane % 4 ("Register Fragments" of wgmma in the PTX
// ISA):
//
//   D, 64 × N     d[4j], d[4j+1]   (g, 8j + 2q), (g, 8j + 2q + 1)
//                 d[4j+2], d[4j+3] the same of row g + 8
//   A             a.at[0]  bytes 4q to 4q+3 of row g's 32   a.at[1]  of row g+8
//                 a.at[2], a.at[3]  bytes 16 + 4q to 16 + 4q + 3
//
// so that for 16-bit inputs A is FragmentA of Mma.cuh, and D's registers are
// those of its FragmentC, concatenated.
//
// The order of calls:
//   wgmmaFence(d, a)            registers are ready
//   wgmma<…>(d, a, b) …         any number of products
//   wgmmaCommit()               closes a group
//   wgmmaWait<P>(d)             all but the last P groups are done: their
//                               accumulators may be read, what they read may
//                               be overwritten
// All 128 threads make the same calls. d and a fragment A stay untouched from
// the product to the wait.
#pragma once
#include "runtime/device/Barrier.cuh"
#include "runtime/device/Mma.cuh"
#include "runtime/device/TensorMap.h"

namespace tessera::device {

/// Types of A and B.
enum class Inputs { bf16, f16, tf32, e4m3, e4m3e5m2, e5m2e4m3, e5m2 };
/// Which of an operand's elements are neighbours in shared memory: those of one
/// row of A or column of B, or those of one depth.
enum class Major { k, mn };

//===--- operands in shared memory ----------------------------------------===//

/// The descriptor of an operand for wgmma. With a span of W bytes, within which
/// the swizzle permutes chunks:
///   K-major     rows of one span, eight to a group; `stride` from one group to
///               the next. `leading` does not count.
///   MN-major    spans of neighbouring rows of A (columns of B), one for each
///               depth, eight to a group; `stride` from one group to the next
///               eight depths, `leading` to the next W bytes of rows.
/// Without a swizzle both are made of blocks of eight times 16 bytes:
///   K-major     `stride` to the next eight rows, `leading` to the next 16
///               bytes of depth.
///   MN-major    `stride` to the next 16 bytes of rows, `leading` to the next
///               eight depths.
/// `shared` is a multiple of 8 W from the start of shared memory, not counting
/// what `advance` adds for steps in depth. Bits 0-13 address, 16-29 leading,
/// 32-45 stride, all in units of 16 bytes; 62-63 swizzle: 0 none, 1 128, 2 64,
/// 3 32 bytes.
TESSERA_DEVICE uint64_t matrixDescriptor(const void *shared, int leading,
                                         int stride, Swizzle swizzle) {
#if defined(__CUDACC__)
  uint64_t address = sharedAddress(shared);
#else
  uint64_t address = static_cast<uint64_t>(
      static_cast<const unsigned char *>(shared) - sharedMemory());
#endif
  uint64_t mode = (4 - static_cast<uint64_t>(swizzle)) % 4;
  return (address & 0x3ffff) >> 4 | static_cast<uint64_t>(leading >> 4) << 16 |
         static_cast<uint64_t>(stride >> 4) << 32 | mode << 62;
}

/// The operand `bytes` further on.
TESSERA_DEVICE uint64_t advance(uint64_t descriptor, int bytes) {
  return descriptor + static_cast<uint64_t>(bytes >> 4);
}

/// A box [rows][span] as loadBox brings it, depth innermost. Each product takes
/// 32 bytes of depth: the operand of number `step`.
template <Swizzle S>
TESSERA_DEVICE uint64_t operandKMajor(const void *box, int step = 0) {
  static_assert(S != Swizzle::none, "its rows would not be 16 bytes apart");
  return advance(matrixDescriptor(box, 16, 8 * kSpan<S>, S), 32 * step);
}

/// Boxes [depth][span] of 16-bit elements as loadBox brings them, rows of A or
/// columns of B innermost: each holds span / 2 of them, the next one lies
/// `boxBytes` further on. Each product takes a depth of 16.
template <Swizzle S>
TESSERA_DEVICE uint64_t operandMnMajor(const void *box, int boxBytes,
                                       int step = 0) {
  static_assert(S != Swizzle::none, "its rows would not be 16 bytes apart");
  return advance(matrixDescriptor(box, boxBytes, 8 * kSpan<S>, S),
                 16 * kSpan<S> * step);
}

//===--- order ------------------------------------------------------------===//

#if defined(__CUDACC__)
/// Keeps the compiler from moving uses of d across this place.
template <int R> TESSERA_DEVICE void pin(float (&d)[R]) {
  TESSERA_UNROLL
  for (int r = 0; r < R; ++r)
    asm volatile("" : "+f"(d[r]) : : "memory");
}
#endif

#if defined(__CUDACC__)
/// Those that no asm statement writes.
template <int S> TESSERA_DEVICE void pin(const FragmentA (&)[S]) {}
template <int S> TESSERA_DEVICE void pin(const uint64_t (&)[S]) {}
#endif

/// Before the first product and whenever registers that products use were read
/// or written since the last one: all of them, sums and fragments of A.
/// wgmma.fence
template <typename... Registers>
TESSERA_DEVICE void wgmmaFence(Registers &...of) {
#if defined(__CUDACC__)
  (pin(of), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
  const device::Registers all[] = {{&of, sizeof of / 4}...};
  machine->fenceProducts(all, sizeof...(of));
#endif
}

/// wgmma.commit_group
TESSERA_DEVICE void wgmmaCommit() {
#if defined(__CUDACC__)
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
  machine->commitProducts();
#endif
}

/// Until at most `Pending` groups are in flight; `d` are the accumulators that
/// are done by then. wgmma.wait_group
template <int Pending, int... R>
TESSERA_DEVICE void wgmmaWait(float (&...d)[R]) {
#if defined(__CUDACC__)
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(Pending) : "memory");
  (pin(d), ...);
#else
  (static_cast<void>(d), ...);
  machine->waitProducts(Pending);
#endif
}

//===--- products ---------------------------------------------------------===//

#if defined(__CUDACC__)

/// The instruction for these inputs and N; see TESSERA_WGMMA below.
template <Inputs I, int N> struct WgmmaInstruction;

#else

template <Inputs I> constexpr WarpgroupProduct::Same productOf() {
  constexpr MatrixElement kA[] = {MatrixElement::bf16, MatrixElement::f16,
                                  MatrixElement::tf32, MatrixElement::e4m3,
                                  MatrixElement::e4m3, MatrixElement::e5m2,
                                  MatrixElement::e5m2};
  constexpr MatrixElement kB[] = {MatrixElement::bf16, MatrixElement::f16,
                                  MatrixElement::tf32, MatrixElement::e4m3,
                                  MatrixElement::e5m2, MatrixElement::e4m3,
                                  MatrixElement::e5m2};
  WarpgroupProduct::Same same{};
  same.elementA = kA[static_cast<int>(I)];
  same.elementB = kB[static_cast<int>(I)];
  return same;
}

#endif

template <Inputs I>
inline constexpr bool kAnyMajor = I == Inputs::bf16 || I == Inputs::f16;
template <Inputs I, Major A, Major B, int R>
inline constexpr bool kIsWgmma =
    R % 4 == 0 && R <= 128 &&
    (kAnyMajor<I> || (A == Major::k && B == Major::k));

/// d += A × B, or d = A × B where it does not accumulate; N = 2 R. Both
/// operands by descriptors. wgmma.mma_async
template <Inputs I, Major A = Major::k, Major B = Major::k, int R>
TESSERA_DEVICE void wgmma(float (&d)[R], uint64_t a, uint64_t b,
                          bool accumulates = true) {
  static_assert(kIsWgmma<I, A, B, R>, "see the table above");
#if defined(__CUDACC__)
  WgmmaInstruction<I, 2 * R>::template run<A == Major::mn, B == Major::mn>(
      d, a, b, accumulates);
#else
  WarpgroupProduct product{productOf<I>(), {}, d, nullptr, {}};
  product.same.mnMajorA = A == Major::mn;
  product.same.mnMajorB = B == Major::mn;
  product.same.accumulates = accumulates;
  product.same.n = 2 * R;
  product.same.a = a;
  product.same.b = b;
  machine->multiply(product);
#endif
}

/// Where the words of a fragment come from that must stay as they are until the
/// wait; if nothing is said, the fragment itself must.
struct KeptWords {
  const void *at[4] = {};
};

/// The same with A in registers.
template <Inputs I, Major B = Major::k, int R>
TESSERA_DEVICE void wgmma(float (&d)[R], const FragmentA &a, uint64_t b,
                          bool accumulates = true, KeptWords kept = {}) {
  static_assert(kIsWgmma<I, Major::k, B, R>, "see the table above");
#if defined(__CUDACC__)
  static_cast<void>(kept);
  WgmmaInstruction<I, 2 * R>::template run<B == Major::mn>(d, a, b,
                                                           accumulates);
#else
  WarpgroupProduct product{
      productOf<I>(), {a.at[0], a.at[1], a.at[2], a.at[3]}, d, a.at, {}};
  for (int i = 0; i < 4; ++i)
    product.kept[i] = kept.at[i] ? kept.at[i] : a.at + i;
  product.same.registersA = true;
  product.same.mnMajorB = B == Major::mn;
  product.same.accumulates = accumulates;
  product.same.n = 2 * R;
  product.same.b = b;
  machine->multiply(product);
#endif
}

//===--- results ----------------------------------------------------------===//

/// Four 8 × 8 matrices of 16 bits into shared memory, the reverse of
/// loadMatrices: lane l hands in the place of row l % 8 of matrix l / 8, 16
/// bytes, and of matrix i the elements (g, 2q), (g, 2q+1) as at[i];
/// `Transposed`: (2q, g), (2q+1, g). stmatrix
template <bool Transposed = false>
TESSERA_DEVICE void storeMatrices(void *row, const uint32_t (&at)[4]) {
#if defined(__CUDACC__)
  if (Transposed)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                 "[%0], {%1, %2, %3, %4};"
                 :
                 : "r"(sharedAddress(row)), "r"(at[0]), "r"(at[1]), "r"(at[2]),
                   "r"(at[3])
                 : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 "
                 "[%0], {%1, %2, %3, %4};"
                 :
                 : "r"(sharedAddress(row)), "r"(at[0]), "r"(at[1]), "r"(at[2]),
                   "r"(at[3])
                 : "memory");
#else
  uint32_t lanes[32][4];
  memcpy(lanes, machine->exchange(~0u, at, sizeof at, "stmatrix"),
         sizeof lanes);
  machine->writeShared(row, 16, 16);
  int r = lane() % 8;
  for (int c = 0; c < 8; ++c) {
    int from = Transposed ? 4 * c + r / 2 : 4 * r + c / 2;
    uint32_t pair = lanes[from][lane() / 8];
    auto half =
        static_cast<uint16_t>((Transposed ? r : c) % 2 ? pair >> 16 : pair);
    memcpy(static_cast<unsigned char *>(row) + 2 * c, &half, 2);
  }
#endif
}

} // namespace tessera::device

//===--- instructions -----------------------------------------------------===//

/// TESSERA_WGMMA(f16) stands once, in namespace tessera::device, before kernels
/// that use wgmma on these inputs. Those on bf16 are there always; the others
/// would cost every kernel some time to compile.
#if defined(__CUDACC__)
#include "runtime/device/WgmmaInstructions.cuh"
namespace tessera::device {
TESSERA_WGMMA(bf16)
} // namespace tessera::device
#else
#define TESSERA_WGMMA(inputs)
#endif
