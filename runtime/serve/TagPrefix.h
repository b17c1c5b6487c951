// White space and tags in a stream of output.
#pragma once
#include <algorithm>
#include <cstddef>
#include <string_view>

namespace tessera::serve {

inline constexpr std::string_view kBlank = " \t\r\n";

/// The length of the longest suffix of the text that could begin the tag.
inline std::size_t tagPrefixLength(std::string_view text,
                                   std::string_view tag) {
  std::size_t length = std::min(tag.size() - 1, text.size());
  while (!tag.starts_with(text.substr(text.size() - length)))
    --length;
  return length;
}

} // namespace tessera::serve
