// Matrices in blocks of a GGUF file, kept bit for bit (PackGgufBlocks.h). The
// order of rows is that of GgufRows.h.
#include "runtime/data/gguf/GgufRows.h"
#include "runtime/support/Floats.h"
#include "runtime/support/Mxfp4.h"
#include "runtime/weights/MakeMicropanels.h"
#include "runtime/weights/PackGgufBlocks.h"
#include "runtime/weights/PackedFields.h"
#include "runtime/weights/formats/PackedFormats.h"

#include <algorithm>
#include <cmath>

namespace tessera {

static const GgufRows *ggufRows(const SafetensorsModel::Location &at) {
  return at.entry->source ? at.entry->source->gguf() : nullptr;
}

// Numbers of plain types are not in blocks, and may be quantized here.
static StatusOr<std::optional<PackedMatrix>>
findGgufBlocks(const QuantizedPart &part, const FindTensor &find) {
  auto matrix = find(part.source);
  const GgufRows *rows = matrix ? ggufRows(*matrix) : nullptr;
  if (!rows || ggufTypeInfo(rows->tensor->type)->block == 1)
    return std::optional<PackedMatrix>();
  const auto own =
      layoutOfBlocks(rows->tensor->type, part.layout.rows, part.layout.columns);
  // Dequantized; a program with --quant quantizes them again. Those of GPUs
  // have neither super-blocks nor mxfp4.
  if (!own || (own->superBlocks && !part.layout.superBlocks) ||
      (own->mxfp4() && !part.layout.mxfp4()))
    return std::optional<PackedMatrix>();
  if (*own != part.layout)
    return Status::error("'{}' in '{}' is {}, and the program expects another "
                         "layout; compile it for this file",
                         matrix->entry->name, matrix->file->path(),
                         ggufTypeInfo(rows->tensor->type)->name);
  if (rows->transposed != part.transposed ||
      int64_t(rows->rows) != part.layout.rows ||
      int64_t(rows->columns) != part.layout.columns)
    return Status::error("'{}' in '{}' has the shape [{}], the model's has {} "
                         "rows of {}",
                         matrix->entry->name, matrix->file->path(),
                         fmt::join(matrix->entry->shape, ", "),
                         part.layout.rows, part.layout.columns);
  return std::optional(PackedMatrix{*matrix, *matrix});
}

/// Of mxfp4 the scales are bytes, two in a number. Of super-blocks d and dmin
/// are scales of f16, in the first of five words.
static bool areFinite(const QuantizedLayout &layout,
                      std::span<const uint16_t> scales) {
  if (layout.mxfp4())
    return std::ranges::all_of(scales, [](uint16_t pair) {
      return std::max(pair & 0xff, pair >> 8) <= kMostMxfp4Exponent;
    });
  constexpr int64_t kOneWord = 2 * kMicropanel;
  const int64_t step =
      layout.superBlocks ? QuantizedLayout::kSuperScales * kOneWord : kOneWord;
  for (int64_t at = 0; at < std::ssize(scales); at += step)
    for (uint16_t scale :
         scales.subspan(at, std::min(kOneWord, std::ssize(scales) - at)))
      if (!std::isfinite(f16ToFloat(scale)))
        return false;
  return true;
}

static Status loadGgufBlocks(ModelState &model, const StateTensor &values,
                             const StateTensor &scales,
                             const PackedMatrix &matrix) {
  const GgufRows &source = *ggufRows(matrix.packed);
  const QuantizedLayout &layout = values.quantized->layout;
  return makeMicropanels(
      model, values, &scales,
      [&](int64_t micropanel, std::span<uint32_t> words,
          std::span<uint16_t> factors, unsigned) -> Status {
        const int64_t first = micropanel * kMicropanel,
                      count = std::min(kMicropanel, layout.rows - first);
        std::vector<std::byte> blocks(source.rowBytes());
        for (int64_t row = 0; row < count; ++row) {
          TESSERA_RETURN_IF_ERROR(source.readBlocks(first + row, blocks));
          packBlocks(source.tensor->type, layout, blocks, row, words, factors);
        }
        if (!areFinite(layout, factors))
          return Status::error("'{}' in '{}' has a scale that is not finite; "
                               "the file is damaged, give another copy of it",
                               source.tensor->name, source.file->where());
        return Status::success();
      });
}

const PackedFormat kGguf{findGgufBlocks, loadGgufBlocks, /*floats=*/false,
                         /*inBlocks=*/true};

} // namespace tessera
