// Numbers that look random, of one 64-bit word of state: SplitMix64 (Steele,
// Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014). For test
// data and for orders; dropout has Philox.h.
#pragma once
#include <cstdint>

namespace tessera {

/// What the state grows by: 2^64 divided by the golden ratio, to the nearest
/// odd number.
inline constexpr std::uint64_t kGoldenGamma = 0x9e3779b97f4a7c15;

/// The generator's finalizer, a permutation: every bit of `value` changes every
/// bit of the result with probability near one half.
constexpr std::uint64_t mix64(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

class SplitMix64 {
public:
  constexpr explicit SplitMix64(std::uint64_t seed) : state(seed) {}
  constexpr std::uint64_t operator()() { return mix64(state += kGoldenGamma); }

private:
  std::uint64_t state;
};

} // namespace tessera
