// A TrainModel that runs a compiled model in a Session of the HAL.
#pragma once
#include "runtime/hal/Session.h"
#include "runtime/train/TrainModel.h"

#include <memory>
#include <optional>

namespace tessera {

/// The type as which checkpoints and files of tensors hold such elements;
/// nothing for those that they do not hold.
std::optional<SafetensorsType> safetensorsTypeOf(artifact::ElementType type);

/// The same of a tensor of an artifact's state, of which checkpoints hold all.
StatusOr<SafetensorsType> safetensorsTypeOf(const artifact::Tensor &tensor);

StateRole stateRoleOf(artifact::Role role);

/// What a model says of a tensor of its artifact's state.
StatusOr<StateTensor> stateTensorOf(const artifact::Tensor &tensor);

class SessionModel : public TrainModel {
public:
  /// Checks that the artifact's programs have the inputs, outputs and state
  /// that training needs, and derives A, B, T and V from their shapes. A
  /// program that the session lacks is an error only where it is used.
  static StatusOr<std::unique_ptr<SessionModel>>
  create(std::unique_ptr<hal::Session> session);
  /// That of a session opened as `options` say.
  static StatusOr<std::unique_ptr<SessionModel>>
  open(const ArtifactReader &artifact, const hal::SessionOptions &options);

  const ModelFacts &facts() const override { return info; }
  const std::vector<StateTensor> &state() const override { return tensors; }
  Status readState(const StateTensor &tensor, uint64_t offset,
                   std::span<std::byte> out) override;
  Status writeState(const StateTensor &tensor, uint64_t offset,
                    std::span<const std::byte> bytes) override;
  std::span<std::byte> stateInMemory(const StateTensor &tensor) override {
    return session->stateInMemory(tensor.name);
  }
  Status initialize(int64_t seed) override;
  StatusOr<StepMetrics> trainStep(const TokenBatch &batch,
                                  int64_t seed) override;

  // Of programs with separate steps (SeparateSteps.h).
  /// Of what is trained alone, with the optimizer's state and hyperparameters.
  Status initializeTrained(int64_t seed);
  /// A batch of [A, B, T] tokens.
  StatusOr<BatchGradients> forwardBackward(const TokenBatch &batch,
                                           int64_t seed);
  /// A step with the gradients so far, multiplied by `scale`; of its metrics
  /// only the norm and the learning rate are set.
  StatusOr<StepMetrics> optimizerStep(float scale);

  bool canEvaluate() const override { return session->hasProgram("eval_step"); }
  StatusOr<EvalSum> evalStep(const TokenBatch &batch) override;
  StatusOr<std::span<const float>> values(const TokenBatch &batch) override;
  int64_t contextLength() const override { return context; }
  StatusOr<std::span<const float>>
  logits(std::span<const int32_t> tokens) override;

  StatusOr<uint64_t> residentPlannedBytes() const override {
    return session->residentBytes();
  }

  hal::Session &get() { return *session; }
  const hal::Session &get() const { return *session; }

private:
  explicit SessionModel(std::unique_ptr<hal::Session> session)
      : session(std::move(session)) {}
  /// The program that takes training batches; empty: there is none.
  std::string_view stepProgram() const;
  Status readFacts();
  Status readShapes();
  Status readRouterShape();
  Status readTaskShapes();
  Status readValueShape();
  Status readDocuments();
  Status readTeacherShapes(std::string_view program);
  Status readTables();
  Status writeBatch(std::string_view program, const TokenBatch &batch);
  std::size_t evalDimensions() const;
  StatusOr<std::vector<double>> readLosses() const;
  StatusOr<double> readNumber(std::string_view program,
                              std::string_view name) const;
  StatusOr<const hal::TensorInfo *> port(std::string_view program,
                                         std::string_view name, bool output,
                                         artifact::ElementType type,
                                         std::size_t rank) const;

  std::unique_ptr<hal::Session> session;
  ModelFacts info;
  std::vector<StateTensor> tensors;
  int64_t context = 0;
  std::vector<float> scores; // [T, V] of the logits program
  // Outputs of these names, if any.
  std::vector<float> router, preference, policy, kto, distill;
  std::vector<float> tokenValues; ///< of eval_step
  bool hasWideValues = false;     ///< which gives them in f64
};

} // namespace tessera
