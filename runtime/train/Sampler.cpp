#include "runtime/train/Sampler.h"
#include "runtime/support/Philox.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera {

Status checkSampling(const SamplingOptions &options) {
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature))
    return Status::error("temperature must be at least 0, got: {}",
                         options.temperature);
  if (options.topK < 0)
    return Status::error("top-k must be at least 0, got: {}", options.topK);
  if (!(options.topP > 0) || options.topP > 1)
    return Status::error("top-p must be above 0 and at most 1, got: {}",
                         options.topP);
  if (!(options.minP >= 0) || options.minP > 1)
    return Status::error("min-p must be from 0 to 1, got: {}", options.minP);
  if (!(options.repetitionPenalty > 0) ||
      !std::isfinite(options.repetitionPenalty))
    return Status::error("repetition penalty must be above 0, got: {}",
                         options.repetitionPenalty);
  for (auto [name, penalty] : {std::pair{"presence", options.presencePenalty},
                               {"frequency", options.frequencyPenalty}})
    if (!std::isfinite(penalty))
      return Status::error("{} penalty must be a finite number, got: {}", name,
                           penalty);
  return Status::success();
}

std::span<const float> Sampler::penalized(std::span<const float> logits,
                                          std::span<const int32_t> text,
                                          std::size_t prompt) {
  if (!options.penalizes())
    return logits;
  enum : uint8_t { repeated = 1, present = 2 };
  changed.assign(logits.begin(), logits.end());
  counted.assign(logits.size(), 0);
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto token = std::size_t(text[i]);
    if (text[i] < 0 || token >= changed.size() || (counted[token] & repeated))
      continue;
    counted[token] |= repeated;
    float &logit = changed[token];
    logit = logit > 0 ? logit / options.repetitionPenalty
                      : logit * options.repetitionPenalty;
  }
  for (std::size_t i = prompt; i < text.size(); ++i) {
    auto token = std::size_t(text[i]);
    if (text[i] < 0 || token >= changed.size())
      continue;
    changed[token] -= options.frequencyPenalty;
    if (!(counted[token] & present))
      changed[token] -= options.presencePenalty;
    counted[token] |= present;
  }
  return changed;
}

StatusOr<int32_t> Sampler::sample(std::span<const float> logits,
                                  uint64_t draw) {
  float best = -std::numeric_limits<float>::infinity();
  std::size_t bestIndex = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]))
      return Status::error("the logit of token {} is nan; the weights are "
                           "damaged or training diverged",
                           i);
    if (logits[i] > best) {
      best = logits[i];
      bestIndex = i;
    }
  }
  if (std::isinf(best))
    return Status::error("no token has a finite logit; the weights are damaged "
                         "or training diverged");
  if (options.temperature == 0)
    return int32_t(bestIndex);

  // Weights relative to the best: exp((l - best) / temperature), in double so
  // that a tiny temperature gives zero and never NaN.
  candidates.clear();
  for (std::size_t i = 0; i < logits.size(); ++i)
    candidates.emplace_back(
        float(std::exp((double(logits[i]) - best) / options.temperature)),
        int32_t(i));
  auto likelier = [](const auto &a, const auto &b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  std::size_t kept = candidates.size();
  if (options.topK > 0 && std::size_t(options.topK) < kept) {
    kept = std::size_t(options.topK);
    std::nth_element(candidates.begin(), candidates.begin() + long(kept),
                     candidates.end(), likelier);
    candidates.resize(kept);
  }
  std::sort(candidates.begin(), candidates.end(), likelier);
  double total = 0;
  for (const auto &[weight, index] : candidates)
    total += weight;
  if (options.topP < 1) {
    double bound = total * double(options.topP), sum = 0;
    kept = 0;
    while (kept < candidates.size() && sum < bound)
      sum += candidates[kept++].first;
    total = sum;
  } else {
    kept = candidates.size();
  }
  // The best one's weight is 1.
  while (kept > 1 && candidates[kept - 1].first < options.minP)
    total -= candidates[--kept].first;

  PhiloxCounter words =
      philox4x32({uint32_t(draw), uint32_t(draw >> 32), 0, 0},
                 {uint32_t(options.seed), uint32_t(options.seed >> 32)});
  // 53 random bits, so that tokens of probability 2^-24 and less are reached.
  uint64_t bits = (uint64_t(words[0]) << 32 | words[1]) >> 11;
  double place = double(bits) * 0x1p-53 * total;
  for (std::size_t i = 0; i < kept; ++i) {
    place -= candidates[i].first;
    if (place < 0)
      return candidates[i].second;
  }
  // Rounding may leave a rest; the last candidate of weight is next to it.
  while (kept > 1 && candidates[kept - 1].first == 0)
    --kept;
  return candidates[kept - 1].second;
}

} // namespace tessera
