// Which ranks take part in a collective.
#pragma once
#include "runtime/support/Status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::comm {

/// Ranks of the job in an order that numbers them as members: member m is rank
/// rankOf(m). All members must name the same ranks in the same order.
class Group {
public:
  /// An error if `ranks` is empty, has duplicates or has one outside of [0,
  /// worldSize).
  static StatusOr<Group> of(std::vector<int> ranks, int worldSize);
  /// All ranks; rank r is member r.
  static Group world(int size);

  int size() const { return static_cast<int>(ranks.size()); }
  int rankOf(int member) const {
    return ranks[static_cast<std::size_t>(member)];
  }
  /// Empty if the rank is not a member.
  std::optional<int> memberOf(int rank) const;
  /// Equal for equal groups; of the ranks and their order.
  std::uint64_t hash() const { return digest; }
  /// "{0,2,4}"; five or more neighbours in a row are "{0..1023}".
  std::string text() const;

private:
  explicit Group(std::vector<int> ranks);
  std::vector<int> ranks;
  std::uint64_t digest = 0;
};

} // namespace tessera::comm
