#include "dialects/plan/PlanOps.h"
#include "passes/planning/Planning.h"
#include <algorithm>
#include <numeric>

using namespace tessera;

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
      if (other.last < request.first || request.last < other.first)
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
