#include "runtime/weights/QuantizeTensor.h"
#include "runtime/hal/cpu/ThreadPool.h"
#include "runtime/weights/CopyTensor.h"
#include "runtime/weights/MakeMicropanels.h"
#include "runtime/weights/NormalFloats.h"
#include "runtime/weights/QuantizeGroup.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tessera {
namespace {

/// Of a row, so that what a micropanel makes of them stays in the first cache.
constexpr int64_t kColumnsAtOnce = 512;

constexpr int64_t roundedUp(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

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
    values[(begin + i) / perWord * kMicropanel] = word;
  }
}

} // namespace

bool quantizeMicropanel(const QuantizedLayout &layout, SafetensorsType type,
                        std::span<const std::byte> rows,
                        std::span<uint32_t> values,
                        std::span<uint16_t> scales) {
  static const QuantizeGroups integers =
                                  quantizeGroupsFor(CpuFeatures::detect()),
                              floats = quantizeFloatsFor(CpuFeatures::detect());
  const QuantizeGroups quantizeGroups = layout.floats ? floats : integers;
  const int64_t size = safetensorsBits(type) / 8,
                count = int64_t(rows.size()) / size / layout.columns,
                most = std::clamp<int64_t>(kColumnsAtOnce / layout.group, 1,
                                           kMostGroups) *
                       layout.group;
  if (count < kMicropanel) {
    std::ranges::fill(values, layout.bits == 4 ? 0x88888888u : 0u);
    std::ranges::fill(scales, uint16_t(0));
  }
  std::vector<float> weights(most);
  std::vector<int8_t> q(most);
  uint16_t factors[kMostGroups], zeros[kMostGroups];
  for (int64_t first = 0; first < layout.columns; first += most) {
    const int64_t columns = std::min(most, layout.columns - first),
                  padded = roundedUp(columns, kQuantBlock),
                  groups = roundedUp(padded, layout.group) / layout.group;
    std::fill(weights.begin() + columns, weights.begin() + padded, 0.0f);
    for (int64_t row = 0; row < count; ++row) {
      toFloats(type, rows.data() + (row * layout.columns + first) * size,
               columns, weights.data());
      if (!quantizeGroups(layout.bits, layout.group,
                          std::span(weights).first(padded), q,
                          std::span(factors).first(groups),
                          std::span(zeros).first(layout.zeros ? groups : 0)))
        return false;
      for (int64_t i = 0; i < groups; ++i) {
        uint16_t *to =
            &scales[layout.scalesAt(first / layout.group + i) * kMicropanel +
                    row];
        to[0] = factors[i];
        if (layout.zeros)
          to[kMicropanel] = zeros[i];
      }
      pack(layout, std::span(q).first(padded), first, values.data() + row);
    }
  }
  return true;
}

Status checkQuantizable(const QuantizedPart &part, const SafetensorsFile &file,
                        const SafetensorsEntry &entry) {
  const int64_t stack = std::max<int64_t>(part.stack, 1);
  std::vector<uint64_t> shape = {uint64_t(part.layout.rows / stack),
                                 uint64_t(part.layout.columns)};
  if (part.transposed)
    std::swap(shape[0], shape[1]);
  if (part.stack)
    shape.insert(shape.begin(), uint64_t(stack));
  if (entry.shape != shape)
    return Status::error("'{}' in '{}' has the shape [{}], the model's has "
                         "[{}]",
                         entry.name, file.path(), fmt::join(entry.shape, ", "),
                         fmt::join(shape, ", "));
  if (part.layout.superBlocks || part.layout.mxfp4())
    return Status::error(
        "'{}' in '{}' is {}, and the program multiplies it in {}, {}",
        entry.name, file.path(), safetensorsName(entry.type),
        part.layout.mxfp4()
            ? "mxfp4"
            : fmt::format("super-blocks of {} bits", part.layout.bits),
        part.stack ? "as its config.json says; compile the model for this "
                     "checkpoint, without quantization_config"
                   : "which only a GGUF file has; compile the model for this "
                     "checkpoint");
  TESSERA_RETURN_IF_ERROR(checkScaled(file, entry));
  if (!converts(entry.type, SafetensorsType::f32))
    return Status::error("'{}' in '{}' is {}, of which no {} with scales can "
                         "be made; give f32, bf16, f16 or f64",
                         entry.name, file.path(), safetensorsName(entry.type),
                         part.layout.floats ? "8-bit floats" : "integers");
  return Status::success();
}

namespace {

/// Quantizes one matrix.
class Quantizer {
public:
  Quantizer(ModelState &model, const StateTensor &values,
            const StateTensor &scales, const SafetensorsFile &file,
            const SafetensorsEntry &entry, const TensorFactors *factors)
      : model(model), values(values), scales(scales), file(file), entry(entry),
        factors(factors), part(*values.quantized), layout(part.layout),
        type(part.transposed || factors ? SafetensorsType::f32 : entry.type) {}

  Status run() {
    if (part.transposed) {
      std::vector<std::byte> bytes(entry.end - entry.begin);
      TESSERA_RETURN_IF_ERROR(file.read(entry, 0, bytes));
      whole.resize(layout.rows * layout.columns);
      toFloats(entry.type, bytes.data(), whole.size(), whole.data());
    }
    if (layout.nf4())
      TESSERA_RETURN_IF_ERROR(nestAbsmax());
    return makeMicropanels(
        model, values, &scales,
        [this](int64_t micropanel, std::span<uint32_t> words,
               std::span<uint16_t> factors, unsigned thread) -> Status {
          std::vector<std::byte> &rows = rowsOf[thread];
          TESSERA_RETURN_IF_ERROR(readRows(micropanel * kMicropanel, rows));
          if (layout.nf4()) {
            makeNormalFloats(micropanel, rows, words, factors);
            return Status::success();
          }
          return quantizeMicropanel(layout, type, rows, words, factors)
                     ? Status::success()
                     : outOfReach(micropanel * kMicropanel, rows);
        });
  }

private:
  /// The rows of a micropanel in f32, from row `first` of the matrix on.
  std::vector<float> floatsOf(std::span<const std::byte> rows) const {
    std::vector<float> weights(rows.size() / (safetensorsBits(type) / 8));
    toFloats(type, rows.data(), weights.size(), weights.data());
    return weights;
  }

  /// All absmax are known before the first is quantized: their mean is.
  Status nestAbsmax() {
    const int64_t groups = layout.groups(), columns = layout.columns;
    nested.absmax.resize(layout.rows * groups);
    TESSERA_RETURN_IF_ERROR(inParallel(
        uint32_t(layout.micropanels()), [&](uint32_t i, unsigned thread) {
          std::vector<std::byte> &rows = rowsOf[thread];
          if (Status status = readRows(i * kMicropanel, rows); !status.ok())
            return status;
          const std::vector<float> weights = floatsOf(rows);
          for (int64_t n = 0; n < int64_t(weights.size()) / columns; ++n)
            if (!findAbsmax(
                    std::span(weights).subspan(n * columns, columns),
                    std::span(nested.absmax)
                        .subspan((i * kMicropanel + n) * groups, groups)))
              return outOfReach(i * kMicropanel, rows);
          return Status::success();
        }));
    quantizeAbsmax(nested);
    return Status::success();
  }

  void makeNormalFloats(int64_t micropanel, std::span<const std::byte> rows,
                        std::span<uint32_t> words,
                        std::span<uint16_t> scales) const {
    const int64_t groups = layout.groups(), columns = layout.columns;
    const std::vector<float> weights = floatsOf(rows);
    std::vector<uint32_t> ofRow(layout.words()), ofScales(layout.scaleRows()),
        allScales(ofScales.size() * kMicropanel);
    for (int64_t n = 0; n < int64_t(weights.size()) / columns; ++n) {
      const int64_t row = micropanel * kMicropanel + n;
      quantizeNormalFloats(
          std::span(weights).subspan(n * columns, columns),
          std::span(nested.absmax).subspan(row * groups, groups), ofRow);
      storeAbsmax(layout, nested, row, ofScales);
      for (std::size_t i = 0; i < ofRow.size(); ++i)
        words[i * kMicropanel + n] = ofRow[i];
      for (std::size_t i = 0; i < ofScales.size(); ++i)
        allScales[i * kMicropanel + n] = ofScales[i];
    }
    std::memcpy(scales.data(), allScales.data(),
                allScales.size() * sizeof(uint32_t));
  }

  /// Those of a micropanel, of `type`.
  Status readRows(int64_t row, std::vector<std::byte> &to) const {
    const int64_t rows = std::min(kMicropanel, layout.rows - row),
                  columns = layout.columns, size = safetensorsBits(type) / 8;
    if (factors) {
      auto scaled = readScaledRows({&file, &entry}, *factors, row, rows);
      if (scaled.ok())
        to.assign(std::as_bytes(std::span(*scaled)).begin(),
                  std::as_bytes(std::span(*scaled)).end());
      return scaled.status();
    }
    to.resize(rows * columns * size);
    if (!part.transposed)
      return file.read(entry, row * columns * size, to);
    auto *floats = reinterpret_cast<float *>(to.data());
    for (int64_t n = 0; n < rows; ++n)
      for (int64_t k = 0; k < columns; ++k)
        floats[n * columns + k] = whole[k * layout.rows + row + n];
    return Status::success();
  }

  /// Names the first of the weights that no scale reaches.
  Status outOfReach(int64_t row, std::span<const std::byte> rows) const {
    std::vector<float> weights(rows.size() / (safetensorsBits(type) / 8));
    toFloats(type, rows.data(), weights.size(), weights.data());
    const auto found = std::ranges::find_if_not(weights, [&](float weight) {
      return layout.nf4()
                 ? std::isfinite(weight)
                 : std::fabs(weight) <=
                       largestWeight(layout.bits, layout.zeros, layout.floats);
    });
    if (layout.nf4())
      return Status::error("'{}' in '{}' has the weight {}, which nf4 does not "
                           "have",
                           entry.name, file.path(), *found);
    int64_t at = row * layout.columns + (found - weights.begin());
    if (part.transposed)
      at = at % layout.columns * layout.rows + at / layout.columns;
    return Status::error("'{}' in '{}' has the weight {} at {}, which {} bits "
                         "with an f16 scale do not reach",
                         entry.name, file.path(), *found, at, layout.bits);
  }

  ModelState &model;
  const StateTensor &values, &scales;
  const SafetensorsFile &file;
  const SafetensorsEntry &entry;
  const TensorFactors *const factors; // may be null
  const QuantizedPart &part;
  const QuantizedLayout &layout;
  const SafetensorsType type; // of rows
  std::vector<float> whole;   // of a transposed matrix
  NestedAbsmax nested;        // of nf4
  std::vector<std::vector<std::byte>> rowsOf{hal::availableProcessors()};
};

} // namespace

Status quantizeTensor(ModelState &model, const StateTensor &values,
                      const StateTensor &scales, const SafetensorsFile &file,
                      const SafetensorsEntry &entry,
                      const TensorFactors *factors) {
  return Quantizer(model, values, scales, file, entry, factors).run();
}

} // namespace tessera
