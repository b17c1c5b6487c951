#include "runtime/data/TrainingData.h"

#include <filesystem>

namespace tessera {

static Status checkObjective(const PackedIndex &index,
                             const std::string &folder,
                             const DataNeeds &needs) {
  if (index.objective == needs.objective)
    return Status::success();
  switch (needs.objective) {
  case PackedObjective::Preference:
    return Status::error("'{}' has no pairs of a chosen and a rejected answer, "
                         "which this program's task learns from; give `tessera "
                         "data chat` lines with \"chosen\" and \"rejected\"",
                         folder);
  case PackedObjective::Label:
    return Status::error("'{}' has no answers with a label, which this "
                         "program's task learns from; give `tessera data chat` "
                         "lines with \"completion\" and \"label\"",
                         folder);
  case PackedObjective::Sft:
    break;
  }
  if (index.objective == PackedObjective::Preference)
    return Status::error("'{}' has pairs of answers, and this program learns "
                         "next tokens; compile it with --set task=dpo, orpo, "
                         "simpo or reward",
                         folder);
  return Status::error("'{}' has labels of answers, and this program learns "
                       "next tokens; compile it with --set task=kto",
                       folder);
}

// What a loss of whole documents has room for.
static Status checkDocuments(PackedDataset &packed, const std::string &folder,
                             const DataNeeds &needs) {
  const StatusOr<uint64_t> most = packed.mostDocuments();
  if (!most.ok())
    return most.status();
  const bool isPairs = needs.objective == PackedObjective::Preference;
  const uint64_t group = isPairs ? 2 : 1;
  if (*most > uint64_t(needs.mostDocuments))
    return Status::error("'{}' has a row of {} {}, and the program takes {}; "
                         "compile it with --set {}={}",
                         folder, *most / group, isPairs ? "pairs" : "documents",
                         uint64_t(needs.mostDocuments) / group,
                         isPairs ? "preference.pairs" : "kto.documents",
                         *most / group);
  if (isPairs)
    return Status::success();
  const StatusOr<bool> has = packed.has(DocumentKind::Mismatched);
  if (!has.ok())
    return has.status();
  return *has ? Status::success()
              : Status::error("'{}' has no mismatched answers, which KTO "
                              "compares with; write it again with `tessera "
                              "data chat`, of two lines or more",
                              folder);
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
  TESSERA_RETURN_IF_ERROR(checkObjective(packed->index(), folder, needs));
  if (needs.objective != PackedObjective::Sft)
    TESSERA_RETURN_IF_ERROR(checkDocuments(*packed, folder, needs));
  if (needs.documents.reference)
    TESSERA_RETURN_IF_ERROR(packed->openReference(needs.prompts));
  if (needs.documents.teacher > 0)
    TESSERA_RETURN_IF_ERROR(packed->openTeacher(
        {needs.teacherTemperature, uint32_t(needs.documents.teacher),
         uint32_t(needs.vocabSize)}));
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
  if (std::error_code error; !std::filesystem::exists(folder, error))
    return Status::error("cannot read '{}': {}", folder,
                         error ? error.message() : "no such directory");
  if (needs.objective != PackedObjective::Sft)
    return Status::error("'{}' is a stream of tokens, and this program's task "
                         "learns from {}, which `tessera data chat` packs",
                         folder,
                         needs.objective == PackedObjective::Preference
                             ? "pairs of answers"
                             : "answers with a label");
  if (needs.documents.teacher > 0)
    return Status::error("'{}' is a stream of tokens, and distillation learns "
                         "from documents with a teacher's probabilities, which "
                         "`tessera data chat` and `tessera data teacher` write",
                         folder);
  if (needs.prompts)
    return Status::error("'{}' is a stream of tokens without prompts, which "
                         "attention.prompts: bidirectional is of; give data "
                         "that `tessera data chat` packs, or leave it out",
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
          .labels = out.documentLabels,
          .reference = out.reference,
          .teacherTokens = out.teacherTokens,
          .teacherLogProbs = out.teacherLogProbs};
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
