#include "runtime/rl/PackSamples.h"
#include "runtime/data/EmptyBatch.h"

#include <algorithm>

namespace tessera::rl {
namespace {

struct Placed {
  const Group *group;
  const Sample *sample;
  double advantage;
  int64_t positions;
  int64_t number; ///< among all
};

struct Row {
  int64_t used = 0, documents = 0;
};

void put(const Placed &placed, int64_t begin, int32_t document,
         int64_t rowBegin, TokenBatchOut out) {
  const auto &prompt = placed.group->promptTokens;
  const auto &completion = placed.sample->tokens;
  const auto tokenAt = [&](int64_t i) {
    const auto length = int64_t(prompt.size());
    return i < length ? prompt[size_t(i)] : completion[size_t(i - length)];
  };
  for (int64_t i = 0; i < placed.positions; ++i) {
    const auto at = std::size_t(rowBegin + begin + i);
    out.tokens[at] = tokenAt(i);
    if (!out.documentStarts.empty())
      out.documentStarts[at] = int32_t(begin);
    if (!out.documentNumbers.empty())
      out.documentNumbers[at] = document;
    const int64_t next = i + 1 - int64_t(prompt.size());
    if (next < 0)
      continue;
    out.targets[at] = completion[size_t(next)];
    if (!out.behavior.empty())
      out.behavior[at] = placed.sample->logProbs[size_t(next)];
    if (!out.reference.empty() && !placed.sample->referenceLogProbs.empty())
      out.reference[at] = placed.sample->referenceLogProbs[size_t(next)];
    if (!out.advantages.empty())
      out.advantages[at] = float(placed.advantage);
    const bool isLast = size_t(next) + 1 == completion.size();
    if (!out.rewards.empty() && isLast)
      out.rewards[at] = float(*placed.sample->reward);
  }
}

} // namespace

bool alwaysFits(const BatchShape &shape, int64_t samples, int64_t positions) {
  return shape.inSequence(positions) * shape.rows >= samples;
}

Status packSamples(std::span<const Group> groups,
                   std::span<const std::vector<double>> advantages,
                   const BatchShape &shape, TokenBatchOut out) {
  std::vector<Placed> all;
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (std::size_t s = 0; s < groups[g].samples.size(); ++s)
      if (const Sample &sample = groups[g].samples[s];
          sample.reward && !sample.tokens.empty())
        all.push_back({&groups[g], &sample, advantages[g][s],
                       positionsOf(groups[g], sample), int64_t(all.size())});
  // Longest first; of one length in the order of the groups.
  std::ranges::sort(all, std::greater(), [](const Placed &placed) {
    return std::pair(placed.positions, -placed.number);
  });

  clearBatch(out);
  std::vector<Row> rows(size_t(shape.rows));
  for (const Placed &placed : all) {
    const auto row = std::ranges::find_if(rows, [&](const Row &row) {
      return row.used + placed.positions <= shape.sequence &&
             row.documents < shape.documents;
    });
    if (row == rows.end())
      return Status::error("{} completions do not fit {} sequences of {} "
                           "tokens; raise batch.micro, batch.accumulate or "
                           "batch.sequence",
                           all.size(), shape.rows, shape.sequence);
    put(placed, row->used, int32_t(row->documents),
        (row - rows.begin()) * shape.sequence, out);
    row->used += placed.positions;
    ++row->documents;
  }
  std::vector<int64_t> used;
  for (const Row &row : rows)
    used.push_back(row.used);
  startPadding(used, shape.sequence, out);
  return Status::success();
}

} // namespace tessera::rl
