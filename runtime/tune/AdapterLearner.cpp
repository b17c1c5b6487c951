#include "runtime/tune/AdapterLearner.h"
#include "runtime/train/SeparateSteps.h"
#include "runtime/weights/AdapterNames.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tessera::tune {
namespace {

/// Bytes of a tensor in memory.
class CopiedBytes final : public TensorSource {
public:
  explicit CopiedBytes(std::shared_ptr<const std::vector<std::byte>> bytes)
      : bytes(std::move(bytes)) {}
  Status read(uint64_t offset, std::span<std::byte> out) const override {
    std::memcpy(out.data(), bytes->data() + offset, out.size());
    return Status::success();
  }

private:
  std::shared_ptr<const std::vector<std::byte>> bytes;
};

/// Whether each adapter has such a tensor: what is trained, which has a sum of
/// gradients, and what the optimizer keeps.
bool isOwn(const StateTensor &tensor, const ModelState &model) {
  return tensor.role == StateRole::optimizer ||
         (tensor.role == StateRole::counter && tensor.name == "step") ||
         (tensor.role == StateRole::parameter &&
          model.find(tensor.name + kGradientSuffix));
}

Status unknown(std::string_view name) {
  return Status::error("unknown adapter '{}'", name);
}

} // namespace

StatusOr<std::unique_ptr<AdapterLearner>>
AdapterLearner::create(SessionModel &model) {
  std::unique_ptr<AdapterLearner> learner(new AdapterLearner(model));
  auto recipe = parseRunRecipe(model.facts().recipe);
  if (!recipe.ok())
    return recipe.status();
  learner->runRecipe = recipe.take();
  for (const StateTensor &tensor : model.state())
    if (isOwn(tensor, model))
      learner->own.push_back(&tensor);
  return learner;
}

//===--- which adapter the programs have ----------------------------------===//

Status AdapterLearner::readOwn(Values &values) {
  values.resize(own.size());
  for (size_t i = 0; i < own.size(); ++i) {
    values[i].resize(own[i]->size);
    TESSERA_RETURN_IF_ERROR(model.readState(*own[i], 0, values[i]));
  }
  return Status::success();
}

Status AdapterLearner::writeOwn(const Values &values) {
  for (size_t i = 0; i < own.size(); ++i)
    TESSERA_RETURN_IF_ERROR(model.writeState(*own[i], 0, values[i]));
  return Status::success();
}

Status AdapterLearner::park() {
  if (active.empty())
    return Status::success();
  Values values;
  TESSERA_RETURN_IF_ERROR(readOwn(values));
  parked[std::exchange(active, "")] = std::move(values);
  return Status::success();
}

Status AdapterLearner::activate(std::string_view name) {
  if (name == active)
    return Status::success();
  const auto found = parked.find(name);
  if (found == parked.end())
    return unknown(name);
  TESSERA_RETURN_IF_ERROR(park());
  TESSERA_RETURN_IF_ERROR(writeOwn(found->second));
  parked.erase(found);
  active = name;
  return Status::success();
}

//===--- adding and removing ----------------------------------------------===//

/// The norms of the base's rows are in the state, written with its weights.
Status AdapterLearner::startMagnitudes() {
  for (const StateTensor *tensor : own) {
    if (!isMagnitude(tensor->name))
      continue;
    const std::string path =
        tensor->name.substr(0, tensor->name.size() - kMagnitude.size());
    const StateTensor *norms =
        model.find(fmt::format("{}{}", path, kWeightNorm));
    if (!norms || norms->size != tensor->size)
      return Status::error("'{}' has no norms of the base's rows to begin with",
                           tensor->name);
    std::vector<std::byte> bytes(norms->size);
    TESSERA_RETURN_IF_ERROR(model.readState(*norms, 0, bytes));
    TESSERA_RETURN_IF_ERROR(model.writeState(*tensor, 0, bytes));
  }
  return Status::success();
}

Status AdapterLearner::add(const std::string &name, int64_t seed) {
  if (progress.contains(name))
    return Status::error("an adapter is called '{}' already", name);
  TESSERA_RETURN_IF_ERROR(park());
  TESSERA_RETURN_IF_ERROR(model.initializeTrained(seed));
  TESSERA_RETURN_IF_ERROR(startMagnitudes());
  active = name;
  progress[name].seed = seed;
  return Status::success();
}

Status AdapterLearner::add(const std::string &name, const Progress &from,
                           const std::string &origin, const ReadTensor &read) {
  Values values(own.size());
  for (size_t i = 0; i < own.size(); ++i) {
    values[i].resize(own[i]->size);
    auto isThere = read(*own[i], values[i]);
    if (!isThere.ok())
      return isThere.status();
    if (!*isThere && own[i]->role == StateRole::parameter)
      return Status::error("'{}' has no '{}'", origin, own[i]->name);
  }
  remove(name);
  parked[name] = std::move(values);
  progress[name] = from;
  return Status::success();
}

bool AdapterLearner::has(std::string_view tensor) const {
  return std::ranges::any_of(own, [&](const StateTensor *each) {
    return each->role == StateRole::parameter && each->name == tensor;
  });
}

bool AdapterLearner::remove(std::string_view name) {
  const auto found = progress.find(name);
  if (found == progress.end())
    return false;
  if (active == name)
    active.clear();
  else
    parked.erase(parked.find(name));
  progress.erase(found);
  return true;
}

//===--- steps ------------------------------------------------------------===//

Status AdapterLearner::clearGradients(std::string_view name) {
  for (const StateTensor *tensor : own)
    if (tensor->name.ends_with(kGradientSuffix))
      TESSERA_RETURN_IF_ERROR(
          model.writeState(*tensor, 0, std::vector<std::byte>(tensor->size)));
  Progress &of = progress.find(name)->second;
  of.batches = 0;
  of.terms = 0;
  return Status::success();
}

StatusOr<BatchGradients>
AdapterLearner::forwardBackward(const std::string &name,
                                const TokenBatch &batch) {
  TESSERA_RETURN_IF_ERROR(activate(name));
  Progress &of = progress.at(name);
  // Every batch of a step has other random numbers.
  constexpr uint64_t kBetweenBatches = 0x9e3779b97f4a7c15;
  auto result = model.forwardBackward(
      batch, int64_t(uint64_t(of.seed) + of.batches * kBetweenBatches));
  if (!result.ok())
    return result;
  ++of.batches;
  of.terms += result->terms;
  if (std::isfinite(result->loss))
    return result;
  TESSERA_RETURN_IF_ERROR(clearGradients(name));
  return Status::error("the loss is {}; all gradients since the last step of "
                       "'{}' are dropped",
                       result->loss, name);
}

StatusOr<StepMetrics>
AdapterLearner::optimizerStep(const std::string &name,
                              const StepSettings &settings,
                              std::optional<double> divisor) {
  TESSERA_RETURN_IF_ERROR(activate(name));
  Progress &of = progress.at(name);
  if (of.batches == 0)
    return Status::error("'{}' has no gradients; send forward_backward first",
                         name);
  auto hyper = runRecipe.hyper();
  const auto set = [&](HyperSlot slot, const std::optional<double> &value) {
    if (value)
      hyper[size_t(slot)] = float(*value);
  };
  set(HyperSlot::lr, settings.lr);
  if (settings.lr) { // it is the step's, wherever the schedule is
    set(HyperSlot::warmup, 0);
    set(HyperSlot::minRatio, 1);
  }
  set(HyperSlot::beta1, settings.beta1);
  set(HyperSlot::beta2, settings.beta2);
  set(HyperSlot::eps, settings.eps);
  set(HyperSlot::weightDecay, settings.weightDecay);
  set(HyperSlot::clip, settings.clip);
  const StateTensor *table = model.find(kHyperTensor);
  if (!table)
    return Status::error("the programs have no state '{}'", kHyperTensor);
  TESSERA_RETURN_IF_ERROR(
      model.writeState(*table, 0, std::as_bytes(std::span(hyper))));
  auto step =
      model.optimizerStep(float(1 / divisor.value_or(std::max(of.terms, 1.0))));
  if (!step.ok())
    return step;
  of.batches = 0;
  of.terms = 0;
  if (!std::isfinite(step->gradNorm))
    return Status::error("the norm of the gradients is {}; they are dropped, "
                         "and '{}' is as after step {}",
                         step->gradNorm, name, of.steps);
  ++of.steps;
  return step;
}

//===--- export -----------------------------------------------------------===//

StatusOr<std::vector<AdapterTensor>>
AdapterLearner::tensors(const std::string &name) {
  if (!progress.contains(name))
    return unknown(name);
  Values values;
  if (name == active)
    TESSERA_RETURN_IF_ERROR(readOwn(values));
  else
    values = parked.at(name);
  std::vector<AdapterTensor> all;
  for (size_t i = 0; i < own.size(); ++i)
    all.push_back({own[i], std::make_shared<const std::vector<std::byte>>(
                               std::move(values[i]))});
  return all;
}

StatusOr<AdapterFile> AdapterLearner::adapter(const std::string &name) {
  auto all = tensors(name);
  if (!all.ok())
    return all.status();
  std::vector<SafetensorsEntry> entries;
  for (const auto &[tensor, bytes] : *all)
    if (isOfAdapter(tensor->name))
      entries.push_back({tensor->name, tensor->type, tensor->shape, 0,
                         bytes->size(), std::make_shared<CopiedBytes>(bytes)});
  return AdapterFile::of(name, runRecipe.values.adapter, std::move(entries));
}

} // namespace tessera::tune
