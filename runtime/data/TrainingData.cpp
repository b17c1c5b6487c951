#include "runtime/data/TrainingData.h"

namespace tessera {

static Status checkPairs(PackedDataset &packed, const std::string &folder,
                         const DataNeeds &needs) {
  if (packed.index().objective != PackedObjective::Preference)
    return Status::error("'{}' has no pairs of a chosen and a rejected answer, "
                         "which this program's task learns from; give `tessera "
                         "data chat` lines with \"chosen\" and \"rejected\"",
                         folder);
  const StatusOr<uint64_t> most = packed.mostDocuments();
  if (!most.ok())
    return most.status();
  if (*most > uint64_t(2 * needs.pairs))
    return Status::error(
        "'{}' has a row of {} pairs, and the program takes {}; "
        "compile it with --set preference.pairs={}",
        folder, *most / 2, needs.pairs, *most / 2);
  return needs.documents.reference ? packed.openReference() : Status::success();
}

static StatusOr<PackedDataset> openPacked(const std::string &folder,
                                          const DataNeeds &needs) {
  auto packed = PackedDataset::open(folder, needs.vocabSize, needs.sequence);
  if (!packed.ok())
    return packed.status();
  if (!needs.documents.starts)
    return Status::error("'{}' has packed documents, and this program's tokens "
                         "see all earlier ones of their row; compile it with "
                         "--set data.documents=separate",
                         folder);
  if (needs.pairs > 0) {
    TESSERA_RETURN_IF_ERROR(checkPairs(*packed, folder, needs));
    return packed;
  }
  if (packed->index().objective == PackedObjective::Preference)
    return Status::error("'{}' has pairs of answers, and this program learns "
                         "next tokens; compile it with --set task=dpo, orpo or "
                         "simpo",
                         folder);
  if (packed->index().objective != PackedObjective::Sft)
    return Status::error("'{}' has labels of answers, which no task learns "
                         "from yet; give conversations, prompts with "
                         "completions, or pairs",
                         folder);
  return packed;
}

StatusOr<TrainingData> TrainingData::open(const std::string &folder,
                                          const DataNeeds &needs) {
  if (isPackedFolder(folder)) {
    auto packed = openPacked(folder, needs);
    if (!packed.ok())
      return packed.status();
    return TrainingData(packed.take());
  }
  if (needs.pairs > 0)
    return Status::error("'{}' is a stream of tokens, and this program's task "
                         "learns from pairs of answers, which `tessera data "
                         "chat` packs",
                         folder);
  auto stream = TokenDataset::open(folder, needs.vocabSize, needs.sequence);
  if (!stream.ok())
    return stream.status();
  return TrainingData(stream.take());
}

int64_t TrainingData::sequence() const {
  return std::visit([](const auto &each) { return each.sequence(); }, data);
}

uint64_t TrainingData::tokens() const {
  return std::visit([](const auto &each) { return each.index().tokens; }, data);
}

uint64_t TrainingData::samplesPerEpoch() const {
  if (const auto *packed = std::get_if<PackedDataset>(&data))
    return packed->rows();
  return std::get<TokenDataset>(data).samplesPerEpoch();
}

uint64_t TrainingData::tokenizerHash() const {
  return std::visit([](const auto &each) { return each.index().tokenizerHash; },
                    data);
}

double TrainingData::unigramEntropy() const {
  const auto *stream = std::get_if<TokenDataset>(&data);
  return stream ? stream->index().unigramEntropy : 0;
}

// Positions are read to where document starts belong, and become these.
static PackedRowSpans spansOf(TokenBatchOut out) {
  return {.tokens = out.tokens,
          .targets = out.targets,
          .segments = out.documentNumbers,
          .positions = out.documentStarts,
          .reference = out.reference};
}

static void startsFromPositions(std::span<const uint64_t> rows,
                                std::size_t length, TokenBatchOut out) {
  for (const uint64_t row : rows)
    for (std::size_t t = 0; t < length; ++t) {
      int32_t &position = out.documentStarts[row * length + t];
      position = static_cast<int32_t>(t) - position;
    }
}

Status TrainingData::batch(uint64_t seed, uint64_t k,
                           std::span<const uint64_t> rows,
                           TokenBatchOut out) const {
  const auto *packed = std::get_if<PackedDataset>(&data);
  if (!packed)
    return std::get<TokenDataset>(data).batch(seed, k, rows, out);
  TESSERA_RETURN_IF_ERROR(packed->batch(seed, k, rows, spansOf(out)));
  startsFromPositions(rows, static_cast<std::size_t>(sequence()), out);
  return Status::success();
}

Status TrainingData::evalBatch(uint64_t index, uint64_t batches,
                               std::span<const uint64_t> rows,
                               TokenBatchOut out) const {
  const auto *packed = std::get_if<PackedDataset>(&data);
  if (!packed)
    return std::get<TokenDataset>(data).evalBatch(index, batches, rows, out);
  const auto length = static_cast<std::size_t>(sequence());
  TESSERA_RETURN_IF_ERROR(packed->evalBatch(
      index, batches, out.tokens.size() / length, rows, spansOf(out)));
  startsFromPositions(rows, length, out);
  return Status::success();
}

} // namespace tessera
