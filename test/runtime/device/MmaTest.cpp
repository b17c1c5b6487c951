// A product of two matrices by cp.async, ldmatrix and mma.sync on the emulated
// GPU, and what the emulator makes of kernels that do it wrong.
#include "runtime/device/Mma.cuh"
#include "runtime/hal/emulated/BlockMachine.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

using namespace tessera;
using namespace tessera::device;

namespace {

enum class Defect {
  none,
  noWait,        // reads before the copies have landed
  noBarrier,     // reads what other threads copied, unsynchronized
  noLastBarrier, // overwrites a stage that others still read
  staleStage,    // reads the stage of the turn before
  otherSwizzle,  // stores by one pattern, reads by another
  wrongRows,     // takes its neighbour's rows of A
  untransposed,  // takes B's matrices as they lie
  beyondTheEdge, // copies all bytes of a ragged last row
  misaligned,    // copies from an address that is not one of 16 bytes
  divergedLanes, // half a warp leaves the product out
};

constexpr int kM = 64, kN = 64, kK = 32; // of a block's stage
constexpr int kWarps = 4, kThreads = 32 * kWarps;

struct Problem {
  const bf16 *a, *b; // [M, K] and [K, N], row-major
  float *c;          // [M, N]
  int depth;         // K: a multiple of kK, but for a's last row
  Defect defect;
};

// 16-byte chunks of a tile of `rows` rows, spread over the block.
template <int Chunks>
void stage(unsigned char *shared, const bf16 *from, int64_t stride, int rows,
           Defect defect) {
  for (int i = thread(); i < rows * Chunks; i += kThreads) {
    int row = i / Chunks, chunk = i % Chunks;
    int shift = defect == Defect::misaligned ? 1 : 0;
    copyAsync(shared + 16 * swizzle<16 * Chunks>(row, chunk),
              from + row * stride + 8 * chunk + shift);
  }
}

template <int RowBytes>
const void *chunkOf(const unsigned char *shared, int row, int chunk,
                    Defect defect) {
  if (defect == Defect::otherSwizzle)
    return shared + row * RowBytes + 16 * chunk;
  return shared + 16 * swizzle<RowBytes>(row, chunk);
}

// The warp's 16 rows times all 64 columns of one stage.
void multiplyStage(FragmentC (&c)[8], const unsigned char *a,
                   const unsigned char *b, Defect defect) {
  int rows = 16 * warp();
  if (defect == Defect::wrongRows)
    rows = (rows + 16) % kM;
  for (int k = 0; k < kK; k += 16) {
    FragmentA left;
    loadMatrices(left.at, chunkOf<2 * kK>(a, rows + lane() % 16,
                                          k / 8 + lane() / 16, defect));
    for (int n = 0; n < kN; n += 16) {
      uint32_t at[4];
      const void *row =
          chunkOf<2 * kN>(b, k + lane() % 16, n / 8 + lane() / 16, defect);
      if (defect == Defect::untransposed)
        loadMatrices<false>(at, row);
      else
        loadMatrices<true>(at, row);
      if (defect == Defect::divergedLanes && lane() >= 16)
        continue;
      multiplyBf16(c[n / 8].at, left, {{at[0], at[1]}});
      multiplyBf16(c[n / 8 + 1].at, left, {{at[2], at[3]}});
    }
  }
  finishWarpProducts();
}

// Two stages: while one is multiplied, the next one is on its way.
void product(const Problem &p) {
  constexpr int kStageA = 2 * kM * kK, kStageB = 2 * kK * kN;
  unsigned char *a = sharedMemory(), *b = a + 2 * kStageA;
  auto load = [&](int k) {
    int s = k / kK % 2;
    stage<kK / 8>(a + s * kStageA, p.a + k, p.depth, kM, p.defect);
    stage<kN / 8>(b + s * kStageB, p.b + int64_t(k) * kN, kN, kK, p.defect);
    commitCopies();
  };
  FragmentC c[8] = {};
  load(0);
  for (int k = 0; k < p.depth; k += kK) {
    if (p.defect != Defect::noWait)
      waitCopies<0>();
    if (p.defect != Defect::noBarrier)
      device::sync();
    int next = k + kK;
    if (p.defect == Defect::noLastBarrier)
      next = k; // into the stage that is being read
    if (next < p.depth || p.defect == Defect::beyondTheEdge)
      load(next);
    int s = k / kK % 2;
    if (p.defect == Defect::staleStage)
      s = 1 - s;
    multiplyStage(c, a + s * kStageA, b + s * kStageB, p.defect);
    if (p.defect == Defect::noLastBarrier)
      waitCopies<0>();
  }
  for (int i = 0; i < 8; ++i)
    for (int e = 0; e < 4; ++e) {
      float *at = p.c + (16 * warp() + lane() / 4 + e / 2 * 8) * kN + 8 * i +
                  lane() % 4 * 2 + e % 2;
      checkWrite(at, 1);
      *at = c[i].at[e];
    }
}

void enter(Machine &machine, const void *arguments) {
  device::machine = &machine;
  product(*static_cast<const Problem *>(arguments));
}

// Small integers, so that sums are exact in any order.
struct Product {
  explicit Product(int depth) : depth(depth) {
    std::mt19937 random(7);
    auto fill = [&](std::vector<bf16> &values, std::size_t count) {
      values.resize(count + 8);
      for (bf16 &value : values)
        value = toBf16(float(int(random() % 9) - 4));
    };
    fill(a, std::size_t(kM) * depth);
    fill(b, std::size_t(depth) * kN);
    for (int i = 0; i < kM; ++i)
      for (int j = 0; j < kN; ++j) {
        float sum = 0;
        for (int k = 0; k < depth; ++k)
          sum += toFloat(a[i * depth + k]) * toFloat(b[k * kN + j]);
        expected.push_back(sum);
      }
  }

  /// Empty if the result is right; the machine's error or "wrong" otherwise.
  std::string run(std::uint64_t seed, Defect defect) {
    std::vector<float> c(expected.size(), -1);
    auto range = [](const auto &v, std::size_t count, Access access) {
      return emulated::BufferRange{
          reinterpret_cast<const std::byte *>(v.data()), count * sizeof(v[0]),
          access};
    };
    const emulated::BufferRange buffers[] = {
        range(a, std::size_t(kM) * depth, Access::read),
        range(b, std::size_t(depth) * kN, Access::read),
        range(c, c.size(), Access::readWrite)};
    Problem problem{a.data(), b.data(), c.data(), depth, defect};
    emulated::LaunchOptions options{"product", {}, kThreads, 16384, seed};
    emulated::BlockMachine machine;
    Status status = machine.launch(options, enter, &problem, buffers);
    if (!status.ok())
      return status.message();
    return c == expected ? "" : "wrong";
  }

  int depth;
  std::vector<bf16> a, b;
  std::vector<float> expected;
};

} // namespace

TEST(Mma, ProductByStagesIsExactUnderEverySeed) {
  for (int depth : {32, 64, 160}) {
    Product product(depth);
    for (std::uint64_t seed = 0; seed < 5; ++seed)
      EXPECT_EQ(product.run(seed, Defect::none), "") << depth << " " << seed;
  }
}

TEST(Mma, EveryDefectIsCaughtUnderEverySeed) {
  Product product(160);
  for (Defect defect :
       {Defect::noWait, Defect::noBarrier, Defect::noLastBarrier,
        Defect::staleStage, Defect::otherSwizzle, Defect::wrongRows,
        Defect::untransposed, Defect::beyondTheEdge, Defect::misaligned,
        Defect::divergedLanes})
    for (std::uint64_t seed = 0; seed < 3; ++seed)
      EXPECT_NE(product.run(seed, defect), "")
          << "defect " << int(defect) << ", seed " << seed;
}

// Eight rows that ldmatrix reads together lie in eight different groups of
// banks.
template <int RowBytes> static void expectNoConflicts() {
  for (int chunk = 0; chunk < RowBytes / 16; ++chunk)
    for (int first = 0; first < 64; first += 8) {
      unsigned groups = 0;
      for (int row = first; row < first + 8; ++row)
        groups |= 1u << swizzle<RowBytes>(row, chunk) % 8;
      EXPECT_EQ(groups, 0xffu) << RowBytes << " bytes, chunk " << chunk;
    }
}

TEST(Swizzle, RowsOfAMatrixLieInDifferentBanks) {
  expectNoConflicts<32>();
  expectNoConflicts<64>();
  expectNoConflicts<128>();
  expectNoConflicts<256>();
}

TEST(Swizzle, EveryChunkHasItsPlace) {
  std::vector<int> taken(64 * 8);
  for (int row = 0; row < 64; ++row)
    for (int chunk = 0; chunk < 8; ++chunk)
      ++taken[swizzle<128>(row, chunk)];
  EXPECT_EQ(taken, std::vector<int>(taken.size(), 1));
}

TEST(Tf32, RoundsToTenBits) {
  EXPECT_EQ(bitsToFloat(toTf32(1.0f + 0x1p-11f)), 1.0f + 0x1p-10f);
  EXPECT_EQ(bitsToFloat(toTf32(1.0f + 0x1p-12f)), 1.0f);
  EXPECT_EQ(bitsToFloat(toTf32(-3.0f)), -3.0f);
  EXPECT_TRUE(std::isinf(bitsToFloat(toTf32(INFINITY))));
}

TEST(Half, EveryNumberWidensAsTheCompilerDoesIt) {
  for (unsigned bits = 0; bits < 1u << 16; ++bits) {
    auto half = std::bit_cast<_Float16>(static_cast<uint16_t>(bits));
    float expected = half, widened = halfToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(expected))
      ASSERT_TRUE(std::isnan(widened)) << bits;
    else
      ASSERT_EQ(std::bit_cast<uint32_t>(widened),
                std::bit_cast<uint32_t>(expected))
          << bits;
  }
}
