#include "dialects/plan/PlanOps.h"
#include "passes/planning/Planning.h"
#include <algorithm>
#include <numeric>

using namespace tessera;

static bool meet(const ArenaRequest &a, const ArenaRequest &b) {
  if (a.lives.back().last < b.lives.front().first ||
      b.lives.back().last < a.lives.front().first)
    return false;
  for (size_t i = 0, j = 0; i < a.lives.size() && j < b.lives.size();) {
    if (a.lives[i].last < b.lives[j].first)
      ++i;
    else if (b.lives[j].last < a.lives[i].first)
      ++j;
    else
      return true;
  }
  return false;
}

int64_t tessera::assignOffsets(llvm::MutableArrayRef<ArenaRequest> requests) {
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::make_tuple(-requests[a].bytes, a) <
           std::make_tuple(-requests[b].bytes, b);
  });

  std::vector<size_t> placed; // by offset
  int64_t arena = 0;
  for (size_t i : order) {
    ArenaRequest &request = requests[i];
    int64_t size = llvm::alignTo(request.bytes, plan::kAlignment), offset = 0;
    for (size_t j : placed) {
      const ArenaRequest &other = requests[j];
      if (!meet(other, request))
        continue;
      if (offset + size <= other.offset)
        break; // fits below `other`
      offset = std::max<int64_t>(
          offset, other.offset + llvm::alignTo(other.bytes, plan::kAlignment));
    }
    request.offset = offset;
    arena = std::max(arena, offset + size);
    auto at = std::upper_bound(placed.begin(), placed.end(), i,
                               [&](size_t a, size_t b) {
                                 return requests[a].offset < requests[b].offset;
                               });
    placed.insert(at, i);
  }
  return arena;
}
