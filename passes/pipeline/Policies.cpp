// Every schedule that has a name is a row here.
#include "passes/pipeline/Generate.h"

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

static constexpr Limit none{.unlimited = true};

static constexpr std::array<Policy, 7> table = {{
    {.name = "gpipe",
     .summary = "all forwards, then all backwards",
     .prefer = Prefer::Forward,
     .inFlight = none,
     .live = none},
    {.name = "1f1b",
     .summary = "one forward, one backward",
     .inFlight = {.perRanks = 1, .perRank = -1},
     .live = none},
    {.name = "interleaved",
     .summary = "1f1b over several chunks a rank",
     .minChunks = 2,
     .maxChunks = 1 << 16,
     // 2(p−1−r) forwards cover the way to the last rank and back, (v−1)p the
     // chunks before the last one; one more alternates.
     .inFlight = {.constant = -1, .perRanks = 2, .perRank = -2, .perChunk = 1},
     .live = none},
    {.name = "zb-h1",
     .summary = "1f1b that fills waits with weight gradients, memory of 1f1b",
     .splitBackward = true,
     .inFlight = {.perRanks = 1, .perRank = -1},
     .live = {.perRanks = 1}},
    {.name = "zb-h2",
     .summary = "zb-h1 with twice the memory and hardly a bubble",
     .splitBackward = true,
     .inFlight = {.constant = -1, .perRanks = 2, .perRank = -2},
     .live = {.constant = -1, .perRanks = 2}},
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
     .overlap = true,
     .inFlight = {.perRanks = 1},
     .live = {.constant = 1, .perRanks = 1}},
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
  for (const Policy &each : table)
    known.push_back(each.name);
  return Status::error("there is no schedule {}; use {}", quote(policy),
                       choices(known));
}

} // namespace tessera::pipeline
