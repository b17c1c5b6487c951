// What says to a program over a cache where its tokens stand, for timing: every
// sequence is about to fill its context.
#pragma once
#include "runtime/hal/Session.h"

#include <cstdint>
#include <vector>

namespace tessera {

/// Values of `input` where it is one of slots, table, starts, lengths, states,
/// last and changed of a program over the session's cache (runtime/infer);
/// otherwise empty. Sequences share pages where the cache has fewer than all of
/// them take.
std::vector<std::int32_t> cachedInput(const hal::Session &session,
                                      std::string_view program,
                                      const hal::TensorInfo &input);

} // namespace tessera
