// The order of threads: drawn at every switch, so it must cost little.
#pragma once
#include <cstdint>

namespace tessera::emulated {

/// SplitMix64 (Steele, Lea & Flood 2014).
class Random {
public:
  using result_type = std::uint64_t;
  explicit Random(std::uint64_t seed) : state(seed) {}
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return ~result_type(0); }
  result_type operator()() {
    std::uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }

private:
  std::uint64_t state;
};

} // namespace tessera::emulated
