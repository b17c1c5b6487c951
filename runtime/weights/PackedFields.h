// Shared by the formats of quantized weights: checks of their tensors,
// conversion of scales and zero points. Internal to PackedWeights and formats/.
#pragma once
#include "runtime/weights/PackedWeights.h"

#include <initializer_list>

namespace tessera {

/// Converts our words to a file's and back, by exclusive or: files add 128 to
/// 8-bit integers; for 4 bits both add 8.
inline uint32_t packedBias(const QuantizedLayout &layout) {
  return layout.bits == 8 && !layout.floats ? 0x80808080u : 0u;
}

/// "X." of "X.weight".
std::string stemOf(const QuantizedPart &part);

Status checkWholeGroups(const std::string &name, const QuantizedLayout &layout);
/// That shape, of any type.
Status checkShape(const SafetensorsModel::Location &at,
                  std::initializer_list<uint64_t> wanted,
                  const QuantizedLayout &layout);
/// I32 of that shape.
Status checkPacked(const SafetensorsModel::Location &at,
                   std::initializer_list<uint64_t> shape,
                   const QuantizedLayout &layout);
/// Floats of that shape.
Status checkScales(const SafetensorsModel::Location &at,
                   std::initializer_list<uint64_t> shape,
                   const QuantizedLayout &layout);

/// Scales that come from the tensor `at`, as f16; one out of f16's range is an
/// error, which names the tensor.
StatusOr<std::vector<uint16_t>> toScales(const SafetensorsModel::Location &at,
                                         std::span<const float> wide);
/// `count` scales from index `first` of the tensor.
StatusOr<std::vector<uint16_t>> readScales(const SafetensorsModel::Location &at,
                                           int64_t count, int64_t first = 0);

/// A whole tensor.
template <typename T>
StatusOr<std::vector<T>> readAll(const SafetensorsModel::Location &at) {
  std::vector<T> values((at.entry->end - at.entry->begin) / sizeof(T));
  TESSERA_RETURN_IF_ERROR(
      at.file->read(*at.entry, 0, std::as_writable_bytes(std::span(values))));
  return values;
}

/// The layout of zero points in words of 32 / bits consecutive rows.
struct ZeroOrder {
  int64_t ofGroup, ofWord; ///< from one to the next, in words
  /// For each field of a word, from the lowest bits; empty: in order.
  std::span<const int64_t> rows = {};
};

/// The number of words with the zero points of all rows of a group.
int64_t rowWords(const QuantizedLayout &layout);
/// I32 of that shape; an error where a matrix has none.
Status checkZeroPoints(const PackedMatrix &matrix,
                       std::initializer_list<uint64_t> shape,
                       const QuantizedLayout &layout);
/// Zero points as f16 [groups, rows]; empty for a layout without. Files add
/// 2^(bits - 1); `added` is added to each word first.
StatusOr<std::vector<uint16_t>> readZeros(const PackedMatrix &matrix,
                                          const QuantizedLayout &layout,
                                          ZeroOrder order, uint32_t added = 0);

/// The scales of one micropanel, `layout.scaleRows()` × 16, with its zero
/// points where the layout has them.
struct MicropanelScales {
  const QuantizedLayout &layout;
  std::span<uint16_t> values;

  /// Of a row of the micropanel; `zeros` are those of the matrix, from
  /// readZeros.
  void put(int64_t row, int64_t group, uint16_t scale,
           std::span<const uint16_t> zeros, int64_t firstRow) const;
  /// Of all rows of the micropanel, from those of the matrix, [groups, rows].
  void putAll(std::span<const uint16_t> scales, std::span<const uint16_t> zeros,
              int64_t firstRow) const;
};

} // namespace tessera
