#include "runtime/comm/Group.h"

#include "runtime/support/Hash.h"

#include <algorithm>
#include <numeric>
#include <span>

namespace tessera::comm {

Group::Group(std::vector<int> given)
    : ranks(std::move(given)), digest(hash64(std::as_bytes(std::span(ranks)))) {
}

StatusOr<Group> Group::of(std::vector<int> ranks, int worldSize) {
  if (ranks.empty())
    return Status::error("a group needs a rank at least");
  std::vector<bool> seen(static_cast<std::size_t>(std::max(worldSize, 0)));
  for (int rank : ranks) {
    if (rank < 0 || rank >= worldSize)
      return Status::error("a group names rank {}, but the job has ranks 0 to "
                           "{}",
                           rank, worldSize - 1);
    if (seen[static_cast<std::size_t>(rank)])
      return Status::error("a group names rank {} twice", rank);
    seen[static_cast<std::size_t>(rank)] = true;
  }
  return Group(std::move(ranks));
}

Group Group::world(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return Group(std::move(ranks));
}

std::optional<int> Group::memberOf(int rank) const {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  if (found == ranks.end())
    return std::nullopt;
  return static_cast<int>(found - ranks.begin());
}

std::string Group::text() const {
  std::string text;
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1)
      ++last;
    if (last - first < 4)
      last = first;
    text += text.empty() ? "{" : ",";
    text += std::to_string(ranks[first]);
    if (last > first)
      text += ".." + std::to_string(ranks[last]);
    first = last + 1;
  }
  return text + "}";
}

} // namespace tessera::comm
