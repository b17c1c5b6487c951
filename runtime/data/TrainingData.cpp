#include "runtime/data/TrainingData.h"

namespace tessera {

static StatusOr<PackedDataset> openPacked(const std::string &folder,
                                          int64_t vocabSize, int64_t sequence,
                                          bool separate) {
  auto packed = PackedDataset::open(folder, vocabSize, sequence);
  if (!packed.ok())
    return packed.status();
  if (!separate)
    return Status::error("'{}' has packed documents, and this program's tokens "
                         "see all earlier ones of their row; compile it with "
                         "--set data.documents=separate",
                         folder);
  if (packed->index().objective != PackedObjective::Sft)
    return Status::error("'{}' has pairs or labels of answers, and there is no "
                         "loss for them yet; give conversations, or prompts "
                         "with completions",
                         folder);
  return packed;
}

StatusOr<TrainingData> TrainingData::open(const std::string &folder,
                                          int64_t vocabSize, int64_t sequence,
                                          bool separate) {
  if (isPackedFolder(folder)) {
    auto packed = openPacked(folder, vocabSize, sequence, separate);
    if (!packed.ok())
      return packed.status();
    return TrainingData(packed.take());
  }
  auto stream = TokenDataset::open(folder, vocabSize, sequence);
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
          .positions = out.documentStarts};
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
