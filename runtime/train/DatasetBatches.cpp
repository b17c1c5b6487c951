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

std::vector<std::string> DatasetBatches::describe() const {
  const double entropy = data.unigramEntropy();
  return {
      fmt::format("data: {} tokens, {} samples an epoch; a step is {} x {} x "
                  "{} = {} tokens",
                  shortNumber(double(data.tokens())), data.samplesPerEpoch(),
                  facts.microbatches, facts.rows, facts.sequence,
                  facts.microbatches * facts.rows * facts.sequence),
      fmt::format("loss to beat: ln V = {:.4f}{}",
                  std::log(double(facts.vocabSize)),
                  entropy > 0 ? fmt::format(", unigram entropy of the text = "
                                            "{:.4f}",
                                            entropy)
                              : std::string())};
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
