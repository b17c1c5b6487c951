// What this machine's cores can multiply-add at most: the denominator of every
// utilization that a run prints. Measured, because clock rates under vector
// load are not written anywhere a program could read.
#pragma once
#include <cstdint>

namespace tessera {

/// What is multiplied; the accumulators are fp32.
enum class PeakType : uint8_t { fp32, bf16 };

struct PeakFlops {
  /// FLOP/s (a multiply-add is two) of `threads` threads running together.
  double perSecond = 0;
  /// "vdpbf16ps zmm", "vfmadd231ps zmm", "vfmadd231ps ymm", or "scalar".
  const char *instruction = "scalar";
};

/// Runs a loop of independent register-only multiply-adds on `threads` threads
/// at once and takes the best of several rounds, about 50 ms in all. bf16 on a
/// processor without AVX512-BF16 is measured with fp32 arithmetic, which is
/// what such a processor has to use. `vectorBits` is the widest register that
/// may be used: 512 or 256, the bound of code that was compiled for AVX2.
PeakFlops measurePeakFlops(PeakType type, unsigned threads,
                           unsigned vectorBits = 512);

/// Whether dot products of bf16 are faster than widening bf16 and multiplying
/// in fp32, by a quarter at least: there are processors that have the
/// instruction at half the rate of an fp32 multiply-add, and others at four
/// times that. Measured once a process, about 100 ms; false without the
/// instruction.
bool bf16DotPays();

/// The peak of whichever way of multiplying the type is the fastest here: what
/// a program of this type is to be measured by.
PeakFlops measureFastestPeak(PeakType type, unsigned threads);

} // namespace tessera
