// What this machine's cores can multiply-add at most: the denominator of every
// utilization that a run prints. Measured, because clock rates under vector
// load are not written anywhere a program could read.
#pragma once
#include <cstdint>

namespace tessera {

/// The fastest instruction that multiplies this type, with fp32 accumulators.
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

} // namespace tessera
