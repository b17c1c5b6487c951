#include "runtime/train/HeldOutData.h"

#include <algorithm>

namespace tessera {

HeldOutData::HeldOutData(TrainingData given, TrainModel &model)
    : data(std::move(given)), model(model), facts(model.facts()),
      rows(model.evalRows()),
      buffers(std::size_t(facts.evalBatches * facts.evalRows * facts.sequence),
              facts.documents) {}

StatusOr<std::unique_ptr<HeldOutData>>
HeldOutData::open(const std::string &folder, const DataNeeds &needs,
                  TrainModel &model) {
  auto opened = TrainingData::open(folder, needs);
  if (!opened.ok())
    return opened.status();
  return std::unique_ptr<HeldOutData>(new HeldOutData(opened.take(), model));
}

/// Batches from `first` on, as many as eval_step takes. Those after the last
/// have no targets, so that they add no token.
Status HeldOutData::readBatches(uint64_t first, uint64_t batches) {
  const auto rowsOfBatch = uint64_t(facts.evalRows);
  const std::size_t size =
      buffers.tokens.size() / std::size_t(facts.evalBatches);
  for (uint64_t k = 0; k < uint64_t(facts.evalBatches); ++k) {
    const TokenBatchOut batch = buffers.out().part(k * size, size);
    std::vector<uint64_t> own;
    for (uint64_t row : rows)
      if (row / rowsOfBatch == k)
        own.push_back(row % rowsOfBatch);
    if (first + k < batches) {
      TESSERA_RETURN_IF_ERROR(data.evalBatch(first + k, batches, own, batch));
    } else {
      std::ranges::fill(batch.tokens, 0);
      std::ranges::fill(batch.targets, ignoredTarget);
      std::ranges::fill(batch.documentStarts, 0);
      std::ranges::fill(batch.documentNumbers, ignoredTarget);
      std::ranges::fill(batch.reference, 0.0f);
      std::ranges::fill(batch.documentLabels, 0);
      std::ranges::fill(batch.teacherTokens, ignoredTarget);
      std::ranges::fill(batch.teacherLogProbs, 0.0f);
    }
  }
  return Status::success();
}

StatusOr<double> HeldOutData::loss(uint64_t batches) {
  double loss = 0;
  int64_t count = 0;
  const auto together = uint64_t(facts.evalBatches);
  for (uint64_t first = 0; first < batches; first += together) {
    TESSERA_RETURN_IF_ERROR(readBatches(first, batches));
    StatusOr<EvalSum> sum = model.evalStep(buffers.view());
    if (!sum.ok())
      return sum.status();
    for (uint64_t k = 0; k < std::min(together, batches - first); ++k)
      loss += sum->losses[k];
    count += sum->tokens;
  }
  return count ? loss / double(count) : 0.0;
}

} // namespace tessera
