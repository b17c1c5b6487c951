#include "runtime/support/TokenChoice.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace tessera {
namespace {

struct Candidate {
  float weight;
  int32_t token;

  /// All bits of the weight that are not below a unit.
  uint64_t units() const {
    return uint64_t(std::ldexp(weight, token_choice::kFraction));
  }
};

bool isLikelier(const Candidate &a, const Candidate &b) {
  return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
}

/// The upper half of a product of 64 bits each.
uint64_t partOf(uint64_t whole, uint64_t part) {
  return uint64_t(static_cast<unsigned __int128>(whole) * part >> 64);
}

uint64_t sumOf(std::span<const Candidate> candidates) {
  uint64_t sum = 0;
  for (const Candidate &each : candidates)
    sum += each.units();
  return sum;
}

/// The k likeliest.
void keepTopK(std::vector<Candidate> &candidates, uint32_t k) {
  if (k == 0 || k >= candidates.size())
    return;
  std::nth_element(candidates.begin(), candidates.begin() + k, candidates.end(),
                   isLikelier);
  candidates.resize(k);
}

// Sorts no more than it must: of a large vocabulary a few tokens have most of
// the weight.
void keepTopP(std::vector<Candidate> &candidates, uint32_t part) {
  if (part == 0)
    return;
  uint64_t bound = partOf(sumOf(candidates), uint64_t(part) << 32), sum = 0;
  bound = std::max<uint64_t>(bound, 1);
  size_t kept = 0, sorted = 0;
  while (kept < candidates.size() && sum < bound) {
    if (kept == sorted) {
      sorted = std::min(candidates.size(), std::max<size_t>(64, 4 * kept));
      std::partial_sort(candidates.begin() + long(kept),
                        candidates.begin() + long(sorted), candidates.end(),
                        isLikelier);
    }
    sum += candidates[kept++].units();
  }
  candidates.resize(kept);
}

/// 2^(distance × scale) of a distance that is not above 0, as a float whose
/// exponent is at least -64.
float powerOf(float distance, float scale) {
  float y = std::max(distance * scale, -64.0f), whole = std::floor(y);
  float f = y - whole, power = 0;
  for (size_t i = std::size(token_choice::kPower); i-- > 0;)
    power = std::fma(power, f, token_choice::kPower[i]);
  power = std::fma(power, f, 1.0f);
  return power * std::bit_cast<float>((int32_t(whole) + 127) << 23);
}

} // namespace

int32_t chooseToken(std::span<const float> logits, const TokenChoice &choice) {
  float best = -std::numeric_limits<float>::infinity();
  int32_t likeliest = kNoToken;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]))
      return kNotANumber;
    if (logits[i] > best) {
      best = logits[i];
      likeliest = int32_t(i);
    }
  }
  if (std::isinf(best))
    return kNoToken;
  if (choice.temperature == 0)
    return likeliest;
  float scale = std::min(token_choice::kLog2E / choice.temperature,
                         std::numeric_limits<float>::max());
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < logits.size(); ++i) {
    Candidate each{powerOf(logits[i] - best, scale), int32_t(i)};
    if (each.units() > 0 && each.weight >= choice.minP)
      candidates.push_back(each);
  }
  keepTopK(candidates, choice.topK);
  keepTopP(candidates, choice.topP);
  std::sort(candidates.begin(), candidates.end(),
            [](const auto &a, const auto &b) { return a.token < b.token; });
  uint64_t place = partOf(sumOf(candidates), choice.random);
  for (const Candidate &each : candidates) {
    if (place < each.units())
      return each.token;
    place -= each.units();
  }
  return likeliest; // of no candidate: its weight is 1
}

} // namespace tessera
