// Training batches of the completions that the model itself makes: the source
// of batches of `tessera rl`.
#pragma once
#include "runtime/rl/CopyWeights.h"
#include "runtime/rl/PackSamples.h"
#include "runtime/rl/Rollouts.h"
#include "runtime/train/BatchSource.h"

namespace tessera::rl {

struct RolloutRun {
  std::string out;    ///< the run's directory, which the journal is in
  std::string reward; ///< what gives the rewards, for the journal
  std::string tokenizerFile, templateFolder; ///< as BatchSource has them
  int64_t documents = 0; ///< that a sequence of the batch has at most
  std::optional<LearnedAdapter> adapter = {}; ///< that is trained
  /// The reference model's weights if they are the learner's without its
  /// adapter, whose base is quantized; null: it has its own.
  ModelState *reference = nullptr;
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
  /// Steps that learn from one batch, or parts of it, move the cursor together,
  /// the last of them.
  uint64_t samples() const override {
    return (step + 1) % stepsOfBatch() == 0 ? uint64_t(options.settings.prompts)
                                            : 0;
  }
  Status stepped(uint64_t step, MetricsRecord &record) override;

private:
  uint64_t stepsOfBatch() const { return uint64_t(options.settings.steps()); }
  /// The batches that were learned from. Rollouts count these, not steps.
  uint64_t iteration() const { return step / stepsOfBatch(); }
  Status updateWeights();
  StatusOr<bool> makeBatch();
  Status pack(std::span<const Group> groups, TokenBuffers &part) const;
  Status estimateValues();
  Status findValues();
  void measure(std::span<const Group> groups);
  Status evaluate(MetricsRecord &record);

  Sampler &sampler;
  const std::vector<Prompt> &prompts;
  const RolloutOptions options;
  const RolloutRun run;
  Rollouts rollouts;
  TrainModel *learner = nullptr;
  std::vector<WeightPair> pairs;
  bool hasBase = false;     ///< the sampler has the weights that are constant
  uint64_t copiedBytes = 0; ///< by the last update, to an engine
  BatchShape shape;
  std::vector<TokenBuffers> parts; ///< of the batch, one for each minibatch
  bool hasBatch = false; ///< `parts` are what the next steps learn from
  std::optional<ValueEstimates> journaledValues; ///< of a run that resumes
  uint64_t cursor = 0; ///< the number of the first group of the next batch
  uint64_t step = 0;   ///< that the learner has made
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
/// An error unless the last step, and each that held-out prompts are completed
/// after, is the last of those that learn from a batch.
Status checkEpochs(const recipe::Recipe &recipe, uint64_t lastStep,
                   bool hasEvaluation);

} // namespace tessera::rl
