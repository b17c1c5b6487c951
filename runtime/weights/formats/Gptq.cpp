// Quantized weights in files, as GPTQ's tools write them (AutoGPTQ, GPTQModel):
// of a linear layer X.weight [out, in]
//
//   X.qweight  I32 [in × bits / 32, out]     q, of a column the first lowest
//   X.scales   F16 or BF16 [in / group, out]
//   X.qzeros   I32 [in / group, out × bits / 32]  the zero point, or (in the
//                                                 first version) 1 less
//   X.g_idx    I32 [in]                      which group a column is in
//
// Supported if groups are consecutive columns (`"desc_act": false`). If the
// layout has no zero points (`"sym": true`), they must be the middle value.
// Otherwise they are of the first version, and 1 is added to whole words, with
// carries, which is how GPTQModel subtracts it. AutoGPTQ's kernels add it to
// each zero point, which differs where one was 0.
#include "runtime/weights/MakeMicropanels.h"
#include "runtime/weights/PackedFields.h"
#include "runtime/weights/formats/PackedFormats.h"

#include <algorithm>

namespace tessera {

/// Of symmetric weights, which config.json says that they are, all zero points
/// are the middle. The first version of the format stores 1 less.
static Status checkZeros(const SafetensorsModel::Location &zeros, int bits) {
  auto words = readAll<uint32_t>(zeros);
  if (!words.ok())
    return words.status();
  const uint32_t middle = bits == 4 ? 0x88888888u : 0x80808080u,
                 less = bits == 4 ? 0x77777777u : 0x7F7F7F7Fu;
  for (uint32_t each : {less, middle})
    if (std::ranges::all_of(*words, [&](uint32_t w) { return w == each; }))
      return Status::success();
  return Status::error("'{}' in '{}' has zero points other than the middle; "
                       "give a model that was quantized with \"sym\": true, or "
                       "in full precision",
                       zeros.entry->name, zeros.file->path());
}

static Status checkOrder(const SafetensorsModel::Location &order,
                         const QuantizedLayout &layout) {
  auto groups = readAll<int32_t>(order);
  if (!groups.ok())
    return groups.status();
  for (int64_t column = 0; column < layout.columns; ++column)
    if ((*groups)[column] != column / layout.group)
      return Status::error("'{}' in '{}' has columns in another order than "
                           "their groups; give a model that was quantized with "
                           "\"desc_act\": false, or in full precision",
                           order.entry->name, order.file->path());
  return Status::success();
}

static StatusOr<std::optional<PackedMatrix>> findGptq(const QuantizedPart &part,
                                                      const FindTensor &find) {
  const std::string stem = stemOf(part);
  auto packed = find(stem + "qweight"), scale = find(stem + "scales");
  if (!packed || !scale)
    return std::optional<PackedMatrix>();
  const QuantizedLayout &layout = part.layout;
  auto rows = uint64_t(layout.rows), groups = uint64_t(layout.groups()),
       perWord = uint64_t(layout.perWord());
  TESSERA_RETURN_IF_ERROR(checkWholeGroups(part.source, layout));
  TESSERA_RETURN_IF_ERROR(
      checkPacked(*packed, {uint64_t(layout.columns) / perWord, rows}, layout));
  TESSERA_RETURN_IF_ERROR(checkScales(*scale, {groups, rows}, layout));
  PackedMatrix matrix{*packed, *scale, find(stem + "qzeros")};
  if (matrix.zeros || layout.zeros)
    TESSERA_RETURN_IF_ERROR(
        checkZeroPoints(matrix, {groups, uint64_t(rowWords(layout))}, layout));
  if (matrix.zeros && !layout.zeros)
    TESSERA_RETURN_IF_ERROR(checkZeros(*matrix.zeros, layout.bits));
  if (auto order = find(stem + "g_idx")) {
    TESSERA_RETURN_IF_ERROR(
        checkPacked(*order, {uint64_t(layout.columns)}, layout));
    TESSERA_RETURN_IF_ERROR(checkOrder(*order, layout));
  }
  return std::optional(matrix);
}

static Status loadGptq(ModelState &model, const StateTensor &values,
                       const StateTensor &scales, const PackedMatrix &matrix) {
  const QuantizedLayout &layout = values.quantized->layout;
  const int64_t rows = layout.rows, groups = layout.groups();
  const int64_t words = layout.columns / layout.perWord();
  // [words, rows] and [groups, rows]: a micropanel has a few of each of them.
  auto all = readAll<uint32_t>(matrix.packed);
  if (!all.ok())
    return all.status();
  auto factorsOfAll = readScales(matrix.scale, rows * groups);
  if (!factorsOfAll.ok())
    return factorsOfAll.status();
  // Words were packed before 1 was taken from each of them, so that it is given
  // back with all carries.
  auto zeros =
      readZeros(matrix, layout, {.ofGroup = rowWords(layout), .ofWord = 1},
                layout.bits == 4 ? 0x11111111u : 0x01010101u);
  if (!zeros.ok())
    return zeros.status();
  return makeMicropanels(
      model, values, &scales,
      [&](int64_t micropanel, std::span<uint32_t> packed,
          std::span<uint16_t> factors, unsigned) -> Status {
        const int64_t first = micropanel * kMicropanel,
                      count = std::min(kMicropanel, rows - first);
        for (int64_t word = 0; word < words; ++word)
          for (int64_t row = 0; row < count; ++row)
            packed[word * kMicropanel + row] =
                (*all)[word * rows + first + row] ^ packedBias(layout);
        MicropanelScales{layout, factors}.putAll(*factorsOfAll, *zeros, first);
        return Status::success();
      });
}

const PackedFormat kGptq{findGptq, loadGptq};

} // namespace tessera
