#include "runtime/bench/MemoryBench.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace tessera::bench {
namespace {

constexpr std::size_t kBytes = std::size_t(512) << 20;
constexpr int kPasses = 7;

/// Where sums go, so that reading is not optimized away.
std::atomic<std::uint64_t> sink;

void read(const std::uint64_t *from, std::size_t words) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < words; ++i)
    sum += from[i];
  sink.fetch_add(sum, std::memory_order_relaxed);
}

class MemoryBench {
public:
  explicit MemoryBench(unsigned threads)
      : threads(threads), from(kBytes / sizeof(std::uint64_t), 1),
        to(kBytes / sizeof(std::uint64_t), 2) {}

  /// Bytes per second of one pass, of which each thread does a part.
  template <typename Body> double rateOf(double bytes, Body body) {
    std::vector<double> rates;
    for (int pass = 0; pass < kPasses; ++pass) {
      const auto start = std::chrono::steady_clock::now();
      std::vector<std::thread> all;
      const std::size_t part = from.size() / threads;
      for (unsigned t = 0; t < threads; ++t)
        all.emplace_back([&, t] { body(t * part, part); });
      for (std::thread &each : all)
        each.join();
      const std::chrono::duration<double> took =
          std::chrono::steady_clock::now() - start;
      rates.push_back(bytes / took.count());
    }
    std::ranges::sort(rates);
    const double median = rates[kPasses / 2];
    spread = std::max(spread,
                      (rates[kPasses * 3 / 4] - rates[kPasses / 4]) / median);
    return median;
  }

  const unsigned threads;
  std::vector<std::uint64_t> from, to;
  double spread = 0;
};

} // namespace

MemoryTime benchMemory(unsigned threads) {
  MemoryBench bench(threads);
  MemoryTime result;
  result.rate.read =
      bench.rateOf(kBytes, [&](std::size_t first, std::size_t words) {
        read(bench.from.data() + first, words);
      });
  result.rate.write =
      bench.rateOf(kBytes, [&](std::size_t first, std::size_t words) {
        std::memset(bench.to.data() + first, 3, words * sizeof(std::uint64_t));
      });
  result.rate.copy =
      bench.rateOf(2.0 * kBytes, [&](std::size_t first, std::size_t words) {
        std::memcpy(bench.to.data() + first, bench.from.data() + first,
                    words * sizeof(std::uint64_t));
      });
  result.spread = bench.spread;
  return result;
}

} // namespace tessera::bench
