#include "dialects/plan/PlanOps.h"
#include "passes/planning/Planning.h"
#include <algorithm>
#include <numeric>

using namespace tessera;

static bool meet(const ArenaRequest &a, const ArenaRequest &b) {
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

  /// Side by side in memory: each request is compared with all before it.
  struct Placed {
    int64_t offset, end;
    int64_t first, last; ///< of all live ranges
    const ArenaRequest *request;
  };
  std::vector<Placed> placed; // by offset
  int64_t arena = 0;
  for (size_t i : order) {
    ArenaRequest &request = requests[i];
    int64_t size = llvm::alignTo(request.bytes, plan::kAlignment), offset = 0;
    const int64_t first = request.lives.front().first,
                  last = request.lives.back().last;
    for (const Placed &other : placed) {
      if (other.last < first || last < other.first ||
          !meet(*other.request, request))
        continue;
      if (offset + size <= other.offset)
        break; // fits below `other`
      offset = std::max(offset, other.end);
    }
    request.offset = offset;
    arena = std::max(arena, offset + size);
    auto at = std::upper_bound(
        placed.begin(), placed.end(), offset,
        [](int64_t a, const Placed &b) { return a < b.offset; });
    placed.insert(at, {offset, offset + size, first, last, &request});
  }
  return arena;
}
