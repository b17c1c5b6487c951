// What this machine's cores can multiply-add at most: the denominator of every
// utilization that a run prints. Measured, because clock rates under vector
// load are not written anywhere a program could read.
#pragma once
#include <cstdint>

namespace tessera {

/// The type of the operands and the instruction; the accumulators are fp32.
enum class PeakType : uint8_t {
  fp32,
  bf16,       ///< by dot products of vectors
  bf16Matrix, ///< by matrix registers (AMX)
};

struct PeakFlops {
  /// FLOP/s (a multiply-add is two) of `threads` threads running together.
  double perSecond = 0;
  /// "tdpbf16ps", "vdpbf16ps zmm", "vfmadd231ps zmm", "vfmadd231ps ymm", or
  /// "scalar".
  const char *instruction = "scalar";
};

/// Runs a loop of independent register-only multiply-adds on `threads` threads
/// at once and takes the best of several rounds, about 50 ms in all. What the
/// processor has no instruction for is measured with fp32 arithmetic, which is
/// what it has to use instead. `vectorBits` is the widest register that
/// may be used: 512 or 256, the bound of code that was compiled for AVX2.
PeakFlops measurePeakFlops(PeakType type, unsigned threads,
                           unsigned vectorBits = 512);

/// Whether the bf16 dot-product instruction is at least a quarter faster than
/// upcasting bf16 and multiplying in fp32. Some processors execute it at half
/// the rate of an fp32 multiply-add, others at four times that. Measured once
/// per process, in about 10 ms; false without the instruction.
bool bf16DotPays();

/// Whether matrix registers multiply bf16 here: many times as fast as anything
/// else does.
bool hasBf16Matrices();

/// The peak of whichever way of multiplying the type is the fastest here: what
/// a program of this type is to be measured by.
PeakFlops measureFastestPeak(PeakType type, unsigned threads);

} // namespace tessera
