#include "runtime/weights/ChooseScales.h"
#include "runtime/support/Floats.h"
#include "runtime/weights/CopyTensor.h"
#include "runtime/weights/QuantizeGroup.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera {
namespace {

constexpr int64_t kExponents = 20;
constexpr float kLeastScale = 1e-4f;
constexpr int64_t kRowsAtOnce = 16;
/// Of a row, which its groups are quantized together.
constexpr int64_t kColumnsAtOnce = 512;

/// Scales of one exponent.
struct Candidate {
  std::vector<float> scales;     ///< [channels]
  std::vector<float> importance; ///< [channels], E[x²] / s²
  std::vector<float> inverse;    ///< [elements before]
};

class Chooser {
public:
  Chooser(const ScaledInput &input, const InputStatistics &statistics,
          const QuantizedLayout &rounding, int64_t count)
      : input(input), statistics(statistics), rounding(rounding), count(count) {
  }

  StatusOr<ChosenScales> run() {
    TESSERA_RETURN_IF_ERROR(readBefore());
    for (int64_t i = 0; i < kExponents; ++i)
      addCandidate(double(i) / kExponents);
    std::vector<double> errors(kExponents, 0.0);
    for (const SafetensorsModel::Location &reader : input.readers)
      TESSERA_RETURN_IF_ERROR(addErrors(reader, errors));
    const int64_t best = std::ranges::min_element(errors) - errors.begin();
    return ChosenScales{double(best) / kExponents, errors[best], errors[0],
                        std::move(candidates[best].scales),
                        std::move(candidates[best].inverse)};
  }

private:
  /// The means over the channels that an element makes, and a norm's weights.
  Status readBefore() {
    magnitude.assign(count, 0);
    std::vector<float> made(count, 0);
    for (std::size_t c = 0; c < input.sources.size(); ++c) {
      magnitude[input.sources[c]] += statistics.magnitude[c];
      ++made[input.sources[c]];
    }
    used.resize(count);
    for (int64_t i = 0; i < count; ++i) {
      used[i] = made[i] > 0;
      if (used[i])
        magnitude[i] /= made[i];
    }
    if (!input.norm)
      return Status::success();
    auto read = readScaledRows(*input.norm, {}, 0, count);
    if (read.ok())
      weights = read.take();
    return read.status();
  }

  /// One with which the norm's weight is a number of its type, near `scale`.
  float exactScale(int64_t element, float scale) const {
    const float weight = weights[element] + input.offset,
                divided = roundedTo(input.norm->entry->type,
                                    weight / scale - input.offset) +
                          input.offset,
                exact = weight / divided;
    const bool near = exact > scale / 2 && exact < scale * 2;
    return near && std::isfinite(exact) ? exact : 1;
  }

  void addCandidate(double exponent) {
    std::vector<float> scales(count, 1.0f);
    float least = std::numeric_limits<float>::max(), most = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (!used[i])
        continue;
      scales[i] = std::max(float(std::pow(double(magnitude[i]), exponent)),
                           kLeastScale);
      least = std::min(least, scales[i]);
      most = std::max(most, scales[i]);
    }
    const float middle = std::sqrt(least) * std::sqrt(most);
    Candidate candidate;
    candidate.inverse.assign(count, 1.0f);
    for (int64_t i = 0; i < count; ++i) {
      if (!used[i] || exponent == 0) {
        scales[i] = 1;
        continue;
      }
      scales[i] /= middle;
      if (input.norm)
        scales[i] = exactScale(i, scales[i]);
      candidate.inverse[i] = 1 / scales[i];
    }
    for (std::size_t c = 0; c < input.sources.size(); ++c) {
      const float scale = scales[input.sources[c]];
      candidate.scales.push_back(scale);
      candidate.importance.push_back(statistics.square[c] / (scale * scale));
    }
    candidates.push_back(std::move(candidate));
  }

  /// Of all candidates.
  Status addErrors(const SafetensorsModel::Location &reader,
                   std::vector<double> &errors) const {
    const auto rows = int64_t(reader.entry->shape[0]),
               columns = int64_t(reader.entry->shape[1]);
    if (rows < kMicropanel || columns < kQuantBlock)
      return Status::success();
    const int64_t parts = (rows + kRowsAtOnce - 1) / kRowsAtOnce;
    std::vector<double> partial(parts * kExponents);
    TESSERA_RETURN_IF_ERROR(
        inParallel(uint32_t(parts), [&](uint32_t part, unsigned) -> Status {
          const int64_t first = part * kRowsAtOnce,
                        some = std::min(kRowsAtOnce, rows - first);
          auto read = readScaledRows(reader, {}, first, some);
          if (!read.ok())
            return read.status();
          for (int64_t i = 0; i < kExponents; ++i)
            for (int64_t row = 0; row < some; ++row)
              partial[part * kExponents + i] +=
                  errorOf(std::span(*read).subspan(row * columns, columns),
                          candidates[i]);
          return Status::success();
        }));
    for (int64_t at = 0; at < int64_t(partial.size()); ++at)
      errors[at % kExponents] += partial[at];
    // What cannot be rounded even without scales has no error.
    return std::isfinite(errors[0])
               ? Status::success()
               : Status::error("'{}' in '{}' has weights that are not finite, "
                               "or too large for scales of f16",
                               reader.entry->name, reader.file->path());
  }

  /// Σ E[x²] / s² (s w - Q(s w))² over one row.
  double errorOf(std::span<const float> row, const Candidate &by) const {
    static const QuantizeGroups quantize =
        quantizeGroupsFor(CpuFeatures::detect());
    const int64_t group = rounding.group,
                  most = std::clamp<int64_t>(kColumnsAtOnce / group, 1,
                                             int64_t(kMostGroups)) *
                         group;
    float weights[kColumnsAtOnce];
    int8_t q[kColumnsAtOnce];
    uint16_t scales[kMostGroups], zeros[kMostGroups];
    double error = 0;
    for (int64_t first = 0; first < int64_t(row.size()); first += most) {
      const int64_t columns = std::min<int64_t>(most, row.size() - first),
                    padded =
                        (columns + kQuantBlock - 1) / kQuantBlock * kQuantBlock,
                    groups = (padded + group - 1) / group;
      std::fill(weights + columns, weights + padded, 0.0f);
      for (int64_t k = 0; k < columns; ++k)
        weights[k] = row[first + k] * by.scales[first + k];
      if (!quantize(rounding.bits, group, {weights, std::size_t(padded)},
                    {q, std::size_t(padded)}, {scales, std::size_t(groups)},
                    {zeros, std::size_t(rounding.zeros ? groups : 0)}))
        return std::numeric_limits<double>::infinity();
      for (int64_t begin = 0; begin < columns; begin += group) {
        const float scale = f16ToFloat(scales[begin / group]),
                    zero =
                        rounding.zeros ? f16ToFloat(zeros[begin / group]) : 0;
        const int64_t end = std::min(columns, begin + group);
        float sum = 0;
        for (int64_t k = begin; k < end; ++k) {
          const float difference = weights[k] - scale * (float(q[k]) - zero);
          sum += by.importance[first + k] * (difference * difference);
        }
        error += double(sum);
      }
    }
    return error;
  }

  const ScaledInput &input;
  const InputStatistics &statistics;
  const QuantizedLayout &rounding;
  const int64_t count;
  std::vector<float> magnitude, weights; // [elements before]
  std::vector<bool> used;
  std::vector<Candidate> candidates;
};

} // namespace

StatusOr<ChosenScales> chooseScales(const ScaledInput &input,
                                    const InputStatistics &statistics,
                                    const QuantizedLayout &rounding,
                                    int64_t count) {
  return Chooser(input, statistics, rounding, count).run();
}

} // namespace tessera
