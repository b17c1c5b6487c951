#include "runtime/train/SessionModel.h"
#include "runtime/artifact/ElementTypes.h"
#include "runtime/artifact/KernelTable.h"
#include "runtime/train/Distill.h"
#include "runtime/train/Kto.h"
#include "runtime/train/Policy.h"
#include "runtime/train/Preference.h"
#include "runtime/train/Router.h"
#include "runtime/train/SeparateSteps.h"

#include <algorithm>

namespace tessera {

using artifact::ElementType;

/// Proven by the artifact's reader.
static std::optional<QuantizedPart>
quantizedPartOf(const artifact::Tensor &tensor) {
  const artifact::Quantized *from = tensor.quantized();
  if (!from)
    return std::nullopt;
  return QuantizedPart{from->source()->str(),
                       from->part() == artifact::QuantizedPart::scales,
                       {from->rows(), from->columns(), from->bits(),
                        from->group(), from->zeros(), from->floats(),
                        from->super_blocks()},
                       from->transposed(),
                       from->stack()};
}

StateRole stateRoleOf(artifact::Role role) {
  switch (role) {
  case artifact::Role::parameter:
    return StateRole::parameter;
  case artifact::Role::optimizer:
    return StateRole::optimizer;
  case artifact::Role::cache:
  case artifact::Role::recurrent:
    return StateRole::cache;
  default:
    return StateRole::counter;
  }
}

std::optional<SafetensorsType> safetensorsTypeOf(ElementType type) {
  switch (type) {
  case ElementType::f32:
    return SafetensorsType::f32;
  case ElementType::bf16:
    return SafetensorsType::bf16;
  case ElementType::f16:
    return SafetensorsType::f16;
  case ElementType::f64:
    return SafetensorsType::f64;
  case ElementType::i64:
    return SafetensorsType::i64;
  case ElementType::i32:
    return SafetensorsType::i32;
  case ElementType::i16:
    return SafetensorsType::i16;
  case ElementType::i8:
    return SafetensorsType::i8;
  case ElementType::u8:
    return SafetensorsType::u8;
  case ElementType::i1:
    return SafetensorsType::boolean;
  }
  return std::nullopt;
}

StatusOr<SafetensorsType> safetensorsTypeOf(const artifact::Tensor &tensor) {
  if (auto type = safetensorsTypeOf(tensor.type()))
    return *type;
  return Status::error("state tensor '{}' has a type that checkpoints do not "
                       "store",
                       tensor.name()->string_view());
}

StatusOr<StateTensor> stateTensorOf(const artifact::Tensor &tensor) {
  auto type = safetensorsTypeOf(tensor);
  if (!type.ok())
    return type.status();
  return StateTensor{tensor.name()->str(),
                     *type,
                     {tensor.shape()->begin(), tensor.shape()->end()},
                     stateRoleOf(tensor.role()),
                     tensor.bytes(),
                     quantizedPartOf(tensor)};
}

StatusOr<std::unique_ptr<SessionModel>>
SessionModel::open(const ArtifactReader &artifact,
                   const hal::SessionOptions &options) {
  auto session = hal::Session::open(artifact, options);
  if (!session.ok())
    return session.status();
  return create(session.take());
}

StatusOr<std::unique_ptr<SessionModel>>
SessionModel::create(std::unique_ptr<hal::Session> session) {
  std::unique_ptr<SessionModel> model(new SessionModel(std::move(session)));
  TESSERA_RETURN_IF_ERROR(model->readFacts());
  TESSERA_RETURN_IF_ERROR(model->readShapes());
  return model;
}

Status SessionModel::readFacts() {
  const artifact::Artifact &root = session->artifact();
  info.programHash = root.program_hash()->str();
  info.compilerVersion = root.compiler_version()->str();
  info.rebuildCommand = root.rebuild_command()->str();
  info.modelConfig = root.model_config()->str();
  info.recipe = root.recipe()->str();
  info.plannedBytes = session->memory().peak();
  info.stateBytes = session->memory().state;
  if (const artifact::Program *step =
          artifact::findProgram(session->code(), stepProgram())) {
    info.stepFlops = step->model_flops();
    for (const artifact::KernelRow &row :
         artifact::kernelRows(session->code(), *step))
      info.kernelFlops +=
          static_cast<uint64_t>(row.flops * double(row.launches));
  }
  for (const hal::TensorInfo &tensor : session->state()) {
    auto known = stateTensorOf(*tensor.source);
    if (!known.ok())
      return known.status();
    tensors.push_back(known.take());
  }
  return Status::success();
}

std::string_view SessionModel::stepProgram() const {
  for (std::string_view program : {"train_step", kForwardBackward})
    if (session->hasProgram(program))
      return program;
  return {};
}

Status SessionModel::readState(const StateTensor &tensor, uint64_t offset,
                               std::span<std::byte> out) {
  return session->readState(tensor.name, out, offset);
}

Status SessionModel::writeState(const StateTensor &tensor, uint64_t offset,
                                std::span<const std::byte> bytes) {
  return session->writeState(tensor.name, bytes, offset);
}

Status SessionModel::initialize(int64_t seed) {
  TESSERA_RETURN_IF_ERROR(
      session->writeInput("init", "seed", std::span<const int64_t>(&seed, 1)));
  return session->run("init");
}

// Programs that compute in fp64 give their metrics in it.
StatusOr<double> SessionModel::readNumber(std::string_view program,
                                          std::string_view name) const {
  auto found = port(program, name, true, ElementType::f32, 0);
  if (!found.ok())
    return found.status();
  if ((*found)->type == ElementType::f64)
    return session->readScalar<double>(program, name);
  auto value = session->readScalar<float>(program, name);
  if (!value.ok())
    return value.status();
  return double(*value);
}

Status SessionModel::writeBatch(std::string_view program,
                                const TokenBatch &batch) {
  TESSERA_RETURN_IF_ERROR(session->writeInput(program, "tokens", batch.tokens));
  TESSERA_RETURN_IF_ERROR(
      session->writeInput(program, "targets", batch.targets));
  if (info.documents.starts)
    TESSERA_RETURN_IF_ERROR(
        session->writeInput(program, kStartsInput, batch.documentStarts));
  if (info.documents.numbers)
    TESSERA_RETURN_IF_ERROR(
        session->writeInput(program, kNumbersInput, batch.documentNumbers));
  if (info.documents.reference)
    TESSERA_RETURN_IF_ERROR(
        session->writeInput(program, kReferenceInput, batch.reference));
  if (info.documents.labels)
    TESSERA_RETURN_IF_ERROR(
        session->writeInput(program, kLabelsInput, batch.documentLabels));
  if (info.documents.teacher > 0) {
    TESSERA_RETURN_IF_ERROR(
        session->writeInput(program, kTeacherTokensInput, batch.teacherTokens));
    TESSERA_RETURN_IF_ERROR(session->writeInput(program, kTeacherLogProbsInput,
                                                batch.teacherLogProbs));
  }
  if (!info.documents.samples)
    return Status::success();
  TESSERA_RETURN_IF_ERROR(
      session->writeInput(program, kBehaviorInput, batch.behavior));
  if (!info.documents.values)
    return session->writeInput(program, kAdvantagesInput, batch.advantages);
  TESSERA_RETURN_IF_ERROR(
      session->writeInput(program, kRewardsInput, batch.rewards));
  return session->writeInput(program, kValuesInput, batch.values);
}

/// Metrics of the step just made, where it has some.
Status SessionModel::readTables() {
  for (auto [name, values] :
       {std::pair(kRouterOutput, &router),
        std::pair(kPreferenceOutput, &preference),
        std::pair(kPolicyOutput, &policy), std::pair(kKtoOutput, &kto),
        std::pair(kDistillOutput, &distill)})
    if (!values->empty())
      TESSERA_RETURN_IF_ERROR(session->readOutput(
          "train_step", name, std::as_writable_bytes(std::span(*values))));
  return Status::success();
}

StatusOr<StepMetrics> SessionModel::trainStep(const TokenBatch &batch,
                                              int64_t seed) {
  constexpr std::string_view step = "train_step";
  TESSERA_RETURN_IF_ERROR(writeBatch(step, batch));
  TESSERA_RETURN_IF_ERROR(
      session->writeInput(step, "seed", std::span<const int64_t>(&seed, 1)));
  TESSERA_RETURN_IF_ERROR(session->run(step));
  auto loss = readNumber(step, "loss");
  auto norm = readNumber(step, "grad_norm");
  auto lr = readNumber(step, "lr");
  auto count = session->readScalar<int64_t>(step, "tokens");
  for (const Status *status :
       {&loss.status(), &norm.status(), &lr.status(), &count.status()})
    if (!status->ok())
      return *status;
  TESSERA_RETURN_IF_ERROR(readTables());
  return StepMetrics{*loss,      *norm,  *lr, *count, router,
                     preference, policy, kto, distill};
}

//===--- separate steps ---------------------------------------------------===//

Status SessionModel::initializeTrained(int64_t seed) {
  TESSERA_RETURN_IF_ERROR(session->writeInput(
      kInitTrained, "seed", std::span<const int64_t>(&seed, 1)));
  return session->run(kInitTrained);
}

StatusOr<BatchGradients> SessionModel::forwardBackward(const TokenBatch &batch,
                                                       int64_t seed) {
  constexpr std::string_view step = kForwardBackward;
  TESSERA_RETURN_IF_ERROR(writeBatch(step, batch));
  TESSERA_RETURN_IF_ERROR(
      session->writeInput(step, "seed", std::span<const int64_t>(&seed, 1)));
  TESSERA_RETURN_IF_ERROR(session->run(step));
  auto loss = readNumber(step, "loss");
  auto terms = readNumber(step, kTermsOutput);
  auto count = session->readScalar<int64_t>(step, "tokens");
  for (const Status *status :
       {&loss.status(), &terms.status(), &count.status()})
    if (!status->ok())
      return *status;
  return BatchGradients{*loss, *terms, *count};
}

StatusOr<StepMetrics> SessionModel::optimizerStep(float scale) {
  constexpr std::string_view step = kOptimizerStep;
  TESSERA_RETURN_IF_ERROR(session->writeInput(
      step, kScaleInput, std::span<const float>(&scale, 1)));
  TESSERA_RETURN_IF_ERROR(session->run(step));
  auto norm = readNumber(step, "grad_norm");
  auto lr = readNumber(step, "lr");
  for (const Status *status : {&norm.status(), &lr.status()})
    if (!status->ok())
      return *status;
  StepMetrics metrics;
  metrics.gradNorm = *norm;
  metrics.lr = *lr;
  return metrics;
}

//===--- evaluation -------------------------------------------------------===//

StatusOr<EvalSum> SessionModel::evalStep(const TokenBatch &batch) {
  constexpr std::string_view step = "eval_step";
  TESSERA_RETURN_IF_ERROR(writeBatch(step, batch));
  TESSERA_RETURN_IF_ERROR(session->run(step));
  auto losses = readLosses();
  if (!losses.ok())
    return losses.status();
  auto count = session->readScalar<int64_t>(step, "tokens");
  if (!count.ok())
    return count.status();
  return EvalSum{losses.take(), *count};
}

StatusOr<std::span<const float>> SessionModel::values(const TokenBatch &batch) {
  constexpr std::string_view step = "eval_step";
  if (tokenValues.empty())
    return TrainModel::values(batch);
  TESSERA_RETURN_IF_ERROR(writeBatch(step, batch));
  TESSERA_RETURN_IF_ERROR(session->run(step));
  auto read = [&](auto &numbers) {
    return session->readOutput(step, kValuesOutput,
                               std::as_writable_bytes(std::span(numbers)));
  };
  if (!hasWideValues) {
    TESSERA_RETURN_IF_ERROR(read(tokenValues));
    return std::span<const float>(tokenValues);
  }
  std::vector<double> wide(tokenValues.size());
  TESSERA_RETURN_IF_ERROR(read(wide));
  std::ranges::transform(wide, tokenValues.begin(),
                         [](double value) { return float(value); });
  return std::span<const float>(tokenValues);
}

/// One for each batch of an evaluation.
StatusOr<std::vector<double>> SessionModel::readLosses() const {
  auto found =
      port("eval_step", "loss_sum", true, ElementType::f32, evalDimensions());
  if (!found.ok())
    return found.status();
  auto read = [&](auto numbers) -> StatusOr<std::vector<double>> {
    TESSERA_RETURN_IF_ERROR(session->readOutput(
        "eval_step", "loss_sum", std::as_writable_bytes(std::span(numbers))));
    return std::vector<double>(numbers.begin(), numbers.end());
  };
  const auto count = static_cast<std::size_t>((*found)->elements());
  return (*found)->type == ElementType::f64 ? read(std::vector<double>(count))
                                            : read(std::vector<float>(count));
}

StatusOr<std::span<const float>>
SessionModel::logits(std::span<const int32_t> tokens) {
  TESSERA_RETURN_IF_ERROR(session->writeInput("logits", "tokens", tokens));
  TESSERA_RETURN_IF_ERROR(session->run("logits"));
  TESSERA_RETURN_IF_ERROR(session->readOutput(
      "logits", "logits", std::as_writable_bytes(std::span(scores))));
  return std::span<const float>(scores);
}

} // namespace tessera
