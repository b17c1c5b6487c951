#include "runtime/hal/null/ByteSet.h"

#include <algorithm>
#include <iterator>

namespace tessera::hal {

void ByteSet::insert(std::uint64_t begin, std::uint64_t end) {
  if (begin >= end)
    return;
  auto range = ranges.upper_bound(begin);
  if (range != ranges.begin() && std::prev(range)->second >= begin)
    --range;
  while (range != ranges.end() && range->first <= end) {
    begin = std::min(begin, range->first);
    end = std::max(end, range->second);
    range = ranges.erase(range);
  }
  ranges.emplace_hint(range, begin, end);
}

std::uint64_t ByteSet::firstMissing(std::uint64_t begin,
                                    std::uint64_t end) const {
  if (begin >= end)
    return end;
  const auto after = ranges.upper_bound(begin);
  if (after == ranges.begin() || std::prev(after)->second <= begin)
    return begin;
  return std::min(std::prev(after)->second, end);
}

} // namespace tessera::hal
