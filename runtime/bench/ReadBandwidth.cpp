#include "runtime/bench/ReadBandwidth.h"
#include "runtime/support/CpuFeatures.h"

#include <algorithm>
#include <cstring>

namespace tessera::bench {
namespace {

constexpr std::uint64_t kPiece = std::uint64_t(1) << 20;

/// Reads a piece.
using Reader = void (*)(const std::byte *from);

#if defined(__x86_64__)
// Eight loads in flight; assembly, because the loaded values are unused and a
// compiler would remove the loads.
__attribute__((target("avx512f"))) void readZmm(const std::byte *from) {
  for (const std::byte *end = from + kPiece; from != end; from += 512)
    asm volatile("vmovdqu64 (%0), %%zmm0\n\tvmovdqu64 64(%0), %%zmm1\n\t"
                 "vmovdqu64 128(%0), %%zmm2\n\tvmovdqu64 192(%0), %%zmm3\n\t"
                 "vmovdqu64 256(%0), %%zmm4\n\tvmovdqu64 320(%0), %%zmm5\n\t"
                 "vmovdqu64 384(%0), %%zmm6\n\tvmovdqu64 448(%0), %%zmm7"
                 :
                 : "r"(from)
                 : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
                   "xmm7", "memory");
  // The compiler does not know that it is needed.
  asm volatile("vzeroupper");
}

// Four streams at once, which the prefetcher of a Zen 3 follows: a thread reads
// 25 GB/s, of one stream 20, and 13 by words.
__attribute__((target("avx2"))) void readYmm(const std::byte *from) {
  constexpr std::uint64_t part = kPiece / 4;
  static_assert(part % 256 == 0);
  for (std::uint64_t at = 0; at != part; at += 256)
    for (int i = 0; i < 4; ++i)
      asm volatile("vmovdqu (%0), %%ymm0\n\tvmovdqu 32(%0), %%ymm1\n\t"
                   "vmovdqu 64(%0), %%ymm2\n\tvmovdqu 96(%0), %%ymm3\n\t"
                   "vmovdqu 128(%0), %%ymm4\n\tvmovdqu 160(%0), %%ymm5\n\t"
                   "vmovdqu 192(%0), %%ymm6\n\tvmovdqu 224(%0), %%ymm7"
                   :
                   : "r"(from + i * part + at)
                   : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
                     "xmm7", "memory");
  asm volatile("vzeroupper");
}
#endif

void readWords(const std::byte *from) {
  std::uint64_t word = 0;
  for (std::uint64_t at = 0; at < kPiece; at += sizeof(word)) {
    std::memcpy(&word, from + at, sizeof(word));
    asm volatile("" : : "r"(word));
  }
}

Reader chooseReader() {
#if defined(__x86_64__)
  if (CpuFeatures::detect().has("avx512f"))
    return readZmm;
  if (CpuFeatures::detect().has("avx2"))
    return readYmm;
#endif
  return readWords;
}

} // namespace

StatusOr<ReadBandwidth> ReadBandwidth::create(unsigned threads,
                                              std::uint64_t bytes) {
  bytes = std::max(bytes / kPiece, std::uint64_t(1)) * kPiece;
  auto pool = hal::ThreadPool::create(threads);
  if (!pool.ok())
    return pool.status();
  auto memory = hal::HostMemory::allocate(bytes, "the bandwidth's buffer");
  if (!memory.ok())
    return memory.status();
  // Pages that were never written all map to the one zero page.
  std::memset(memory->data(), 1, bytes);
  return ReadBandwidth(pool.take(), memory.take());
}

void ReadBandwidth::read() {
  const Reader read = chooseReader();
  pool->parallelFor(static_cast<std::uint32_t>(memory.size() / kPiece),
                    [&](std::uint32_t begin, std::uint32_t end, unsigned) {
                      for (std::uint64_t piece = begin; piece != end; ++piece)
                        read(memory.data() + piece * kPiece);
                    });
}

} // namespace tessera::bench
