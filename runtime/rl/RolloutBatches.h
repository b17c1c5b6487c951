// Training batches of the completions that the model itself makes: the source
// of batches of `tessera rl`.
#pragma once
#include "runtime/rl/CopyWeights.h"
#include "runtime/rl/PackSamples.h"
#include "runtime/rl/Rollouts.h"
#include "runtime/train/BatchSource.h"

namespace tessera::rl {

struct RolloutRun {
  std::string out; ///< the run's directory, which the journal is in
  std::string tokenizerFile, templateFolder; ///< as BatchSource has them
  int64_t documents = 0; ///< that a sequence of the batch has at most
  std::optional<AdapterScale> adapter = {}; ///< that is trained
  /// Held-out prompts, whose mean reward is measured every so many steps and
  /// after the last one; none: nothing is measured.
  std::vector<Prompt> evalPrompts = {};
  uint64_t evalEvery = 0; ///< 0: never
};

class RolloutBatches final : public BatchSource {
public:
  /// `reference` may be null. What is passed by reference must outlive this.
  RolloutBatches(Sampler &sampler, PagedModel *reference,
                 const std::vector<Prompt> &prompts, Reward &reward,
                 RolloutOptions options, RolloutRun run);

  std::string tokenizerFile() const override { return run.tokenizerFile; }
  std::string templateFolder() const override { return run.templateFolder; }
  std::vector<std::string> describe() const override;
  Status begin(TrainModel &model, const TrainPosition &position) override;
  StatusOr<std::optional<TokenBatch>>
  next(const std::function<bool()> &stop) override;
  uint64_t samples() const override {
    return uint64_t(options.settings.prompts);
  }
  Status stepped(uint64_t step, MetricsRecord &record) override;

private:
  Status updateWeights(uint64_t step);
  void measure(std::span<const Group> groups);
  Status evaluate(MetricsRecord &record);

  Sampler &sampler;
  const std::vector<Prompt> &prompts;
  const RolloutOptions options;
  const RolloutRun run;
  Rollouts rollouts;
  TrainModel *learner = nullptr;
  std::vector<WeightPair> pairs;
  bool hasBase = false; ///< the sampler has the weights that are constant
  BatchShape shape;
  TokenBuffers batch;
  uint64_t step = 0;          ///< that the learner has made
  std::function<bool()> stop; ///< that next() was given
  /// Of the last batch, as MetricsRecord::rollout has them.
  std::vector<std::pair<std::string_view, double>> measured;
};

/// An error unless completions of prompts of up to `longest` tokens always fit
/// the batch.
Status checkBatch(const recipe::Recipe &recipe, int64_t longest);
/// The same for the context of the model that samples.
Status checkContext(const recipe::Recipe &recipe, int64_t longest,
                    int64_t context);

} // namespace tessera::rl
