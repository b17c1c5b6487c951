// What a command says besides its output.
#pragma once
#include <cstdio>
#include <string_view>

#include <fmt/format.h>

namespace tessera {

/// A line on standard error.
inline void note(std::string_view line) {
  fmt::print(stderr, "tessera: {}\n", line);
}

} // namespace tessera
