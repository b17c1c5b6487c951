// Bounds of keys that are bounds elsewhere, too.
#pragma once
#include <cstdint>

namespace tessera::recipe {

/// Of distill.top: the loss compares each logit with each token of the teacher.
inline constexpr int64_t kMostTeacherTokens = 256;

} // namespace tessera::recipe
