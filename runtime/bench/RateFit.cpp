#include "runtime/bench/RateFit.h"

#include <array>
#include <cmath>
#include <optional>

namespace tessera::bench {
namespace {

constexpr std::size_t kUnknowns = 3;
using Vector = std::array<double, kUnknowns>;

Vector columnsOf(const RateSample &sample) {
  return {1, sample.work, sample.traffic};
}

/// The unknowns of `used`, by Gaussian elimination of the normal equations;
/// nothing if they are not independent, or one is negative.
std::optional<Vector> solve(std::span<const RateSample> samples,
                            unsigned used) {
  std::array<std::array<double, kUnknowns + 1>, kUnknowns> rows{};
  for (const RateSample &sample : samples) {
    const Vector columns = columnsOf(sample);
    for (std::size_t i = 0; i < kUnknowns; ++i)
      for (std::size_t j = 0; j <= kUnknowns; ++j)
        rows[i][j] += columns[i] *
                      (j == kUnknowns ? sample.seconds : columns[j]) /
                      sample.seconds;
  }
  Vector scale{}, result{};
  for (std::size_t i = 0; i < kUnknowns; ++i)
    scale[i] = std::sqrt(rows[i][i]);
  for (std::size_t i = 0; i < kUnknowns; ++i) {
    const bool isUsed = used >> i & 1U;
    if (isUsed && scale[i] == 0)
      return std::nullopt;
    for (std::size_t j = 0; j < kUnknowns; ++j)
      rows[i][j] = isUsed && (used >> j & 1U) ? rows[i][j] / scale[i] / scale[j]
                                              : double(i == j);
    rows[i][kUnknowns] = isUsed ? rows[i][kUnknowns] / scale[i] : 0;
  }
  constexpr double kIndependent = 1e-9;
  for (std::size_t i = 0; i < kUnknowns; ++i) {
    if (std::abs(rows[i][i]) < kIndependent)
      return std::nullopt;
    for (std::size_t other = 0; other < kUnknowns; ++other) {
      if (other == i)
        continue;
      const double factor = rows[other][i] / rows[i][i];
      for (std::size_t j = 0; j <= kUnknowns; ++j)
        rows[other][j] -= factor * rows[i][j];
    }
  }
  for (std::size_t i = 0; i < kUnknowns; ++i) {
    if (!(used >> i & 1U))
      continue;
    result[i] = rows[i][kUnknowns] / rows[i][i] / scale[i];
    if (!(result[i] >= 0))
      return std::nullopt;
  }
  return result;
}

double errorOf(std::span<const RateSample> samples, const Vector &unknowns) {
  double sum = 0;
  for (const RateSample &sample : samples) {
    const Vector columns = columnsOf(sample);
    double off = -sample.seconds;
    for (std::size_t i = 0; i < kUnknowns; ++i)
      off += unknowns[i] * columns[i];
    sum += off * off / sample.seconds;
  }
  return sum;
}

} // namespace

planner::KernelRate fitRate(std::span<const RateSample> samples) {
  // Few enough unknowns to try which of them are zero.
  std::optional<Vector> best;
  for (unsigned used = 1; used < 1U << kUnknowns; ++used) {
    const std::optional<Vector> found = solve(samples, used);
    if (found && (!best || errorOf(samples, *found) < errorOf(samples, *best)))
      best = found;
  }
  planner::KernelRate rate;
  if (!best)
    return rate;
  rate.launch = (*best)[0];
  rate.flops = (*best)[1] > 0 ? 1 / (*best)[1] : 0;
  rate.bytes = (*best)[2] > 0 ? 1 / (*best)[2] : 0;
  return rate;
}

} // namespace tessera::bench
