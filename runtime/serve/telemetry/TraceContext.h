// The trace that a request belongs to, as its client says: W3C Trace Context,
// the header "traceparent".
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::serve {

using TraceId = std::array<uint8_t, 16>;
using SpanId = std::array<uint8_t, 8>;

struct TraceContext {
  TraceId trace{};
  SpanId parent{};
  bool isSampled = false; ///< whether the client records this trace
};

/// Of "00-TRACE-SPAN-FLAGS" in hexadecimal digits, or a later version that
/// begins so. Nothing if it is malformed or one of its ids is zero: the
/// standard says to start a trace then.
std::optional<TraceContext> parseTraceParent(std::string_view header);

/// Two lower-case hexadecimal digits a byte.
template <std::size_t N> std::string hex(const std::array<uint8_t, N> &bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (uint8_t byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

} // namespace tessera::serve
