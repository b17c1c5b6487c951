#include "runtime/infer/engine/DraftCounts.h"

#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

constexpr double kNewest = 0.1; ///< weight of the newest outcome or time
// A sequence without drafts, and a step of a size that is not used, are tried
// again some time: what was seen of them may be old, or an accident.
constexpr double kReturn = 0.003;

void takeIn(double &average, double seconds) {
  average = average == 0 ? seconds : average + kNewest * (seconds - average);
}

} // namespace

void DraftChance::outcome(int64_t drafted, int64_t accepted) {
  if (drafted == 0 && chance < usual)
    chance += kReturn * (usual - chance);
  for (int64_t i = 0; i < accepted; ++i)
    chance += kNewest * (1 - chance);
  if (accepted < drafted)
    chance -= kNewest * chance;
}

DraftCounts::DraftCounts(std::vector<int64_t> given)
    : buckets(std::move(given)), steps(buckets.size()) {}

std::size_t DraftCounts::bucketOf(int64_t rows) const {
  const auto found = std::ranges::lower_bound(buckets, rows);
  return std::min(std::size_t(found - buckets.begin()), buckets.size() - 1);
}

// Each row goes to the draft that is the likeliest to be accepted, which is so
// only if all before it are. Of all numbers of rows the best one is taken.
std::vector<int64_t>
DraftCounts::choose(std::span<const Candidate> sequences) const {
  std::vector<int64_t> counts(sequences.size()), best = counts;
  std::vector<double> gains;
  for (const Candidate &each : sequences)
    gains.push_back(each.room > 0 ? each.chance : 0);
  double tokens = double(sequences.size()), most = 0, stepSeconds = 0;
  std::size_t bucket = 0;
  for (auto rows = int64_t(sequences.size()); rows <= buckets.back(); ++rows) {
    // A step of more rows takes at least as long, as far as is known.
    for (; bucket <= bucketOf(rows); ++bucket)
      stepSeconds = std::max(stepSeconds, steps[bucket]);
    const double seconds =
        stepSeconds + double(std::ranges::max(counts)) * draft;
    const double rate = seconds > 0 ? tokens / seconds : tokens;
    if (rate > most) {
      most = rate;
      best = counts;
    }
    const auto next =
        std::size_t(std::ranges::max_element(gains) - gains.begin());
    if (gains[next] <= 0)
      break;
    tokens += gains[next];
    const bool isLast = ++counts[next] == sequences[next].room;
    gains[next] = isLast ? 0 : gains[next] * sequences[next].chance;
  }
  return best;
}

void DraftCounts::tookStep(int64_t rows, double seconds) {
  for (double &other : steps)
    other *= 1 - kReturn;
  takeIn(steps[bucketOf(rows)], seconds);
}

void DraftCounts::tookDrafts(int64_t count, double seconds) {
  if (count > 0)
    takeIn(draft, seconds / double(count));
}

} // namespace tessera
