// Random collectives with what they must compute, by plain loops over all
// members' numbers. Everything follows from a seed, so each rank knows what the
// others hold and nothing is compared over the channel that is tested.
#pragma once
#include "runtime/comm/Channel.h"

#include <random>
#include <vector>

namespace tessera::comm {

/// One collective, all members' side of it.
struct CollectiveCase {
  /// The same on all ranks for the same seed. Counts are small or large, uneven
  /// and zero; `members` of them where the collective has one for each.
  CollectiveCase(std::uint64_t seed, int members);

  CollectiveKind kind;
  ElementType type;
  Reduction reduction;
  std::uint64_t count;                            ///< all_reduce, broadcast
  std::vector<std::vector<std::uint64_t>> matrix; ///< [from][to] elements
  int root, shift;                                ///< exchange: to me + shift
  std::vector<std::vector<std::byte>> inputs;     ///< [member]
  std::vector<std::vector<std::byte>> expected;   ///< [member]

  /// What `me` calls; `output` is given the size of expected[me]. Where a
  /// collective works in place it holds the input.
  Collective of(int me, std::vector<std::byte> &output) const;
  std::string text() const;

private:
  void makeInputs(std::mt19937_64 &random);
  void makeExpected();
};

} // namespace tessera::comm
