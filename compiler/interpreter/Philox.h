// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy
// as 1, 2, 3", SC 2011. How words become elements is said at graph.random.
#pragma once
#include <array>
#include <cstdint>

namespace tessera::interpreter {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

/// Ten rounds; the words of `counter`, enciphered under `key`.
inline PhiloxCounter philox(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    uint64_t a = uint64_t{0xD2511F53} * counter[0];
    uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

/// The key that graph.random makes of its seed and stream.
inline PhiloxKey philoxKey(int64_t seed, uint32_t stream) {
  auto bits = static_cast<uint64_t>(seed);
  return {static_cast<uint32_t>(bits) ^
              (static_cast<uint32_t>(bits >> 32) * 0x9E3779B9u),
          stream};
}

/// The words that hold element `index` of graph.random; the element's own is
/// index mod 4.
inline PhiloxCounter philoxWords(PhiloxKey key, uint64_t index, int64_t step) {
  uint64_t block = index / 4;
  auto bits = static_cast<uint64_t>(step);
  return philox(
      {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
       static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)},
      key);
}

} // namespace tessera::interpreter
