// Weights of MXFP4 (OCP Microscaling Formats 1.0, section 5), as checkpoints of
// gpt-oss have them: for a stack X [experts, in, out] there are
//
//   X_blocks  U8 [experts, out, in / 32, 16]  two weights a byte, the earlier
//             in the low half: a sign, two bits of exponent with bias 1, one
//             of mantissa
//   X_scales  U8 [experts, out, in / 32]  the exponent of a block's factor, a
//             power of two, with bias 127
//
// (transformers, integrations/mxfp4.py). A weight is the product, which bf16
// has exactly. Programs that multiply blocks as they are read both tensors
// (runtime/weights/formats/Mxfp4.cpp). Errors: another type or shape; as
// weights are read, a scale of 255, which is NaN, and factors with which a
// weight might not be finite.
#include "runtime/data/Mxfp4Weights.h"
#include "runtime/data/ShallowJson.h"
#include "runtime/support/Floats.h"
#include "runtime/support/Mxfp4.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>

namespace tessera {
namespace {

constexpr uint64_t kBlock = 32; ///< weights of a scale
constexpr uint64_t kBlockBytes = kBlock / 2;

/// A stack of matrices, transposed from the order of the file.
class Mxfp4Stack final : public TensorSource {
public:
  Mxfp4Stack(const SafetensorsModel::Location &blocks,
             const SafetensorsModel::Location &scales)
      : parts{blocks, scales}, out(blocks.entry->shape[1]),
        inBlocks(blocks.entry->shape[2]) {}

  Status read(uint64_t offset, std::span<std::byte> to) const override {
    if (offset % 2 != 0 || to.size() % 2 != 0)
      return Status::error("{} is read by parts of elements; please report "
                           "this",
                           shownName(parts.blocks.entry->name));
    std::shared_ptr<const Expert> expert;
    for (uint64_t at = offset / 2, end = at + to.size() / 2; at < end;) {
      const uint64_t row = at / out, column = at % out,
                     count = std::min(out - column, end - at),
                     number = row / kBlock / inBlocks;
      if (!expert || expert->number != number) {
        auto found = expertOf(number);
        if (!found.ok())
          return found.status();
        expert = found.take();
      }
      convert(*expert, row % (kBlock * inBlocks), column, count,
              &to[2 * at - offset]);
      at += count;
    }
    return Status::success();
  }

  const Mxfp4Parts *mxfp4() const override { return &parts; }

private:
  /// One matrix as it is in the file.
  struct Expert {
    uint64_t number = UINT64_MAX;
    std::vector<uint8_t> blocks, scales;
  };

  /// Pieces of an expert are read one after another: the last one is kept.
  StatusOr<std::shared_ptr<const Expert>> expertOf(uint64_t number) const {
    std::lock_guard lock(mutex);
    if (last && last->number == number)
      return last;
    auto expert = std::make_shared<Expert>();
    TESSERA_RETURN_IF_ERROR(load(number, *expert));
    last = expert;
    return last;
  }

  Status load(uint64_t number, Expert &expert) const {
    expert.scales.resize(out * inBlocks);
    expert.blocks.resize(expert.scales.size() * kBlockBytes);
    for (auto [from, bytes] : {std::pair(&parts.scales, &expert.scales),
                               std::pair(&parts.blocks, &expert.blocks)})
      TESSERA_RETURN_IF_ERROR(
          from->file->read(*from->entry, number * bytes->size(),
                           std::as_writable_bytes(std::span(*bytes))));
    TESSERA_RETURN_IF_ERROR(checkMxfp4Exponents(
        parts.scales, number * expert.scales.size(), expert.scales));
    expert.number = number;
    return Status::success();
  }

  /// `count` weights of one input, of outputs from `column` on.
  void convert(const Expert &expert, uint64_t input, uint64_t column,
               uint64_t count, std::byte *to) const {
    const uint64_t byte = input % kBlock / 2, shift = input % 2 * 4;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t block = (column + i) * inBlocks + input / kBlock;
      const unsigned code =
          expert.blocks[block * kBlockBytes + byte] >> shift & 15;
      const uint16_t value =
          floatToBf16(kMxfp4Numbers[code] * mxfp4Scale(expert.scales[block]));
      std::memcpy(to + 2 * i, &value, 2);
    }
  }

  const Mxfp4Parts parts;
  const uint64_t out, inBlocks;
  mutable std::mutex mutex;
  mutable std::shared_ptr<const Expert> last;
};

Status checkBlocks(const SafetensorsModel::Location &blocks,
                   const SafetensorsModel::Location &scales) {
  std::vector<uint64_t> shape = blocks.entry->shape;
  const bool isStack = blocks.entry->type == SafetensorsType::u8 &&
                       shape.size() == 4 && shape[3] == kBlockBytes;
  if (!isStack)
    return Status::error("{} in '{}' must be U8 of the shape [experts, out, "
                         "in / 32, 16]",
                         shownName(blocks.entry->name), blocks.file->path());
  shape.pop_back();
  if (scales.entry->type != SafetensorsType::u8 || scales.entry->shape != shape)
    return Status::error("{} in '{}' must be U8 of the shape [{}, {}, {}], a "
                         "scale for each block",
                         shownName(scales.entry->name), scales.file->path(),
                         shape[0], shape[1], shape[2]);
  return Status::success();
}

bool areBlocks(const SafetensorsEntry &entry) {
  return entry.type == SafetensorsType::u8 && entry.shape.size() == 4 &&
         entry.shape.back() == kBlockBytes;
}

} // namespace

Status checkMxfp4Exponents(const SafetensorsModel::Location &from,
                           uint64_t first, std::span<const uint8_t> scales) {
  auto bad = std::ranges::find_if(
      scales, [](uint8_t scale) { return scale > kMostMxfp4Exponent; });
  if (bad == scales.end())
    return Status::success();
  return Status::error("{} in '{}' has the scale {} at {}, with which weights "
                       "are not finite; the file is damaged, give another copy "
                       "of it",
                       shownName(from.entry->name), from.file->path(), *bad,
                       first + uint64_t(bad - scales.begin()));
}

Status SafetensorsModel::dequantizeMxfp4() {
  constexpr std::string_view kSuffix = "_blocks";
  std::vector<std::string> stems;
  for (const auto &[name, location] : byName)
    if (name.ends_with(kSuffix)) {
      std::string stem = name.substr(0, name.size() - kSuffix.size());
      if (byName.contains(stem))
        continue;
      if (byName.contains(stem + "_scales"))
        stems.push_back(std::move(stem));
      else if (areBlocks(*location.entry))
        return Status::error("{} in '{}' has no {}_scales; the checkpoint is "
                             "incomplete, give another copy of it",
                             shownName(name), location.file->path(),
                             stem.substr(stem.rfind('.') + 1));
    }
  for (const std::string &stem : stems) {
    auto blocks = byName.find(stem + "_blocks"),
         scales = byName.find(stem + "_scales");
    TESSERA_RETURN_IF_ERROR(checkBlocks(blocks->second, scales->second));
    const std::vector<uint64_t> &shape = blocks->second.entry->shape;
    SafetensorsEntry entry = *blocks->second.entry;
    entry.name = stem;
    entry.type = SafetensorsType::bf16;
    entry.shape = {shape[0], shape[2] * kBlock, shape[1]};
    // Sixteen bytes have 32 weights of two bytes.
    entry.end = entry.begin + 4 * (entry.end - entry.begin);
    entry.source = std::make_shared<Mxfp4Stack>(blocks->second, scales->second);
    dequantized.push_back(std::make_unique<SafetensorsEntry>(std::move(entry)));
    byName[stem] = {blocks->second.file, dequantized.back().get()};
    byName.erase(blocks);
    byName.erase(scales);
  }
  return Status::success();
}

} // namespace tessera
