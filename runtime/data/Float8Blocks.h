// The block size of 8-bit float weights in config.json, for the reader of
// configurations and that of weights.
#pragma once
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace tessera {

/// The block of one scale: rows × columns of a matrix.
struct Float8Blocks {
  uint64_t rows, columns;
};

constexpr uint64_t kFloat8LeastColumns = 16, kFloat8MostBlock = uint64_t(1)
                                                                << 20;
inline constexpr const char *kFloat8BlocksWanted =
    "must be rows and columns of a block, at least 1 and 16, at most 1048576";

/// Decimal digits and nothing else.
inline std::optional<uint64_t> float8BlockSize(const char *begin,
                                               const char *end) {
  uint64_t size = 0;
  auto [stop, code] = std::from_chars(begin, end, size);
  return stop == end && code == std::errc() ? std::optional(size)
                                            : std::nullopt;
}

/// A pair of sizes, [128, 128], or as text "128x128"; nothing for all else.
inline std::optional<Float8Blocks> float8BlocksOf(const nlohmann::json &pair) {
  std::optional<uint64_t> rows, columns;
  if (pair.is_string()) {
    const auto &text = pair.get_ref<const std::string &>();
    const char *end = text.data() + text.size();
    if (const std::size_t x = text.find('x'); x != text.npos) {
      rows = float8BlockSize(text.data(), text.data() + x);
      columns = float8BlockSize(text.data() + x + 1, end);
    }
  } else if (pair.is_array() && pair.size() == 2 &&
             pair[0].is_number_unsigned() && pair[1].is_number_unsigned()) {
    rows = pair[0].get<uint64_t>();
    columns = pair[1].get<uint64_t>();
  }
  const bool isGood =
      rows && columns && *rows >= 1 && *rows <= kFloat8MostBlock &&
      *columns >= kFloat8LeastColumns && *columns <= kFloat8MostBlock;
  return isGood ? std::optional(Float8Blocks{*rows, *columns}) : std::nullopt;
}

} // namespace tessera
