#include "runtime/infer/Sampler.h"
#include "runtime/support/Philox.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera {
namespace {

bool likelier(const std::pair<float, int32_t> &a,
              const std::pair<float, int32_t> &b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

/// The index of the largest logit.
StatusOr<std::size_t> bestOf(std::span<const float> logits) {
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
  return bestIndex;
}

} // namespace

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
    return Status::error("min-p must be at least 0 and at most 1, got: {}",
                         options.minP);
  if (!(options.repetitionPenalty > 0) ||
      !std::isfinite(options.repetitionPenalty))
    return Status::error("repetition penalty must be above 0, got: {}",
                         options.repetitionPenalty);
  for (float penalty : {options.presencePenalty, options.frequencyPenalty})
    if (!std::isfinite(penalty))
      return Status::error("a penalty must be finite, got: {}", penalty);
  for (const auto &[token, bias] : options.bias)
    if (!std::isfinite(bias))
      return Status::error("the bias of token {} must be finite, got: {}",
                           token, bias);
  return Status::success();
}

void Sampler::sawPrompt(std::span<const int32_t> tokens) {
  if (options.repetitionPenalty != 1)
    for (int32_t token : tokens)
      seen.try_emplace(token, 0);
}

void Sampler::saw(int32_t token) {
  if (options.repetitionPenalty != 1 || options.presencePenalty != 0 ||
      options.frequencyPenalty != 0)
    ++seen[token];
}

std::span<const float> Sampler::adjust(std::span<const float> logits,
                                       const TokenMask *allowed) {
  if (options.bias.empty() && seen.empty() && !allowed)
    return logits;
  adjusted.assign(logits.begin(), logits.end());
  for (std::size_t i = 0; allowed && i < adjusted.size(); ++i)
    if (!allowed->contains(i))
      adjusted[i] = -std::numeric_limits<float>::infinity();
  for (const auto &[token, bias] : options.bias)
    if (std::size_t(token) < adjusted.size())
      adjusted[token] += bias;
  for (const auto &[token, count] : seen) {
    if (std::size_t(token) >= adjusted.size())
      continue;
    float &logit = adjusted[token];
    logit = logit > 0 ? logit / options.repetitionPenalty
                      : logit * options.repetitionPenalty;
    logit -= options.frequencyPenalty * float(count);
    if (count > 0)
      logit -= options.presencePenalty;
  }
  return adjusted;
}

double Sampler::weigh(std::span<const float> logits, float best) {
  // Weights relative to the best: exp((l - best) / temperature), in double so
  // that a tiny temperature gives zero and never NaN.
  candidates.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    auto weight =
        float(std::exp((double(logits[i]) - best) / options.temperature));
    if (weight >= options.minP)
      candidates.emplace_back(weight, int32_t(i));
  }
  if (options.topK > 0 && std::size_t(options.topK) < candidates.size()) {
    std::nth_element(candidates.begin(),
                     candidates.begin() + long(options.topK), candidates.end(),
                     likelier);
    candidates.resize(std::size_t(options.topK));
    // What nth_element leaves is in no order that a library promises.
    std::sort(candidates.begin(), candidates.end(), likelier);
  }
  double total = 0;
  for (const auto &[weight, index] : candidates)
    total += weight;
  return total;
}

// Sorts no more than it must: of a large vocabulary a few tokens have most of
// the probability.
double Sampler::keepTopP(double total) {
  double bound = total * double(options.topP), sum = 0;
  std::size_t kept = 0, sorted = 0;
  while (kept < candidates.size() && sum < bound) {
    if (kept == sorted) {
      sorted = std::min(candidates.size(), std::max<std::size_t>(64, 4 * kept));
      std::partial_sort(candidates.begin() + long(kept),
                        candidates.begin() + long(sorted), candidates.end(),
                        likelier);
    }
    sum += candidates[kept++].first;
  }
  candidates.resize(kept);
  return sum;
}

StatusOr<int32_t> Sampler::sample(std::span<const float> logits, uint64_t draw,
                                  const TokenMask *allowed) {
  logits = adjust(logits, allowed);
  StatusOr<std::size_t> best = bestOf(logits);
  if (!best.ok())
    return best.status();
  if (options.temperature == 0)
    return int32_t(*best);
  double total = weigh(logits, logits[*best]);
  if (options.topP < 1)
    total = keepTopP(total);

  PhiloxCounter words =
      philox4x32({uint32_t(draw), uint32_t(draw >> 32), 0, 0},
                 {uint32_t(options.seed), uint32_t(options.seed >> 32)});
  // 53 random bits, so that tokens of probability 2^-24 and less are reached.
  uint64_t bits = (uint64_t(words[0]) << 32 | words[1]) >> 11;
  double place = double(bits) * 0x1p-53 * total;
  for (const auto &[weight, index] : candidates) {
    place -= weight;
    if (place < 0)
      return index;
  }
  // Rounding may leave a rest; the last candidate of weight is next to it.
  while (candidates.size() > 1 && candidates.back().first == 0)
    candidates.pop_back();
  return candidates.back().second;
}

TokenLogprobs logprobsOf(std::span<const float> logits, int32_t chosen,
                         int64_t top) {
  std::vector<std::pair<float, int32_t>> order;
  order.reserve(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    order.emplace_back(logits[i], int32_t(i));
  top = std::min(top, int64_t(order.size()));
  std::partial_sort(order.begin(), order.begin() + long(top), order.end(),
                    likelier);
  double best = *std::max_element(logits.begin(), logits.end()), sum = 0;
  for (float logit : logits)
    sum += std::exp(double(logit) - best);
  double log = best + std::log(sum);
  TokenLogprobs result;
  // A prompt may have tokens that are never chosen.
  result.chosen = std::size_t(chosen) < logits.size()
                      ? float(double(logits[chosen]) - log)
                      : -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < top; ++i)
    result.top.emplace_back(order[i].second,
                            float(double(order[i].first) - log));
  return result;
}

} // namespace tessera
