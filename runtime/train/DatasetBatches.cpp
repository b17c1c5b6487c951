#include "runtime/train/DatasetBatches.h"

#include <cmath>

namespace tessera {

StatusOr<std::unique_ptr<DatasetBatches>>
DatasetBatches::open(const DataLayout &layout, const ModelFacts &facts,
                     const DataNeeds &needs) {
  auto data = TrainingData::open(layout.train, needs);
  if (!data.ok())
    return data.status();
  return std::unique_ptr<DatasetBatches>(
      new DatasetBatches(layout, facts, data.take()));
}

/// Whether the loss is the cross-entropy of tokens, which has a scale of its
/// own: losses of pairs, of labelled answers and of a teacher do not.
static bool isOfTokens(const DocumentInputs &documents) {
  return !documents.numbers && !documents.labels && documents.teacher == 0;
}

std::vector<std::string> DatasetBatches::describe() const {
  std::vector<std::string> lines = {fmt::format(
      "data: {} tokens, {} samples an epoch; a step is {} x {} x {} = {} "
      "tokens",
      shortNumber(double(data.tokens())), data.samplesPerEpoch(),
      facts.microbatches, facts.rows, facts.sequence,
      facts.microbatches * facts.rows * facts.sequence)};
  if (!isOfTokens(facts.documents))
    return lines;
  const double entropy = data.unigramEntropy();
  lines.push_back(fmt::format(
      "loss to beat: ln V = {:.4f}{}", std::log(double(facts.vocabSize)),
      entropy > 0 ? fmt::format(", unigram entropy of the "
                                "text = {:.4f}",
                                entropy)
                  : std::string()));
  return lines;
}

// A batch is read in no time, so this does not stop for it.
StatusOr<std::optional<TokenBatch>>
DatasetBatches::next(const std::function<bool()> & /*stop*/) {
  StatusOr<TokenBatch> batch = loader->next();
  if (!batch.ok())
    return batch.status();
  return std::optional(*batch);
}

Status DatasetBatches::begin(TrainModel &model, const TrainPosition &position) {
  loader = std::make_unique<BatchLoader>(
      data, BatchOrder{position.seed, position.dataCursor, samples(),
                       model.trainRows(), facts.documents});
  return Status::success();
}

} // namespace tessera
