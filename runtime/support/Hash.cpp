#include "runtime/support/Hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tessera {

std::uint64_t hash64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

Hasher64::Hasher64() : state(XXH3_createState()) {
  XXH3_64bits_reset(static_cast<XXH3_state_t *>(state.get()));
}

void Hasher64::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t *>(state.get()), bytes.data(),
                     bytes.size());
}

std::uint64_t Hasher64::digest() const {
  return XXH3_64bits_digest(static_cast<const XXH3_state_t *>(state.get()));
}

void Hasher64::Free::operator()(void *state) const {
  XXH3_freeState(static_cast<XXH3_state_t *>(state));
}

} // namespace tessera
