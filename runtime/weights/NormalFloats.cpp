#include "runtime/weights/NormalFloats.h"
#include "runtime/support/NormalFloat.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace tessera {
namespace {

constexpr int64_t kGroup = QuantizedLayout::kNf4Group,
                  kAbsmax = QuantizedLayout::kNf4Absmax;

constexpr float kMost = 1.0f;

/// value × (1 / absmax) within [-1, 1].
float scaled(float value, float inverse) {
  return std::clamp(value * inverse, -kMost, kMost);
}

/// The index of the number nearest to x, the lower of equals.
uint32_t nearestNormalFloat(float x) {
  uint32_t best = 0;
  float least = std::fabs(x - kNormalFloats[0]);
  for (uint32_t i = 1; i < kNormalFloats.size(); ++i)
    if (const float distance = std::fabs(x - kNormalFloats[i]);
        distance < least) {
      least = distance;
      best = i;
    }
  return best;
}

uint8_t nearestDynamicFloat(float x) {
  static const std::array<float, 256> numbers = [] {
    std::array<float, 256> all;
    for (int i = 0; i < 256; ++i)
      all[i] = dynamicFloat(uint8_t(i));
    return all;
  }();
  const auto upper = std::ranges::lower_bound(numbers, x);
  if (upper == numbers.begin())
    return 0;
  if (upper == numbers.end())
    return 255;
  const bool isUpper = *upper - x < x - *(upper - 1);
  return uint8_t(upper - numbers.begin() - !isUpper);
}

} // namespace

bool findAbsmax(std::span<const float> row, std::span<float> absmax) {
  bool isFinite = true;
  for (std::size_t group = 0; group < absmax.size(); ++group) {
    float most = 0;
    for (float weight : row.subspan(group * kGroup, kGroup)) {
      isFinite &= std::isfinite(weight);
      most = std::max(most, std::fabs(weight));
    }
    absmax[group] = most;
  }
  return isFinite;
}

void quantizeAbsmax(NestedAbsmax &nested) {
  const std::vector<float> &absmax = nested.absmax;
  const auto count = int64_t(absmax.size());
  nested.offset =
      float(std::accumulate(absmax.begin(), absmax.end(), 0.0) / double(count));
  nested.codes.resize(absmax.size());
  nested.absmax2.clear();
  for (int64_t first = 0; first < count; first += kAbsmax) {
    const int64_t end = std::min(count, first + kAbsmax);
    float most = 0;
    for (int64_t i = first; i < end; ++i)
      most = std::max(most, std::fabs(absmax[i] - nested.offset));
    const float inverse = most > 0 ? 1 / most : 0;
    for (int64_t i = first; i < end; ++i)
      nested.codes[i] =
          nearestDynamicFloat(scaled(absmax[i] - nested.offset, inverse));
    nested.absmax2.push_back(most);
  }
}

void quantizeNormalFloats(std::span<const float> row,
                          std::span<const float> absmax,
                          std::span<uint32_t> words) {
  constexpr int64_t perWord = 8;
  for (std::size_t at = 0; at < words.size(); ++at) {
    const float most = absmax[at * perWord / kGroup],
                inverse = most > 0 ? 1 / most : 0;
    words[at] = 0;
    for (int64_t i = 0; i < perWord; ++i)
      words[at] |= nearestNormalFloat(scaled(row[at * perWord + i], inverse))
                   << 4 * i;
  }
}

void storeAbsmax(const QuantizedLayout &layout, const NestedAbsmax &nested,
                 int64_t row, std::span<uint32_t> words) {
  const int64_t groups = layout.groups(), spans = layout.nf4Spans(),
                begin = row * groups, first = begin / kAbsmax;
  std::ranges::fill(words, 0u);
  words[0] = std::bit_cast<uint32_t>(nested.offset);
  for (int64_t i = 0; i < spans; ++i)
    if (first + i < int64_t(nested.absmax2.size()))
      words[1 + i] = std::bit_cast<uint32_t>(nested.absmax2[first + i]);
  for (int64_t group = 0; group < groups; ++group)
    words[1 + spans + group / 4] |= uint32_t(nested.codes[begin + group])
                                    << (group % 4 * 8);
}

std::vector<float> dequantizeNormalFloats(const QuantizedLayout &layout,
                                          std::span<const uint32_t> values,
                                          std::span<const uint32_t> scales) {
  std::vector<float> matrix(layout.rows * layout.columns);
  for (int64_t n = 0; n < layout.rows; ++n) {
    const int64_t micropanel = n / kMicropanel, lane = n % kMicropanel;
    auto scaleAt = [&](int64_t i) {
      return scales[(micropanel * layout.scaleRows() + i) * kMicropanel + lane];
    };
    for (int64_t group = 0; group < layout.groups(); ++group) {
      const float absmax = normalFloatAbsmax(layout, n, group, scaleAt);
      for (int64_t k = group * kGroup;
           k < std::min((group + 1) * kGroup, layout.columns); ++k) {
        const uint32_t word =
            values[(micropanel * layout.words() + k / layout.perWord()) *
                       kMicropanel +
                   lane];
        matrix[n * layout.columns + k] =
            kNormalFloats[word >> (k % layout.perWord() * layout.bits) & 15] *
            absmax;
      }
    }
  }
  return matrix;
}

} // namespace tessera
