#include "runtime/infer/Sampler.h"
#include "runtime/infer/TokenScores.h"
#include "runtime/support/Philox.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace tessera {
namespace {

bool likelier(const std::pair<float, int32_t> &a,
              const std::pair<float, int32_t> &b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

/// Why no token can be chosen from these logits.
Status noChoice(std::span<const float> logits) {
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (std::isnan(logits[i]))
      return Status::error("the logit of token {} is nan; the weights are "
                           "damaged or training diverged",
                           i);
  return Status::error("no token has a finite logit; the weights are damaged "
                       "or training diverged");
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

Sampler::Sampler(SamplingOptions given) : options(std::move(given)) {
  std::map<int32_t, float> sums; // a token may occur twice
  for (const auto &[token, bias] : options.bias)
    sums[token] += bias;
  for (const auto &[token, bias] : sums)
    biases.push_back({token, {.added = bias}});
}

void adjustLogits(std::span<float> logits,
                  std::span<const ChangedLogit> changes,
                  const TokenMask *allowed) {
  for (const auto &[token, change] : changes)
    if (std::size_t(token) < logits.size())
      logits[token] = change.of(logits[token]);
  for (std::size_t i = 0; allowed && i < logits.size(); ++i)
    if (!allowed->contains(i))
      logits[i] = -std::numeric_limits<float>::infinity();
}

void Sampler::sawPrompt(std::span<const int32_t> tokens) {
  isStale = true;
  if (options.repetitionPenalty != 1)
    for (int32_t token : tokens)
      seen.try_emplace(token, 0);
}

void Sampler::saw(int32_t token) {
  if (!remembers())
    return;
  isStale = true;
  ++seen[token];
}

// One entry per token: its bias, and the penalties for its earlier occurrences.
std::span<const ChangedLogit> Sampler::findChanges() {
  if (!std::exchange(isStale, false))
    return changes;
  changes = biases;
  for (const auto &[token, count] : seen) {
    auto end = changes.begin() + long(biases.size());
    auto found = std::ranges::lower_bound(changes.begin(), end, token, {},
                                          &ChangedLogit::token);
    if (found == end || found->token != token)
      found = changes.insert(changes.end(), {token, {}});
    found->change.above = options.repetitionPenalty;
    found->change.below = 1 / options.repetitionPenalty;
    found->change.subtracted = options.frequencyPenalty * float(count) +
                               (count > 0 ? options.presencePenalty : 0);
  }
  return changes;
}

TokenChoice Sampler::choiceOf(uint64_t draw) const {
  PhiloxCounter words =
      philox4x32({uint32_t(draw), uint32_t(draw >> 32), 0, 0},
                 {uint32_t(options.seed), uint32_t(options.seed >> 32)});
  constexpr double whole = 0x1p32;
  TokenChoice choice;
  choice.temperature = options.temperature;
  choice.minP = options.minP;
  choice.topK = uint32_t(std::min<int64_t>(options.topK, UINT32_MAX));
  if (options.topP < 1)
    choice.topP = uint32_t(std::max(double(options.topP) * whole, 1.0));
  choice.random = uint64_t(words[0]) << 32 | words[1];
  return choice;
}

std::span<const float> Sampler::adjust(std::span<const float> logits,
                                       const TokenMask *allowed) {
  auto changed = findChanges();
  if (changed.empty() && !allowed)
    return logits;
  adjusted.assign(logits.begin(), logits.end());
  adjustLogits(adjusted, changed, allowed);
  return adjusted;
}

StatusOr<int32_t> Sampler::sample(std::span<const float> logits, uint64_t draw,
                                  const TokenMask *allowed) {
  logits = adjust(logits, allowed);
  int32_t token = chooseToken(logits, choiceOf(draw));
  if (token < 0)
    return noChoice(logits);
  return token;
}

std::optional<TokenSampling> Sampler::sampling(int64_t mostChanges,
                                               int64_t choices, uint64_t draw,
                                               const TokenMask *allowed) {
  if (int64_t(std::max(seen.size(), biases.size())) > mostChanges)
    return std::nullopt;
  auto changed = findChanges();
  if (int64_t(changed.size()) > mostChanges)
    return std::nullopt;
  return TokenSampling{choiceOf(draw), changed, allowed, choices};
}

StatusOr<int32_t> sampledToken(int32_t token) {
  if (token >= 0)
    return token;
  return Status::error("{}; the weights are damaged or training diverged",
                       token == kNotANumber ? "a logit is nan"
                                            : "no token has a finite logit");
}

TokenLogprobs logprobsOf(std::span<const float> logits, int32_t chosen,
                         int64_t top, std::optional<float> logSum) {
  std::vector<std::pair<float, int32_t>> order;
  top = std::min(top, int64_t(logits.size()));
  if (top > 0)
    order.reserve(logits.size());
  for (std::size_t i = 0; top > 0 && i < logits.size(); ++i)
    order.emplace_back(logits[i], int32_t(i));
  std::partial_sort(order.begin(), order.begin() + long(top), order.end(),
                    likelier);
  const double log = logSum ? double(*logSum) : logSumOf(logits);
  const auto logprobOf = [&](float logit) {
    // In floats, as programs subtract.
    return logSum ? logit - *logSum : float(double(logit) - log);
  };
  TokenLogprobs result;
  // Prompts may contain tokens that are never chosen.
  result.chosen = std::size_t(chosen) < logits.size()
                      ? logprobOf(logits[chosen])
                      : -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < top; ++i)
    result.top.emplace_back(order[i].second, logprobOf(order[i].first));
  return result;
}

} // namespace tessera
