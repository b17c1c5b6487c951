// What the training loop, checkpoints and generation need of a compiled model.
// SessionModel implements it over the runtime's Session; tests implement it in
// a few lines of arithmetic, so that faults and restarts are tested in
// milliseconds.
#pragma once
#include "runtime/data/TokenBatch.h"
#include "runtime/support/Status.h"
#include "runtime/weights/ModelState.h"

#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// The inputs of TokenBatch that a program may have.
inline constexpr std::string_view kStartsInput = "document_starts";
inline constexpr std::string_view kNumbersInput = "document_numbers";
inline constexpr std::string_view kReferenceInput = "reference";
inline constexpr std::string_view kBehaviorInput = "behavior";
inline constexpr std::string_view kAdvantagesInput = "advantages";
inline constexpr std::string_view kRewardsInput = "rewards";
inline constexpr std::string_view kValuesInput = "values";
inline constexpr std::string_view kLabelsInput = "document_labels";
inline constexpr std::string_view kTeacherTokensInput = "teacher_tokens";
inline constexpr std::string_view kTeacherLogProbsInput = "teacher_log_probs";

struct ModelFacts {
  std::string programHash;
  std::string compilerVersion;
  std::string rebuildCommand;
  std::string modelConfig;  ///< config.json
  std::string recipe;       ///< resolved recipe.yaml
  int64_t microbatches = 1; ///< A
  int64_t rows = 1;         ///< B, sequences in a microbatch
  int64_t sequence = 1;     ///< T
  int64_t evalRows = 1;     ///< B of eval_step, sequences in a batch
  int64_t evalBatches = 1;  ///< batches that eval_step takes: A on a pipeline
  int64_t vocabSize = 1;    ///< V
  DocumentInputs documents; ///< that batches must have
  uint64_t stepFlops = 0;   ///< useful FLOPs of one train_step, of all ranks
  /// FLOPs of the kernels of one train_step on this rank, recomputation
  /// included; 0: unknown.
  uint64_t kernelFlops = 0;
  uint64_t plannedBytes = 0; ///< own state, io and the largest arena
  uint64_t stateBytes = 0;   ///< of them state: of several ranks, this one's
};

struct StepMetrics {
  /// Mean over the unmasked tokens of the step, its pairs of answers, or its
  /// sampled or labelled answers.
  double loss = 0;
  double gradNorm = 0; ///< global, before clipping
  double lr = 0;
  int64_t tokens = 0; ///< unmasked
  /// Rows of kRouterColumns (runtime/train/Router.h), one for each layer with
  /// experts; valid until the next step.
  std::span<const float> router = {};
  /// kPreferenceColumns or kRewardColumns numbers
  /// (runtime/train/Preference.h), if the task learns from pairs of answers;
  /// valid until the next step.
  std::span<const float> preference = {};
  /// As many numbers as policyColumnNames() has names (runtime/train/Policy.h),
  /// if the task learns from sampled answers; valid until the next step.
  std::span<const float> policy = {};
  /// kKtoColumns numbers (runtime/train/Kto.h), if the task learns from
  /// labelled answers; valid until the next step.
  std::span<const float> kto = {};
  /// kDistillColumns numbers (runtime/train/Distill.h) or one fewer, if the
  /// task learns from a teacher; valid until the next step.
  std::span<const float> distill = {};
};

/// Of a batch whose gradients were added to those of the next step.
struct BatchGradients {
  double loss = 0;    ///< mean over `terms`
  double terms = 0;   ///< the gradients are of the sum over them
  int64_t tokens = 0; ///< unmasked
};

struct EvalSum {
  std::vector<double> losses; ///< of each batch, summed over terms
  int64_t tokens = 0; ///< terms of all batches: unmasked tokens, pairs or
                      ///< answers
};

class TrainModel : public ModelState {
public:
  virtual const ModelFacts &facts() const = 0;
  std::string_view rebuildCommand() const override {
    return facts().rebuildCommand;
  }

  /// Weights from their distributions, moments and counters zero.
  virtual Status initialize(int64_t seed) = 0;
  /// A batch of [A, B, T] tokens.
  virtual StatusOr<StepMetrics> trainStep(const TokenBatch &batch,
                                          int64_t seed) = 0;
  /// The sequences of a training batch, as numbers below A × B, that this
  /// process computes with: all, or of several ranks its own. Others are not
  /// read from what trainStep() is given.
  virtual std::vector<uint64_t> trainRows() const {
    return firstRows(facts().microbatches * facts().rows);
  }
  /// Likewise of evalStep(), below evalBatches × evalRows.
  virtual std::vector<uint64_t> evalRows() const {
    return firstRows(facts().evalBatches * facts().evalRows);
  }
  virtual bool canEvaluate() const = 0;
  /// A batch of [evalBatches, evalRows, T] tokens.
  virtual StatusOr<EvalSum> evalStep(const TokenBatch &batch) = 0;
  /// What the value head gives for each token of a batch [evalBatches,
  /// evalRows, T], if programs have one; valid until the next call.
  virtual StatusOr<std::span<const float>> values(const TokenBatch &) {
    return Status::error("the program has no value head");
  }
  /// Length T of the logits program, or 0 if the model has none.
  virtual int64_t contextLength() const = 0;
  /// tokens: [T]; the result is [T, V] and valid until the next call.
  virtual StatusOr<std::span<const float>>
  logits(std::span<const int32_t> tokens) = 0;

  /// Memory that readState() of a piece of that size takes in addition to it.
  virtual uint64_t bytesDuringPiece(uint64_t) const { return 0; }

  /// How much of facts().plannedBytes is in this process's resident memory.
  virtual StatusOr<uint64_t> residentPlannedBytes() const { return 0; }

  /// `own` of every rank, concatenated in the order of ranks. All ranks must
  /// call this at the same time, with as many numbers.
  virtual StatusOr<std::vector<uint64_t>>
  fromEveryRank(std::span<const uint64_t> own) {
    return std::vector<uint64_t>(own.begin(), own.end());
  }

private:
  static std::vector<uint64_t> firstRows(int64_t count) {
    std::vector<uint64_t> rows(static_cast<std::size_t>(count));
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
  }
};

} // namespace tessera
