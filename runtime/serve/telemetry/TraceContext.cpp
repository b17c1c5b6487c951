#include "runtime/serve/telemetry/TraceContext.h"

#include <algorithm>
#include <span>

namespace tessera::serve {
namespace {

/// The value of a lower-case digit; the standard allows no others.
std::optional<uint8_t> digitOf(char digit) {
  if (digit >= '0' && digit <= '9')
    return uint8_t(digit - '0');
  if (digit >= 'a' && digit <= 'f')
    return uint8_t(digit - 'a' + 10);
  return std::nullopt;
}

bool readHex(std::string_view text, std::span<uint8_t> to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    const auto high = digitOf(text[2 * i]), low = digitOf(text[2 * i + 1]);
    if (!high || !low)
      return false;
    to[i] = uint8_t(*high << 4 | *low);
  }
  return true;
}

bool isZero(std::span<const uint8_t> id) {
  return std::ranges::all_of(id, [](uint8_t byte) { return byte == 0; });
}

} // namespace

std::optional<TraceContext> parseTraceParent(std::string_view header) {
  constexpr std::size_t length = 55, trace = 3, parent = 36, flags = 53;
  if (header.size() < length)
    return std::nullopt;
  for (std::size_t dash : {trace - 1, parent - 1, flags - 1})
    if (header[dash] != '-')
      return std::nullopt;
  std::array<uint8_t, 1> version, bits;
  TraceContext context;
  if (!readHex(header, version) || version[0] == 0xff ||
      !readHex(header.substr(trace), context.trace) ||
      !readHex(header.substr(parent), context.parent) ||
      !readHex(header.substr(flags), bits))
    return std::nullopt;
  if (header.size() > length && (version[0] == 0 || header[length] != '-'))
    return std::nullopt;
  if (isZero(context.trace) || isZero(context.parent))
    return std::nullopt;
  context.isSampled = bits[0] & 1;
  return context;
}

} // namespace tessera::serve
