#include "runtime/train/QuantizeTensor.h"
#include "runtime/hal/cpu/ThreadPool.h"
#include "runtime/support/Floats.h"
#include "runtime/train/CopyTensor.h"

#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

constexpr int64_t kStrip = QuantizedLayout::kStrip;
/// Weights that are read at once.
constexpr int64_t kPieceWeights = int64_t(1) << 22;
constexpr float kLargestF16 = 65504;

/// The integers of a group are within [least, most].
struct Range {
  float least, most;
};

/// To the nearest integer, half to even; of less than 2^22.
float nearest(float x) {
  constexpr float kShift = 12582912; // 1.5 × 2^23: no fraction is left
  return (x + kShift) - kShift;
}

float quantized(float weight, float inverse, Range range) {
  return std::clamp(nearest(weight * inverse), range.least, range.most);
}

/// 0 where the scale is, and with it all weights.
float inverseOf(float scale) { return scale == 0 ? 0 : 1 / scale; }

/// Σ (w - scale × q)² with q as it will be; in lanes that a compiler makes
/// vectors of.
double squaredError(std::span<const float> weights, float scale, Range range) {
  constexpr std::size_t kLanes = 8;
  float inverse = inverseOf(scale);
  double errors[kLanes] = {};
  auto add = [&](std::size_t i, std::size_t lane) {
    double difference =
        double(weights[i]) -
        double(quantized(weights[i], inverse, range)) * double(scale);
    errors[lane] += difference * difference;
  };
  std::size_t whole = weights.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      add(i + lane, lane);
  for (std::size_t i = whole; i < weights.size(); ++i)
    add(i, i - whole);
  double sum = 0;
  for (double error : errors)
    sum += error;
  return sum;
}

/// As f16 holds it.
float rounded(float scale) { return f16ToFloat(floatToF16(scale)); }

/// The largest weight / 127. Of subnormal scales f16 has but a few digits: up,
/// so that no weight clips and no scale of weights is 0.
float scaleOf8Bits(float largest, Range range) {
  float wanted = largest / range.most;
  uint16_t half = floatToF16(wanted);
  if (half < 0x400 && f16ToFloat(half) < wanted)
    ++half;
  return f16ToFloat(half);
}

float chooseScale(std::span<const float> weights, int64_t bits, Range range) {
  float largest = 0; // with its sign
  for (float weight : weights)
    if (std::fabs(weight) > std::fabs(largest))
      largest = weight;
  if (bits == 8)
    return scaleOf8Bits(std::fabs(largest), range);
  // Of both signs: the side with the largest weight has eight steps, the other
  // seven. Less than the largest clips it, for finer steps of the others.
  constexpr int kCandidates = 8;
  float best = 0;
  double leastError = INFINITY;
  for (int i = 0; i < kCandidates; ++i) {
    float scale = rounded(largest / -8 * (1 - 0.05f * float(i)));
    if (double error = squaredError(weights, scale, range);
        error < leastError) {
      leastError = error;
      best = scale;
    }
  }
  return best;
}

} // namespace

void quantizeStrip(const QuantizedLayout &layout,
                   std::span<const float> weights, std::span<uint32_t> values,
                   std::span<uint16_t> scales) {
  const int64_t perWord = layout.perWord();
  const uint32_t mask = layout.bits == 4 ? 15 : 255;
  uint32_t zero = 0;
  for (int64_t i = 0; i < perWord; ++i)
    zero |= uint32_t(layout.offset()) << (i * layout.bits);
  std::fill(values.begin(), values.end(), zero);
  std::fill(scales.begin(), scales.end(), uint16_t(0));
  const Range range = layout.bits == 4 ? Range{-8, 7} : Range{-127, 127};
  const int64_t rows = int64_t(weights.size()) / layout.columns;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t group = 0; group < layout.groups(); ++group) {
      int64_t begin = group * layout.group;
      int64_t count = std::min(layout.group, layout.columns - begin);
      auto these = weights.subspan(row * layout.columns + begin, count);
      float scale = chooseScale(these, layout.bits, range);
      float inverse = inverseOf(scale);
      scales[group * kStrip + row] = floatToF16(scale);
      for (int64_t i = 0; i < count; ++i) {
        auto q = int64_t(quantized(these[i], inverse, range));
        int64_t k = begin + i, shift = k % perWord * layout.bits;
        uint32_t &word = values[k / perWord * kStrip + row];
        word &= ~(mask << shift);
        word |= (uint32_t(q + layout.offset()) & mask) << shift;
      }
    }
}

Status checkQuantizable(const QuantizedPart &part, const SafetensorsFile &file,
                        const SafetensorsEntry &entry) {
  std::vector<uint64_t> shape = {uint64_t(part.layout.rows),
                                 uint64_t(part.layout.columns)};
  if (part.transposed)
    std::swap(shape[0], shape[1]);
  if (entry.shape != shape)
    return Status::error("'{}' in '{}' has the shape [{}], the model's has "
                         "[{}]",
                         entry.name, file.path(), fmt::join(entry.shape, ", "),
                         fmt::join(shape, ", "));
  if (!converts(entry.type, SafetensorsType::f32))
    return Status::error("'{}' in '{}' is {}, of which no integers with scales "
                         "can be made; give f32, bf16, f16 or f64",
                         entry.name, file.path(), safetensorsName(entry.type));
  return Status::success();
}

namespace {

/// Quantizes one matrix.
class Quantizer {
public:
  Quantizer(TrainModel &model, const StateTensor &values,
            const StateTensor &scales, const SafetensorsFile &file,
            const SafetensorsEntry &entry, hal::ThreadPool &pool)
      : model(model), values(values), scales(scales), file(file), entry(entry),
        part(*values.quantized), layout(part.layout), pool(pool) {}

  Status run() {
    if (part.transposed)
      TESSERA_RETURN_IF_ERROR(read(0, layout.rows * layout.columns, whole));
    int64_t strips =
        std::max<int64_t>(1, kPieceWeights / (kStrip * layout.columns));
    for (int64_t first = 0; first < layout.strips(); first += strips)
      TESSERA_RETURN_IF_ERROR(
          quantize(first, std::min(strips, layout.strips() - first)));
    return Status::success();
  }

private:
  Status read(int64_t first, int64_t count, std::vector<float> &to) {
    auto size = safetensorsBits(entry.type) / 8;
    bytes.resize(count * size);
    TESSERA_RETURN_IF_ERROR(file.read(entry, first * size, bytes));
    to.resize(count);
    toFloats(entry.type, bytes.data(), count, to.data());
    const float most = kLargestF16 * (layout.bits == 4 ? 8 : 127);
    for (int64_t i = 0; i < count; ++i)
      if (!(std::fabs(to[i]) <= most))
        return Status::error("'{}' in '{}' has the weight {} at {}, which {} "
                             "bits with an f16 scale do not reach",
                             entry.name, file.path(), to[i], first + i,
                             layout.bits);
    return Status::success();
  }

  /// Strips [first, first + count).
  Status quantize(int64_t first, int64_t count) {
    int64_t row = first * kStrip,
            rows = std::min(count * kStrip, layout.rows - row);
    const int64_t columns = layout.columns;
    if (!part.transposed)
      TESSERA_RETURN_IF_ERROR(read(row * columns, rows * columns, weights));
    else
      weights.resize(rows * columns);
    const int64_t words = layout.words() * kStrip,
                  groups = layout.groups() * kStrip;
    packed.resize(count * words);
    factors.resize(count * groups);
    pool.parallelFor(uint32_t(count), [&](uint32_t begin, uint32_t end,
                                          unsigned) {
      for (int64_t strip = begin; strip < int64_t(end); ++strip) {
        int64_t from = strip * kStrip, of = std::min(kStrip, rows - from);
        std::span<float> here(weights.data() + from * columns, of * columns);
        if (part.transposed)
          for (int64_t n = 0; n < of; ++n)
            for (int64_t k = 0; k < columns; ++k)
              here[n * columns + k] = whole[k * layout.rows + row + from + n];
        quantizeStrip(layout, here,
                      std::span(packed).subspan(strip * words, words),
                      std::span(factors).subspan(strip * groups, groups));
      }
    });
    TESSERA_RETURN_IF_ERROR(model.writeState(values, first * words * 4,
                                             std::as_bytes(std::span(packed))));
    return model.writeState(scales, first * groups * 2,
                            std::as_bytes(std::span(factors)));
  }

  TrainModel &model;
  const StateTensor &values, &scales;
  const SafetensorsFile &file;
  const SafetensorsEntry &entry;
  const QuantizedPart &part;
  const QuantizedLayout &layout;
  hal::ThreadPool &pool;
  std::vector<std::byte> bytes;
  std::vector<float> weights, whole;
  std::vector<uint32_t> packed;
  std::vector<uint16_t> factors;
};

} // namespace

Status quantizeTensor(TrainModel &model, const StateTensor &values,
                      const StateTensor &scales, const SafetensorsFile &file,
                      const SafetensorsEntry &entry) {
  auto pool = hal::ThreadPool::create(hal::availableProcessors());
  if (!pool.ok())
    return pool.status();
  return Quantizer(model, values, scales, file, entry, **pool).run();
}

} // namespace tessera
