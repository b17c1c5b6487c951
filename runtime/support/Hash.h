// Integrity hashes: XXH3, 64 bits. They find accidents (a torn write, a flipped
// bit), not an adversary.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace tessera {

/// XXH3-64 of `bytes`, seed 0.
std::uint64_t hash64(std::span<const std::byte> bytes);

/// The same hash of bytes that arrive in pieces.
class Hasher64 {
public:
  Hasher64();
  void update(std::span<const std::byte> bytes);
  std::uint64_t digest() const;

private:
  struct Free {
    void operator()(void *state) const;
  };
  std::unique_ptr<void, Free> state;
};

} // namespace tessera
