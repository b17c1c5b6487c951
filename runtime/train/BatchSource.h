// Where the batches of a run come from: a dataset (DatasetBatches.h), or
// completions that the model itself makes (runtime/rl).
#pragma once
#include "runtime/train/Checkpoint.h"
#include "runtime/train/Metrics.h"
#include "runtime/train/TrainModel.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

class BatchSource {
public:
  virtual ~BatchSource() = default;

  /// The tokenizer.json that the run keeps a copy of, and the directory with
  /// the chat template, if one has it; empty: none.
  virtual std::string tokenizerFile() const = 0;
  virtual std::string templateFolder() const = 0;
  /// Lines for the user, before the first step.
  virtual std::vector<std::string> describe() const = 0;

  /// Called when the model has the weights of that position: before the first
  /// step, and of a dataset again when a run has gone back (recipe: gates).
  virtual Status begin(TrainModel &model, const TrainPosition &position) = 0;
  /// The batch of the next step, valid until the call after this one. Nothing
  /// if it had to wait for it and `stop` became true.
  virtual StatusOr<std::optional<TokenBatch>>
  next(const std::function<bool()> &stop) = 0;
  /// How far the last batch moves TrainPosition::dataCursor.
  virtual uint64_t samples() const = 0;
  /// Called after each step, when the model has its weights; adds to the
  /// step's record.
  virtual Status stepped(uint64_t /*step*/, MetricsRecord & /*record*/) {
    return Status::success();
  }
};

} // namespace tessera
