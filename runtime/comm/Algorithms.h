// The algorithm of each collective, over messages between pairs of members.
#pragma once
#include "runtime/comm/Collective.h"
#include "runtime/comm/Steps.h"
#include "runtime/comm/Traffic.h"

#include <vector>

namespace tessera::comm {

/// Memory between messages and results. Grows to what was ever needed;
/// stagingBytes() says how much that is.
using Staging = std::vector<std::byte>;

/// Bytes of which smaller gathers and reductions are done in ⌈log₂ n⌉ rounds
/// instead of n - 1, all members' together.
inline constexpr std::uint64_t kSmallBytes = 64 << 10;
/// Limit of the contributions to a reduction that are buffered, of all members.
inline constexpr std::uint64_t kStagingBytes = 4 << 20;

/// The algorithms for n members, V bytes in all (messages in sequence, traffic
/// of a member):
///   barrier         dissemination                         log₂ n, -
///   broadcast       binomial tree                         log₂ n, V log₂ n
///   all_gather      ring; small: Bruck                    n - 1, V (n - 1)/n
///   reduce_scatter  pairwise, everybody's part at once    V/S, V (n - 1)/n
///   all_reduce      both; small: Bruck, all reduce all    n + V/S, 2 V (n-1)/n
///   all_to_all      pairwise, everybody's at once         1, V (n - 1)/n
/// Any number of members. Bruck et al., "Efficient algorithms for all-to-all
/// communications in multiport message-passing systems", 1997; Hensgen, Finkel,
/// Manber, "Two algorithms for barrier synchronization", 1988. A reduction
/// sends contributions unreduced and adds them at the destination: a ring that
/// adds at every hop would round bf16 at each.
///
/// Bytes of staging that member `me` of `members` needs.
std::uint64_t stagingBytes(const Collective &collective, int members, int me);

/// The collective was checked; all arguments outlive the steps.
Steps runCollective(const Collective &collective, Traffic &traffic,
                    Staging &staging);

} // namespace tessera::comm
