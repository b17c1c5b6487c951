// One row for each schedule with a name.
#include "parallelism/pipeline/Generate.h"

#include <algorithm>
#include <array>
#include <climits>

#include "runtime/support/Text.h"

namespace tessera::pipeline {

int Limit::of(int ranks, int rank, int chunks) const {
  if (unlimited)
    return INT_MAX;
  const int64_t bound = int64_t(constant) + int64_t(perRanks) * ranks +
                        int64_t(perRank) * rank +
                        int64_t(perChunk) * (chunks - 1) * ranks;
  return int(std::clamp<int64_t>(bound, 1, INT_MAX));
}

int Phase::count(Placement placement, const Shape &shape, int rank) const {
  const bool both = placement == Placement::Bidirectional;
  const int directions = both ? 2 : 1;
  const int depth = both ? std::min(rank, shape.ranks - 1 - rank) : rank;
  return constant + perRanks * (shape.ranks / directions) + perDepth * depth +
         perMicrobatches * (shape.microbatches / directions);
}

static constexpr Limit none{.unlimited = true};

// DualPipe (DeepSeek-V3 technical report, section 3.2.1, and the schedule that
// was published with it): both chains fill, backwards of the other chain start,
// every F is overlapped with a B, then the pipeline drains. DualPipe-V has the
// moves of the first half of its ranks: stage s of one chain and stage S-1-s of
// the other are on one rank there, and in a V both are of one chain.
static constexpr Move forwardOwn{.forward = Side::Own};
static constexpr Move forwardOther{.forward = Side::Other};
static constexpr Move backwardOwn{.backward = Side::Own};
static constexpr Move backwardOther{.backward = Side::Other};
static constexpr Move ownUnderOther{Side::Own, Side::Other};
static constexpr Move otherUnderOwn{Side::Other, Side::Own};
static constexpr std::array<Move, 1> fill = {{forwardOwn}};
static constexpr std::array<Move, 2> fillBoth = {{forwardOwn, forwardOther}};
static constexpr std::array<Move, 2> turn = {{backwardOther, forwardOther}};
static constexpr std::array<Move, 2> steady = {{ownUnderOther, otherUnderOwn}};
static constexpr std::array<Move, 2> last = {{backwardOther, otherUnderOwn}};
static constexpr std::array<Move, 2> drain = {{backwardOther, backwardOwn}};
static constexpr std::array<Move, 1> drainOwn = {{backwardOwn}};
static constexpr std::array<Phase, 7> dualPipe = {{
    {.moves = fill, .constant = -2, .perRanks = 2, .perDepth = -2},
    {.moves = fillBoth, .constant = 1, .perDepth = 1},
    {.moves = turn, .constant = -1, .perRanks = 1, .perDepth = -1},
    {.moves = steady,
     .constant = 1,
     .perRanks = -2,
     .perDepth = 1,
     .perMicrobatches = 1},
    {.moves = last, .constant = -1, .perRanks = 1, .perDepth = -1},
    {.moves = drain, .constant = 1, .perDepth = 1},
    {.moves = drainOwn, .constant = -1, .perRanks = 1, .perDepth = -1},
}};

static constexpr std::array<Policy, 7> table = {{
    {.name = "gpipe",
     .summary = "all forwards, then all backwards",
     .prefer = Prefer::Forward,
     .inFlight = none,
     .live = none},
    {.name = "1f1b",
     .summary = "one forward, one backward",
     .prefer = Prefer::Alternate,
     .inFlight = {.perRanks = 1, .perRank = -1},
     .live = none},
    {.name = "interleaved",
     .summary = "1f1b over several chunks per rank",
     .prefer = Prefer::Alternate,
     .minChunks = 2,
     .maxChunks = 1 << 16,
     // 2(p−1−r) forwards cover the way to the last rank and back, (v−1)p the
     // chunks before the last one; one more alternates.
     .inFlight = {.constant = -1, .perRanks = 2, .perRank = -2, .perChunk = 1},
     .live = none},
    {.name = "zb-h1",
     .summary = "1f1b that fills waits with weight gradients, memory of 1f1b",
     .prefer = Prefer::Alternate,
     .splitBackward = true,
     .inFlight = {.perRanks = 1, .perRank = -1},
     .live = {.perRanks = 1}},
    {.name = "zb-v",
     .summary = "two chunks in a V, split backwards, memory of 1f1b",
     .placement = Placement::Zigzag,
     .prefer = Prefer::Alternate,
     .splitBackward = true,
     .minChunks = 2,
     .maxChunks = 2,
     .inFlight = {.perRanks = 2},
     .live = {.perRanks = 2}},
    {.name = "dualpipe",
     .summary = "two directions at once, forward and backward overlapped",
     .placement = Placement::Bidirectional,
     .splitBackward = true,
     .phases = dualPipe,
     .inFlight = none,
     .live = {.constant = 1, .perRanks = 1}},
    {.name = "dualpipev",
     .summary = "dualpipe in a V: two chunks, parameters once",
     .placement = Placement::Zigzag,
     .splitBackward = true,
     .minChunks = 2,
     .maxChunks = 2,
     .phases = dualPipe,
     .inFlight = none,
     .live = {.constant = 1, .perRanks = 2}},
}};

std::span<const Policy> policies() { return table; }

const Policy *findPolicy(std::string_view name) {
  for (const Policy &policy : table)
    if (policy.name == name)
      return &policy;
  return nullptr;
}

StatusOr<Schedule> generate(std::string_view policy, const Shape &shape,
                            const Costs &costs, int memory) {
  if (const Policy *found = findPolicy(policy))
    return generate(*found, shape, costs, memory);
  std::vector<std::string_view> known;
  known.reserve(table.size());
  for (const Policy &each : table)
    known.push_back(each.name);
  return Status::error("unknown schedule {}; use {}", quote(policy),
                       choices(known));
}

} // namespace tessera::pipeline
