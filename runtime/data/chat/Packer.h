// Best-fit decreasing: items into rows of a fixed capacity.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace tessera::chat {

/// Rows of item numbers; the lengths of a row add up to at most `capacity`,
/// which no length exceeds. Longest first, each item goes to the row with the
/// least room that it fits, of several to the oldest. At most 11/9 of the least
/// possible number of rows, plus one (Johnson 1973). O(n log n).
std::vector<std::vector<uint32_t>>
packBestFit(std::span<const uint32_t> lengths, uint32_t capacity);

} // namespace tessera::chat
