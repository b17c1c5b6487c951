// Weights that a checkpoint stores as e4m3 with scales
// (runtime/data/Float8Weights.h), copied bit for bit if the program expects
// e4m3.
#include "runtime/data/Float8Weights.h"
#include "runtime/support/Floats.h"
#include "runtime/weights/CopyTensor.h"
#include "runtime/weights/MakeMicropanels.h"
#include "runtime/weights/PackedFields.h"
#include "runtime/weights/formats/PackedFormats.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tessera {

/// Whether f16 has each scale as closely as it has its normal numbers. Smaller
/// ones it has as multiples of 2^-24, and larger ones than 65504 not at all.
static StatusOr<bool> f16HasAll(const SafetensorsModel::Location &scales) {
  constexpr uint64_t kAtOnce = uint64_t(1) << 16;
  const uint64_t size = safetensorsBits(scales.entry->type) / 8,
                 count = (scales.entry->end - scales.entry->begin) / size;
  std::vector<std::byte> bytes;
  std::vector<float> wide;
  for (uint64_t at = 0; at < count; at += wide.size()) {
    wide.resize(std::min(kAtOnce, count - at));
    bytes.resize(wide.size() * size);
    TESSERA_RETURN_IF_ERROR(scales.file->read(*scales.entry, at * size, bytes));
    toFloats(scales.entry->type, bytes.data(), wide.size(), wide.data());
    const bool areNear = std::ranges::all_of(wide, [](float scale) {
      return std::fabs(f16ToFloat(floatToF16(scale)) - scale) <=
             std::fabs(scale) * 0x1p-11f;
    });
    if (!areNear)
      return false;
  }
  return true;
}

// Empty if the weights are not e4m3, if a group of the part's layout would need
// two scales, or if a scale is subnormal or out of range in f16: the weights
// are then dequantized and quantized again.
static StatusOr<std::optional<PackedMatrix>>
findFloat8(const QuantizedPart &part, const FindTensor &find) {
  const QuantizedLayout &layout = part.layout;
  auto weights = find(part.source);
  const Float8Parts *parts = weights && weights->entry->source
                                 ? weights->entry->source->float8()
                                 : nullptr;
  const bool fits =
      parts && weights->entry->shape ==
                   std::vector{uint64_t(layout.rows), uint64_t(layout.columns)};
  if (!fits || (parts->blocks.columns % uint64_t(layout.group) != 0 &&
                parts->blocks.columns < uint64_t(layout.columns)))
    return std::optional<PackedMatrix>();
  auto isNear = f16HasAll(parts->scales);
  if (!isNear.ok())
    return isNear.status();
  if (!*isNear)
    return std::optional<PackedMatrix>();
  PackedMatrix matrix{parts->weights, parts->scales};
  matrix.blockRows = int64_t(parts->blocks.rows);
  matrix.blockColumns = int64_t(parts->blocks.columns);
  return std::optional(matrix);
}

static Status loadFloat8(ModelState &model, const StateTensor &values,
                         const StateTensor &scales,
                         const PackedMatrix &matrix) {
  const QuantizedLayout &layout = values.quantized->layout;
  const int64_t columns = layout.columns, perWord = layout.perWord(),
                across =
                    (columns + matrix.blockColumns - 1) / matrix.blockColumns,
                down = (layout.rows + matrix.blockRows - 1) / matrix.blockRows;
  auto ofBlocks = readScales(matrix.scale, down * across);
  if (!ofBlocks.ok())
    return ofBlocks.status();
  return makeMicropanels(
      model, values, &scales,
      [&](int64_t micropanel, std::span<uint32_t> words,
          std::span<uint16_t> factors, unsigned) -> Status {
        const int64_t first = micropanel * kMicropanel,
                      count = std::min(kMicropanel, layout.rows - first);
        std::vector<uint8_t> rows(count * columns);
        TESSERA_RETURN_IF_ERROR(
            matrix.packed.file->read(*matrix.packed.entry, first * columns,
                                     std::as_writable_bytes(std::span(rows))));
        if (auto nan = std::ranges::find_if(rows, isE4m3Nan); nan != rows.end())
          return Status::error("'{}' in '{}' is NaN at [{}, {}]; the file is "
                               "damaged, give another copy of it",
                               matrix.packed.entry->name,
                               matrix.packed.file->path(),
                               first + (nan - rows.begin()) / columns,
                               (nan - rows.begin()) % columns);
        for (int64_t row = 0; row < count; ++row) {
          for (int64_t k = 0; k < columns; k += perWord) {
            uint32_t word = 0;
            std::memcpy(&word, &rows[row * columns + k],
                        std::min(perWord, columns - k));
            words[k / perWord * kMicropanel + row] = word;
          }
          const int64_t block = (first + row) / matrix.blockRows * across;
          for (int64_t group = 0; group < layout.groups(); ++group)
            factors[group * kMicropanel + row] =
                (*ofBlocks)[block + group * layout.group / matrix.blockColumns];
        }
        // Words of columns that are not there.
        const int64_t own = (columns + perWord - 1) / perWord;
        std::fill(words.begin() + own * kMicropanel, words.end(), 0u);
        return Status::success();
      });
}

const PackedFormat kFloat8{findFloat8, loadFloat8, /*floats=*/true};

} // namespace tessera
