// Several adapters that are trained over one base model, by programs with
// separate steps (runtime/train/SeparateSteps.h). One at a time is in the
// programs' state; the others are in host memory.
#pragma once
#include "runtime/train/RunRecipe.h"
#include "runtime/train/SessionModel.h"
#include "runtime/weights/AdapterFile.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::tune {

/// What a request may change of the recipe's optimizer, for one step.
struct StepSettings {
  std::optional<double> lr, beta1, beta2, eps, weightDecay, clip;
};

/// An adapter besides its tensors.
struct Progress {
  uint64_t steps = 0;   ///< of the optimizer
  uint64_t batches = 0; ///< whose gradients the next step takes
  double terms = 0;     ///< that their losses are sums over
  int64_t seed = 0;
};

/// A tensor of an adapter and its optimizer, copied.
struct AdapterTensor {
  const StateTensor *tensor;
  std::shared_ptr<const std::vector<std::byte>> bytes;
};

/// One thread at a time.
class AdapterLearner {
public:
  /// Of a model whose base has its weights. It must outlive the learner.
  static StatusOr<std::unique_ptr<AdapterLearner>> create(SessionModel &model);

  const RunRecipe &recipe() const { return runRecipe; }
  const ModelFacts &facts() const { return model.facts(); }
  const std::map<std::string, Progress, std::less<>> &adapters() const {
    return progress;
  }

  /// Begins an adapter: random A, B of zeros, magnitudes that are the base's.
  Status add(const std::string &name, int64_t seed);
  /// Begins one with tensors that `read` fills; `origin` has them, in errors.
  /// Those of the optimizer may be missing (false) and are then zero. Replaces
  /// the adapter of that name.
  using ReadTensor = std::function<StatusOr<bool>(const StateTensor &tensor,
                                                  std::span<std::byte> out)>;
  Status add(const std::string &name, const Progress &from,
             const std::string &origin, const ReadTensor &read);
  /// Whether adapters have a trained tensor of that name in the state.
  bool has(std::string_view tensor) const;
  bool remove(std::string_view name);

  /// Adds the gradients of a batch to those of the adapter's next step. Where
  /// the loss is not finite all of them are dropped, which is an error.
  StatusOr<BatchGradients> forwardBackward(const std::string &name,
                                           const TokenBatch &batch);
  /// A step with the gradients so far: those of the mean loss over all terms,
  /// or of the sum of losses divided by `divisor`. If their norm is not finite
  /// they are dropped, and no step is made, which is an error.
  StatusOr<StepMetrics> optimizerStep(const std::string &name,
                                      const StepSettings &settings,
                                      std::optional<double> divisor);

  /// All tensors of an adapter.
  StatusOr<std::vector<AdapterTensor>> tensors(const std::string &name);
  /// Its factors and magnitudes, for inference programs.
  StatusOr<AdapterFile> adapter(const std::string &name);

private:
  explicit AdapterLearner(SessionModel &model) : model(model) {}
  using Values = std::vector<std::vector<std::byte>>; ///< of `own`, in order

  /// Puts the adapter into the programs' state.
  Status activate(std::string_view name);
  /// Copies the active one out of it.
  Status park();
  Status readOwn(Values &values);
  Status writeOwn(const Values &values);
  Status startMagnitudes();
  Status clearGradients(std::string_view name);

  SessionModel &model;
  RunRecipe runRecipe;
  std::vector<const StateTensor *> own; ///< that adapters have each
  std::map<std::string, Progress, std::less<>> progress;
  std::map<std::string, Values, std::less<>> parked; ///< of all but `active`
  std::string active;                                ///< empty: none
};

} // namespace tessera::tune
