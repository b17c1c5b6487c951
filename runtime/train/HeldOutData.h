// The data that a run is evaluated on, and not trained on.
#pragma once
#include "runtime/train/DatasetBatches.h"
#include "runtime/train/TrainModel.h"

#include <memory>
#include <string>
#include <vector>

namespace tessera {

class HeldOutData {
public:
  /// `folder` has token shards or packed examples, as the model needs them. The
  /// model must outlive it.
  static StatusOr<std::unique_ptr<HeldOutData>>
  open(const std::string &folder, const DataNeeds &needs, TrainModel &model);

  uint64_t tokenizerHash() const { return data.tokenizerHash(); }

  /// The model's mean loss of a token in `batches` batches, the same every
  /// time.
  StatusOr<double> loss(uint64_t batches);

private:
  HeldOutData(TrainingData data, TrainModel &model);
  Status readBatches(uint64_t first, uint64_t batches);

  TrainingData data;
  TrainModel &model;
  const ModelFacts &facts;
  std::vector<uint64_t> rows; ///< of this rank
  TokenBuffers buffers;
};

} // namespace tessera
