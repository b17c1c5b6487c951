// Quantized weights in files, as compressed-tensors' format "pack-quantized"
// has them, which PackedWeights.h describes.
#include "runtime/weights/MakeMicropanels.h"
#include "runtime/weights/PackedFields.h"
#include "runtime/weights/formats/PackedFormats.h"

#include <algorithm>

namespace tessera {

static StatusOr<std::optional<PackedMatrix>>
findCompressed(const QuantizedPart &part, const FindTensor &find) {
  auto packed = find(part.source + "_packed");
  auto scale = find(part.source + "_scale");
  if (!packed || !scale)
    return std::optional<PackedMatrix>();
  find(part.source + "_shape"); // says what the others say
  const QuantizedLayout &layout = part.layout;
  TESSERA_RETURN_IF_ERROR(checkWholeGroups(part.source, layout));
  TESSERA_RETURN_IF_ERROR(checkPacked(
      *packed,
      {uint64_t(layout.rows), uint64_t(layout.columns / layout.perWord())},
      layout));
  TESSERA_RETURN_IF_ERROR(checkScales(
      *scale, {uint64_t(layout.rows), uint64_t(layout.groups())}, layout));
  PackedMatrix matrix{*packed, *scale};
  if (layout.zeros) {
    matrix.zeros = find(part.source + "_zero_point");
    TESSERA_RETURN_IF_ERROR(checkZeroPoints(
        matrix, {uint64_t(rowWords(layout)), uint64_t(layout.groups())},
        layout));
  }
  return std::optional(matrix);
}

static Status loadCompressed(ModelState &model, const StateTensor &values,
                             const StateTensor &scales,
                             const PackedMatrix &matrix) {
  const QuantizedLayout &layout = values.quantized->layout;
  const int64_t words = layout.columns / layout.perWord(),
                groups = layout.groups();
  auto zeros = readZeros(matrix, layout, {.ofGroup = 1, .ofWord = groups});
  if (!zeros.ok())
    return zeros.status();
  return makeMicropanels(
      model, values, &scales,
      [&](int64_t micropanel, std::span<uint32_t> packed,
          std::span<uint16_t> factors, unsigned) -> Status {
        const int64_t first = micropanel * kMicropanel,
                      count = std::min(kMicropanel, layout.rows - first);
        std::vector<uint32_t> rows(count * words);
        TESSERA_RETURN_IF_ERROR(
            matrix.packed.file->read(*matrix.packed.entry, first * words * 4,
                                     std::as_writable_bytes(std::span(rows))));
        auto halves = readScales(matrix.scale, count * groups, first * groups);
        if (!halves.ok())
          return halves.status();
        MicropanelScales to{layout, factors};
        for (int64_t word = 0; word < words; ++word)
          for (int64_t row = 0; row < count; ++row)
            packed[word * kMicropanel + row] =
                rows[row * words + word] ^ packedBias(layout);
        for (int64_t group = 0; group < groups; ++group)
          for (int64_t row = 0; row < count; ++row)
            to.put(row, group, (*halves)[row * groups + group], *zeros, first);
        return Status::success();
      });
}

const PackedFormat kCompressedTensors{findCompressed, loadCompressed};

} // namespace tessera
