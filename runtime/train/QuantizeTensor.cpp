#include "runtime/train/QuantizeTensor.h"
#include "runtime/hal/cpu/ThreadPool.h"
#include "runtime/train/CopyTensor.h"
#include "runtime/train/QuantizeGroup.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tessera {
namespace {

constexpr int64_t kStrip = QuantizedLayout::kStrip;
/// Weights that are read at once.
constexpr int64_t kPieceWeights = int64_t(1) << 22;
constexpr float kLargestF16 = 65504;

/// Eight integers of 4 bits with 8 added, the first lowest.
uint32_t packed4(const int8_t *q) {
  uint64_t bytes;
  std::memcpy(&bytes, q, sizeof bytes);
  bytes = (bytes & 0x0f0f0f0f0f0f0f0f) ^ 0x0808080808080808; // + 8 of 4 bits
  bytes = (bytes | bytes >> 4) & 0x00ff00ff00ff00ff;
  bytes = (bytes | bytes >> 8) & 0x0000ffff0000ffff;
  return uint32_t(bytes | bytes >> 16);
}

/// Into the words of one row from column `begin` on, a multiple of those in a
/// word.
void pack(const QuantizedLayout &layout, std::span<const int8_t> q,
          int64_t begin, uint32_t *values) {
  const int64_t perWord = layout.perWord();
  for (int64_t i = 0; i < int64_t(q.size()); i += perWord) {
    uint32_t word = 0;
    if (layout.bits == 4)
      word = packed4(q.data() + i);
    else
      std::memcpy(&word, q.data() + i, sizeof word);
    values[(begin + i) / perWord * kStrip] = word;
  }
}

} // namespace

void quantizeStrip(const QuantizedLayout &layout,
                   std::span<const float> weights, std::span<uint32_t> values,
                   std::span<uint16_t> scales) {
  constexpr int64_t kLanes = 8; // of quantizeGroup
  std::ranges::fill(values, layout.bits == 4 ? 0x88888888u : 0u);
  std::ranges::fill(scales, uint16_t(0));
  std::vector<float> padded; // the last group
  std::vector<int8_t> integers(layout.group);
  const int64_t rows = int64_t(weights.size()) / layout.columns;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t group = 0; group < layout.groups(); ++group) {
      const int64_t begin = group * layout.group;
      int64_t count = std::min(layout.group, layout.columns - begin);
      auto these = weights.subspan(row * layout.columns + begin, count);
      if (count % kLanes != 0) {
        count = (count + kLanes - 1) / kLanes * kLanes;
        padded.assign(these.begin(), these.end());
        padded.resize(count);
        these = padded;
      }
      const auto q = std::span(integers).first(count);
      uint16_t *scale = &scales[layout.scalesAt(group) * kStrip + row];
      if (layout.zeros) {
        const ScaleAndZero both = quantizeGroupWithZero(layout.bits, these, q);
        scale[0] = both.scale;
        scale[kStrip] = both.zero;
      } else {
        *scale = quantizeGroup(layout.bits, these, q);
      }
      pack(layout, q, begin, values.data() + row);
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
            const SafetensorsEntry &entry)
      : model(model), values(values), scales(scales), file(file), entry(entry),
        part(*values.quantized), layout(part.layout) {}

  Status run() {
    if (part.transposed)
      TESSERA_RETURN_IF_ERROR(read(0, layout.rows * layout.columns, whole));
    auto valuesHere = model.stateInMemory(values);
    auto scalesHere = model.stateInMemory(scales);
    return valuesHere.empty() || scalesHere.empty()
               ? runByBuffer()
               : quantize(0, layout.strips(),
                          reinterpret_cast<uint32_t *>(valuesHere.data()),
                          reinterpret_cast<uint16_t *>(scalesHere.data()));
  }

private:
  int64_t wordsOfStrip() const { return layout.words() * kStrip; }
  int64_t scalesOfStrip() const { return layout.scaleRows() * kStrip; }

  /// A few strips at a time.
  Status runByBuffer() {
    std::vector<uint32_t> packed;
    std::vector<uint16_t> factors;
    const int64_t most =
        std::max<int64_t>(1, kPieceWeights / (kStrip * layout.columns));
    for (int64_t first = 0; first < layout.strips(); first += most) {
      const int64_t count = std::min(most, layout.strips() - first);
      packed.resize(count * wordsOfStrip());
      factors.resize(count * scalesOfStrip());
      TESSERA_RETURN_IF_ERROR(
          quantize(first, count, packed.data(), factors.data()));
      TESSERA_RETURN_IF_ERROR(
          model.writeState(values, first * wordsOfStrip() * 4,
                           std::as_bytes(std::span(packed))));
      TESSERA_RETURN_IF_ERROR(
          model.writeState(scales, first * scalesOfStrip() * 2,
                           std::as_bytes(std::span(factors))));
    }
    return Status::success();
  }

  /// Strips [first, first + count) to where they begin.
  Status quantize(int64_t first, int64_t count, uint32_t *packed,
                  uint16_t *factors) {
    return inParallel(
        uint32_t(count), [&](uint32_t strip, unsigned thread) -> Status {
          const int64_t row = (first + strip) * kStrip;
          std::vector<float> &weights = rowsOf[thread];
          TESSERA_RETURN_IF_ERROR(
              readRows(row, std::min(kStrip, layout.rows - row), weights));
          quantizeStrip(
              layout, weights,
              std::span(packed + strip * wordsOfStrip(), wordsOfStrip()),
              std::span(factors + strip * scalesOfStrip(), scalesOfStrip()));
          return Status::success();
        });
  }

  Status readRows(int64_t row, int64_t rows, std::vector<float> &to) const {
    const int64_t columns = layout.columns;
    if (!part.transposed)
      return read(row * columns, rows * columns, to);
    to.resize(rows * columns);
    for (int64_t n = 0; n < rows; ++n)
      for (int64_t k = 0; k < columns; ++k)
        to[n * columns + k] = whole[k * layout.rows + row + n];
    return Status::success();
  }

  /// Elements [first, first + count), if scales reach them.
  Status read(int64_t first, int64_t count, std::vector<float> &to) const {
    const auto size = safetensorsBits(entry.type) / 8;
    std::vector<std::byte> bytes(count * size);
    TESSERA_RETURN_IF_ERROR(file.read(entry, first * size, bytes));
    to.resize(count);
    toFloats(entry.type, bytes.data(), count, to.data());
    // With zero points both signs share the steps.
    const float most = kLargestF16 * (layout.bits == 8 ? 127
                                      : layout.zeros   ? 7.5f
                                                       : 8);
    bool within = true; // without a way out, for vectors
    for (float weight : to)
      within &= std::fabs(weight) <= most;
    for (int64_t i = 0; !within && i < count; ++i)
      if (!(std::fabs(to[i]) <= most))
        return Status::error("'{}' in '{}' has the weight {} at {}, which {} "
                             "bits with an f16 scale do not reach",
                             entry.name, file.path(), to[i], first + i,
                             layout.bits);
    return Status::success();
  }

  TrainModel &model;
  const StateTensor &values, &scales;
  const SafetensorsFile &file;
  const SafetensorsEntry &entry;
  const QuantizedPart &part;
  const QuantizedLayout &layout;
  std::vector<float> whole; // of a transposed matrix
  std::vector<std::vector<float>> rowsOf{hal::availableProcessors()};
};

} // namespace

Status quantizeTensor(TrainModel &model, const StateTensor &values,
                      const StateTensor &scales, const SafetensorsFile &file,
                      const SafetensorsEntry &entry) {
  return Quantizer(model, values, scales, file, entry).run();
}

} // namespace tessera
