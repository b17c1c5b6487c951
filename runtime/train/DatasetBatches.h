// Batches of a dataset, in the shuffled order of the run's seed.
#pragma once
#include "runtime/data/TrainingData.h"
#include "runtime/train/BatchLoader.h"
#include "runtime/train/BatchSource.h"
#include "runtime/train/RunDirectory.h"

#include <memory>

namespace tessera {

class DatasetBatches final : public BatchSource {
public:
  /// Opens the training split.
  static StatusOr<std::unique_ptr<DatasetBatches>>
  open(const DataLayout &layout, const ModelFacts &facts,
       const DataNeeds &needs);

  uint64_t tokenizerHash() const { return data.tokenizerHash(); }

  std::string tokenizerFile() const override { return layout.tokenizer; }
  std::string templateFolder() const override { return layout.train; }
  std::vector<std::string> describe() const override;
  Status begin(TrainModel &model, const TrainPosition &position) override;
  StatusOr<std::optional<TokenBatch>>
  next(const std::function<bool()> &stop) override;
  uint64_t samples() const override {
    return uint64_t(facts.microbatches * facts.rows);
  }

private:
  DatasetBatches(DataLayout layout, const ModelFacts &facts, TrainingData data)
      : layout(std::move(layout)), facts(facts), data(std::move(data)) {}

  DataLayout layout;
  const ModelFacts &facts; ///< of the model, which outlives this
  TrainingData data;
  std::unique_ptr<BatchLoader> loader;
};

} // namespace tessera
