#include "runtime/data/chat/Packer.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>

namespace tessera::chat {

std::vector<std::vector<uint32_t>>
packBestFit(std::span<const uint32_t> lengths, uint32_t capacity) {
  std::vector<uint32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return lengths[a] != lengths[b] ? lengths[a] > lengths[b] : a < b;
  });
  std::vector<std::vector<uint32_t>> rows;
  std::map<uint32_t, std::deque<std::size_t>> byRoom; // rows with that much
  for (uint32_t item : order) {
    auto best = byRoom.lower_bound(lengths[item]);
    uint32_t room = capacity;
    std::size_t row = rows.size();
    if (best == byRoom.end()) {
      rows.emplace_back();
    } else {
      room = best->first;
      row = best->second.front();
      best->second.pop_front();
      if (best->second.empty())
        byRoom.erase(best);
    }
    rows[row].push_back(item);
    if (room > lengths[item])
      byRoom[room - lengths[item]].push_back(row);
  }
  return rows;
}

} // namespace tessera::chat
