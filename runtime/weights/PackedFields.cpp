#include "runtime/weights/PackedFields.h"
#include "runtime/support/Floats.h"
#include "runtime/weights/CopyTensor.h"

#include <algorithm>
#include <cmath>

namespace tessera {

std::string stemOf(const QuantizedPart &part) {
  constexpr std::string_view kWeight = "weight";
  return part.source.substr(0, part.source.size() - kWeight.size());
}

//===--- checks -----------------------------------------------------------===//

Status checkShape(const SafetensorsModel::Location &at,
                  std::initializer_list<uint64_t> wanted,
                  const QuantizedLayout &layout) {
  if (std::ranges::equal(at.entry->shape, wanted))
    return Status::success();
  return Status::error(
      "'{}' in '{}' has the shape [{}], of {} bits in groups of {} it would be "
      "[{}]; give the --quant and --quant-group of its quantization_config",
      at.entry->name, at.file->path(), fmt::join(at.entry->shape, ", "),
      layout.bits, layout.group, fmt::join(wanted, ", "));
}

Status checkWholeGroups(const std::string &name,
                        const QuantizedLayout &layout) {
  if (layout.columns % layout.group == 0)
    return Status::success();
  return Status::error("'{}' has {} columns, no multiple of the group of {}; "
                       "choose another --quant-group",
                       name, layout.columns, layout.group);
}

static Status checkType(const SafetensorsModel::Location &at, bool isRight) {
  if (isRight)
    return Status::success();
  return Status::error("'{}' in '{}' is {}; packed weights are I32 with floats "
                       "as scales",
                       at.entry->name, at.file->path(),
                       safetensorsName(at.entry->type));
}

Status checkPacked(const SafetensorsModel::Location &at,
                   std::initializer_list<uint64_t> shape,
                   const QuantizedLayout &layout) {
  TESSERA_RETURN_IF_ERROR(checkShape(at, shape, layout));
  return checkType(at, at.entry->type == SafetensorsType::i32);
}

Status checkScales(const SafetensorsModel::Location &at,
                   std::initializer_list<uint64_t> shape,
                   const QuantizedLayout &layout) {
  TESSERA_RETURN_IF_ERROR(checkShape(at, shape, layout));
  return checkType(at, converts(at.entry->type, SafetensorsType::f32));
}

StatusOr<std::vector<uint16_t>> toScales(const SafetensorsModel::Location &at,
                                         std::span<const float> wide) {
  std::vector<uint16_t> halves;
  for (float scale : wide) {
    halves.push_back(floatToF16(scale));
    // Of the smallest scales f16 has multiples of 2^-24.
    if (!(std::fabs(f16ToFloat(halves.back()) - scale) <=
          std::max(std::fabs(scale) * 0x1p-10f, 0x1p-25f)))
      return Status::error("'{}' in '{}' has the scale {}, which f16 does not "
                           "hold",
                           at.entry->name, at.file->path(), scale);
  }
  return halves;
}

StatusOr<std::vector<uint16_t>> readScales(const SafetensorsModel::Location &at,
                                           int64_t count, int64_t first) {
  const auto type = at.entry->type;
  const int64_t size = safetensorsBits(type) / 8;
  std::vector<std::byte> bytes(count * size);
  TESSERA_RETURN_IF_ERROR(at.file->read(*at.entry, first * size, bytes));
  std::vector<float> wide(count);
  toFloats(type, bytes.data(), count, wide.data());
  return toScales(at, wide);
}

//===--- zero points ------------------------------------------------------===//

int64_t rowWords(const QuantizedLayout &layout) {
  return (layout.rows + layout.perWord() - 1) / layout.perWord();
}

Status checkZeroPoints(const PackedMatrix &matrix,
                       std::initializer_list<uint64_t> shape,
                       const QuantizedLayout &layout) {
  if (matrix.zeros)
    return checkPacked(*matrix.zeros, shape, layout);
  return Status::error("'{}' in '{}' lacks the zero points that config.json "
                       "declares; give a complete checkpoint",
                       matrix.packed.entry->name, matrix.packed.file->path());
}

static std::vector<uint16_t> unpackZeros(const QuantizedLayout &layout,
                                         std::span<const uint32_t> words,
                                         ZeroOrder order) {
  const int64_t rows = layout.rows, perWord = layout.perWord(),
                middle = int64_t(1) << (layout.bits - 1);
  std::vector<uint16_t> zeros(layout.groups() * rows);
  for (int64_t group = 0; group < layout.groups(); ++group)
    for (int64_t first = 0; first < rows; first += perWord) {
      uint32_t word =
          words[group * order.ofGroup + first / perWord * order.ofWord];
      for (int64_t i = 0; i < perWord; ++i, word >>= layout.bits) {
        int64_t row = first + (order.rows.empty() ? i : order.rows[i]);
        if (row < rows)
          zeros[group * rows + row] = floatToF16(
              float(int64_t(word & ((1u << layout.bits) - 1)) - middle));
      }
    }
  return zeros;
}

StatusOr<std::vector<uint16_t>> readZeros(const PackedMatrix &matrix,
                                          const QuantizedLayout &layout,
                                          ZeroOrder order, uint32_t added) {
  if (!layout.zeros)
    return std::vector<uint16_t>();
  auto words = readAll<uint32_t>(*matrix.zeros);
  if (!words.ok())
    return words.status();
  for (uint32_t &word : *words)
    word += added;
  return unpackZeros(layout, *words, order);
}

void MicropanelScales::put(int64_t row, int64_t group, uint16_t scale,
                           std::span<const uint16_t> zeros,
                           int64_t firstRow) const {
  uint16_t *to = &values[layout.scalesAt(group) * kMicropanel + row];
  to[0] = scale;
  if (layout.zeros)
    to[kMicropanel] = zeros[group * layout.rows + firstRow + row];
}

void MicropanelScales::putAll(std::span<const uint16_t> scales,
                              std::span<const uint16_t> zeros,
                              int64_t firstRow) const {
  const int64_t count = std::min(kMicropanel, layout.rows - firstRow);
  for (int64_t group = 0; group < layout.groups(); ++group)
    for (int64_t row = 0; row < count; ++row)
      put(row, group, scales[group * layout.rows + firstRow + row], zeros,
          firstRow);
}

} // namespace tessera
