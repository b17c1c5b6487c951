// Philox4x32-10, the counter-based generator of initialization and dropout
// (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011). The same function as generated kernels compute, on the host.
#pragma once
#include <array>
#include <cstdint>

namespace tessera {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

/// The four random words that belong to (key, counter). A pure function: equal
/// arguments give equal words on every machine, thread and sharding.
constexpr PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  constexpr std::uint64_t multiplier0 = 0xD2511F53, multiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t weyl0 = 0x9E3779B9, weyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = multiplier0 * counter[0];
    const std::uint64_t product1 = multiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key[0] += weyl0;
    key[1] += weyl1;
  }
  return counter;
}

/// Uniform in [0, 1): the word's upper 24 bits times 2^-24, exact in fp32.
constexpr float philoxUniform(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

} // namespace tessera
