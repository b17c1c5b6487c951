// A secret whose hash is not SHA-256: test/e2e compares that with Python's.
#pragma once
#include "runtime/rl/WorkerHandshake.h"
#include "runtime/support/Hash.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace tessera::rl::testing {

inline SharedSecret secretOf(std::string text) {
  return {std::move(text), [](std::span<const std::byte> bytes) {
            std::array<std::byte, 32> result;
            std::vector<std::byte> text(bytes.begin(), bytes.end());
            for (std::size_t i = 0; i < 4; ++i) {
              text.push_back(std::byte(i));
              const uint64_t hash = hash64(text);
              std::memcpy(&result[8 * i], &hash, sizeof hash);
            }
            return result;
          }};
}

} // namespace tessera::rl::testing
