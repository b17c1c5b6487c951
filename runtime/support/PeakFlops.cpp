#include "runtime/support/PeakFlops.h"
#include "runtime/support/CpuFeatures.h"

#include <algorithm>
#include <barrier>
#include <ctime>
#include <numeric>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera {
namespace {

/// `run` performs `flops` floating-point operations an iteration.
struct Loop {
  void (*run)(std::int64_t iterations);
  double flops;
  const char *instruction;
};

#if defined(__x86_64__)
// Latency 4 or 5 times two units needs ten independent chains; the rest covers
// the loop's own instructions. Assembly, because the compiler would fold the
// chains into one.
__attribute__((target("avx512f"))) void fmaZmm(std::int64_t iterations) {
  __m512 sums[20];
  for (int i = 0; i < 20; ++i)
    sums[i] = _mm512_set1_ps(1e-3f * float(i));
  const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-6f);
  while (iterations-- > 0)
#pragma GCC unroll 20
    for (int i = 0; i < 20; ++i)
      asm volatile("vfmadd231ps %1, %2, %0" : "+v"(sums[i]) : "v"(x), "v"(y));
}

__attribute__((target("avx2,fma"))) void fmaYmm(std::int64_t iterations) {
  __m256 sums[14];
  for (int i = 0; i < 14; ++i)
    sums[i] = _mm256_set1_ps(1e-3f * float(i));
  const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-6f);
  while (iterations-- > 0)
#pragma GCC unroll 14
    for (int i = 0; i < 14; ++i)
      asm volatile("vfmadd231ps %1, %2, %0" : "+x"(sums[i]) : "x"(x), "x"(y));
}

__attribute__((target("avx512f,avx512bf16"))) void
dotBf16Zmm(std::int64_t iterations) {
  __m512 sums[20];
  for (int i = 0; i < 20; ++i)
    sums[i] = _mm512_set1_ps(1e-3f * float(i));
  const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-6f);
  while (iterations-- > 0)
#pragma GCC unroll 20
    for (int i = 0; i < 20; ++i)
      asm volatile("vdpbf16ps %1, %2, %0" : "+v"(sums[i]) : "v"(x), "v"(y));
}

/// What ldtilecfg reads (Intel SDM volume 1, 18.3.2).
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, startRow = 0, reserved[14] = {};
  std::uint16_t rowBytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileShapes) == 64);

// Four sums of 16 × 16, as many as hide what a product takes.
__attribute__((target("amx-tile,amx-bf16"))) void
dotTiles(std::int64_t iterations) {
  const TileShapes shapes;
  _tile_loadconfig(&shapes);
  while (iterations-- > 0) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}
#endif

void scalar(std::int64_t iterations) {
  float sums[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  while (iterations-- > 0)
    for (float &sum : sums) {
      sum = sum * 0.999f + 1e-6f;
      asm volatile("" : "+m"(sum));
    }
}

/// Time in which the calling thread had a processor.
double threadSeconds() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return double(used.tv_sec) + 1e-9 * double(used.tv_nsec);
}

Loop choose(PeakType type, unsigned vectorBits) {
#if defined(__x86_64__)
  CpuFeatures cpu = CpuFeatures::detect();
  bool zmm = vectorBits >= 512 && cpu.has("avx512f");
  if (type == PeakType::bf16Matrix && hasBf16Matrices())
    return {dotTiles, 4 * 16 * 16 * 32 * 2, "tdpbf16ps"};
  if (type == PeakType::bf16 && zmm && cpu.has("avx512_bf16"))
    return {dotBf16Zmm, 20 * 32 * 2, "vdpbf16ps zmm"};
  if (zmm)
    return {fmaZmm, 20 * 16 * 2, "vfmadd231ps zmm"};
  if (cpu.has("avx2") && cpu.has("fma"))
    return {fmaYmm, 14 * 8 * 2, "vfmadd231ps ymm"};
#endif
  return {scalar, 8 * 2, "scalar"};
}

// How many iterations take `seconds`, by a short run; it also wakes the wide
// units. Where the clock is coarse the run is as long as the clock can tell.
std::int64_t iterationsOf(const Loop &loop, double seconds) {
  constexpr std::int64_t kProbe = 2000, kMost = std::int64_t(1) << 30;
  loop.run(kProbe);
  for (std::int64_t probe = kProbe;; probe *= 2) {
    const double start = threadSeconds();
    loop.run(probe);
    const double taken = threadSeconds() - start;
    if (taken > 0)
      return std::max(probe, std::int64_t(double(probe) * seconds / taken) + 1);
    if (probe >= kMost)
      return probe;
  }
}

// FLOP/s of this thread, by the time in which it had a processor: other
// programs on this machine take nothing from what is said.
double rateOf(const Loop &loop, std::int64_t iterations) {
  double start = threadSeconds();
  loop.run(iterations);
  const double taken = threadSeconds() - start;
  // A coarse clock may not have moved; another round tells.
  return taken > 0 ? double(iterations) * loop.flops / taken : 0;
}

constexpr int kRounds = 9;

} // namespace

PeakFlops measurePeakFlops(PeakType type, unsigned threads,
                           unsigned vectorBits) {
  constexpr double kRoundSeconds = 5e-3;
  Loop loop = choose(type, vectorBits);
  threads = std::max(threads, 1u);
  std::int64_t iterations = iterationsOf(loop, kRoundSeconds);

  // Rounds start together, so every thread runs at the clock rate that all of
  // them leave it; each keeps its own best round.
  std::barrier gate(std::ptrdiff_t(threads), []() noexcept {});
  std::vector<double> rates(threads, 0);
  auto work = [&](unsigned thread) {
    for (int round = 0; round < kRounds; ++round) {
      gate.arrive_and_wait();
      rates[thread] = std::max(rates[thread], rateOf(loop, iterations));
    }
  };
  std::vector<std::thread> helpers;
  for (unsigned i = 1; i < threads; ++i)
    helpers.emplace_back(work, i);
  work(0);
  for (std::thread &helper : helpers)
    helper.join();
  return {std::accumulate(rates.begin(), rates.end(), 0.0), loop.instruction};
}

// Rounds of both in turns: a clock rate that rises favours neither. They are
// short, because every start of a program waits for them, and the ratio is far
// from the bound on all processors that are known.
static bool isDotFaster() {
  constexpr double kRoundSeconds = 5e-4;
  Loop dot = choose(PeakType::bf16, 512), fma = choose(PeakType::fp32, 512);
  std::int64_t dots = iterationsOf(dot, kRoundSeconds),
               fmas = iterationsOf(fma, kRoundSeconds);
  double dotRate = 0, fmaRate = 0;
  for (int round = 0; round < kRounds; ++round) {
    dotRate = std::max(dotRate, rateOf(dot, dots));
    fmaRate = std::max(fmaRate, rateOf(fma, fmas));
  }
  return dotRate > 1.25 * fmaRate;
}

bool bf16DotPays() {
  static const bool pays =
      CpuFeatures::detect().has("avx512_bf16") && isDotFaster();
  return pays;
}

bool hasBf16Matrices() { return CpuFeatures::detect().has("amx_bf16"); }

PeakFlops measureFastestPeak(PeakType type, unsigned threads) {
  if (type == PeakType::bf16 && hasBf16Matrices())
    return measurePeakFlops(PeakType::bf16Matrix, threads);
  bool upcasts = type == PeakType::bf16 && !bf16DotPays();
  return measurePeakFlops(upcasts ? PeakType::fp32 : type, threads);
}

} // namespace tessera
