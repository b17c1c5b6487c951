// Quantized weights in files, as AutoAWQ's version "gemm" has them: of a linear
// layer X.weight [out, in]
//
//   X.qweight  I32 [in, out / 8]          q + 8 of eight rows
//   X.qzeros   I32 [in / group, out / 8]  zero points + 8, of the same rows
//   X.scales   F16 [in / group, out]
//
// The rows of a word are, from the lowest bits, 0, 2, 4, 6, 1, 3, 5, 7
// (github.com/casper-hansen/AutoAWQ, awq/modules/linear/gemm.py).
#include "runtime/weights/MakeMicropanels.h"
#include "runtime/weights/PackedFields.h"
#include "runtime/weights/formats/PackedFormats.h"

#include <algorithm>
#include <array>

namespace tessera {

static constexpr int64_t kRows = 8;
/// Which of eight rows each place of a word has, the lowest first.
static constexpr std::array<int64_t, kRows> kOrder = {0, 2, 4, 6, 1, 3, 5, 7};

// GPTQ's tensors have the same names and another shape of qweight.
static StatusOr<std::optional<PackedMatrix>> findAwq(const QuantizedPart &part,
                                                     const FindTensor &find) {
  const QuantizedLayout &layout = part.layout;
  const std::string stem = stemOf(part);
  auto packed = find(stem + "qweight"), scale = find(stem + "scales");
  if (!packed || !scale || layout.bits != 4 || !layout.zeros ||
      layout.rows % kRows != 0)
    return std::optional<PackedMatrix>();
  auto groups = uint64_t(layout.groups()), rows = uint64_t(layout.rows),
       columns = uint64_t(layout.columns);
  if (packed->entry->shape != std::vector<uint64_t>{columns, rows / kRows})
    return std::optional<PackedMatrix>();
  PackedMatrix matrix{*packed, *scale, find(stem + "qzeros")};
  TESSERA_RETURN_IF_ERROR(checkWholeGroups(part.source, layout));
  TESSERA_RETURN_IF_ERROR(
      checkPacked(*packed, {columns, rows / kRows}, layout));
  TESSERA_RETURN_IF_ERROR(checkScales(*scale, {groups, rows}, layout));
  TESSERA_RETURN_IF_ERROR(
      checkZeroPoints(matrix, {groups, rows / kRows}, layout));
  return std::optional(matrix);
}

/// Place j of word i becomes place i of word j (Hacker's Delight, 7-3, of four
/// bits instead of one).
static void transpose(std::array<uint32_t, kRows> &words) {
  uint32_t mask = 0x0000FFFF;
  for (unsigned apart = kRows / 2; apart > 0; apart /= 2) {
    for (unsigned i = 0; i < kRows; ++i)
      if (!(i & apart)) {
        uint32_t differ = ((words[i] >> (4 * apart)) ^ words[i + apart]) & mask;
        words[i + apart] ^= differ;
        words[i] ^= differ << (4 * apart);
      }
    mask ^= mask << (2 * apart);
  }
}

static Status loadAwq(ModelState &model, const StateTensor &values,
                      const StateTensor &scales, const PackedMatrix &matrix) {
  const QuantizedLayout &layout = values.quantized->layout;
  const int64_t rows = layout.rows, groups = layout.groups();
  const int64_t width = rows / kRows; // of a column, in words
  auto all = readAll<uint32_t>(matrix.packed);
  if (!all.ok())
    return all.status();
  auto factorsOfAll = readScales(matrix.scale, rows * groups);
  if (!factorsOfAll.ok())
    return factorsOfAll.status();
  auto zeros = readZeros(matrix, layout,
                         {.ofGroup = width, .ofWord = 1, .rows = kOrder});
  if (!zeros.ok())
    return zeros.status();
  return makeMicropanels(
      model, values, &scales,
      [&](int64_t micropanel, std::span<uint32_t> packed,
          std::span<uint16_t> factors, unsigned) -> Status {
        const int64_t first = micropanel * kMicropanel,
                      count = std::min(kMicropanel, rows - first);
        std::array<uint32_t, kRows> words; // of eight columns, then eight rows
        for (int64_t row = 0; row < count; row += kRows)
          for (int64_t column = 0; column < layout.columns; column += kRows) {
            for (int64_t i = 0; i < kRows; ++i)
              words[i] = (*all)[(column + i) * width + (first + row) / kRows];
            transpose(words);
            for (int64_t i = 0; i < kRows; ++i)
              packed[column / kRows * kMicropanel + row + kOrder[i]] = words[i];
          }
        MicropanelScales{layout, factors}.putAll(*factorsOfAll, *zeros, first);
        return Status::success();
      });
}

const PackedFormat kAwq{findAwq, loadAwq};

} // namespace tessera
