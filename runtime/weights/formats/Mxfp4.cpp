// Stacks of experts in MXFP4 (runtime/data/Mxfp4Weights.h), kept bit for bit:
// of X [experts, in, out]
//
//   X_blocks  U8 [experts, out, in / 32, 16]
//   X_scales  U8 [experts, out, in / 32]
//
// The rows of all experts follow each other in both, and in micropanels. A
// block's bytes are four words, the first weight in the lowest bits, and an
// exponent is that of the layout.
#include "runtime/data/Mxfp4Weights.h"
#include "runtime/data/ShallowJson.h"
#include "runtime/weights/MakeMicropanels.h"
#include "runtime/weights/formats/PackedFormats.h"

#include <algorithm>

namespace tessera {

static constexpr int64_t kBlockBytes = QuantizedLayout::kMxfp4Group / 2;

// Another layout is not of these experts.
static StatusOr<std::optional<PackedMatrix>>
findMxfp4(const QuantizedPart &part, const FindTensor &find) {
  if (!part.layout.mxfp4() || !part.transposed || part.stack == 0)
    return std::optional<PackedMatrix>();
  auto stack = find(part.source);
  const Mxfp4Parts *parts =
      stack && stack->entry->source ? stack->entry->source->mxfp4() : nullptr;
  if (!parts)
    return std::optional<PackedMatrix>();
  const uint64_t rows = uint64_t(part.layout.rows / part.stack);
  const std::vector<uint64_t> shape = {uint64_t(part.stack),
                                       uint64_t(part.layout.columns), rows};
  if (stack->entry->shape != shape)
    return Status::error("'{}' in '{}' has the shape [{}], the model's has "
                         "[{}]",
                         stack->entry->name, stack->file->path(),
                         fmt::join(stack->entry->shape, ", "),
                         fmt::join(shape, ", "));
  return std::optional(PackedMatrix{parts->blocks, parts->scales});
}

// Rows `first` to `first + count` of a tensor of `bytes` a row.
static Status readRows(const SafetensorsModel::Location &from, int64_t first,
                       int64_t count, int64_t bytes,
                       std::vector<uint8_t> &rows) {
  rows.resize(std::size_t(count * bytes));
  return from.file->read(*from.entry, uint64_t(first * bytes),
                         std::as_writable_bytes(std::span(rows)));
}

// Words of a row's blocks, or of its exponents, into a lane.
static void putWords(std::span<const uint8_t> row, int64_t lane,
                     uint32_t *words) {
  for (std::size_t at = 0; at < row.size(); at += 4) {
    uint32_t word = 0;
    for (std::size_t byte = 0; byte < std::min<std::size_t>(4, row.size() - at);
         ++byte)
      word |= uint32_t(row[at + byte]) << (8 * byte);
    words[int64_t(at / 4) * kMicropanel + lane] = word;
  }
}

static Status loadMxfp4(ModelState &model, const StateTensor &values,
                        const StateTensor &scales, const PackedMatrix &matrix) {
  const QuantizedLayout &layout = values.quantized->layout;
  const int64_t groups = layout.groups();
  return makeMicropanels(
      model, values, &scales,
      [&](int64_t micropanel, std::span<uint32_t> words,
          std::span<uint16_t> factors, unsigned) -> Status {
        const int64_t first = micropanel * kMicropanel;
        std::vector<uint8_t> blocks, exponents;
        TESSERA_RETURN_IF_ERROR(readRows(matrix.packed, first, kMicropanel,
                                         groups * kBlockBytes, blocks));
        TESSERA_RETURN_IF_ERROR(
            readRows(matrix.scale, first, kMicropanel, groups, exponents));
        TESSERA_RETURN_IF_ERROR(checkMxfp4Exponents(
            matrix.scale, uint64_t(first * groups), exponents));
        auto *scaleWords = reinterpret_cast<uint32_t *>(factors.data());
        for (int64_t lane = 0; lane < kMicropanel; ++lane) {
          putWords(std::span(blocks).subspan(lane * groups * kBlockBytes,
                                             groups * kBlockBytes),
                   lane, words.data());
          putWords(std::span(exponents).subspan(lane * groups, groups), lane,
                   scaleWords);
        }
        return Status::success();
      });
}

const PackedFormat kMxfp4{findMxfp4, loadMxfp4, /*floats=*/true,
                          /*inBlocks=*/true};

} // namespace tessera
