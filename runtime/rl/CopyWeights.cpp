#include "runtime/rl/CopyWeights.h"
#include "runtime/weights/AdapterNames.h"
#include "runtime/weights/CopyTensor.h"

#include <algorithm>

namespace tessera::rl {
namespace {

constexpr std::string_view kWeight = ".weight";

/// What an adapter has of a weight, or null.
const StateTensor *factorOf(const ModelState &learner, std::string_view weight,
                            std::string_view factor,
                            std::string_view suffix = kWeight) {
  if (!weight.ends_with(kWeight))
    return nullptr;
  weight.remove_suffix(kWeight.size());
  return learner.find(fmt::format("{}{}{}", weight, factor, suffix));
}

Status addFactors(const ModelState &learner, const LearnedAdapter &adapter,
                  WeightPair &pair) {
  const std::string_view weight = pair.from->name;
  pair.in = factorOf(learner, pair.from->name, kAdapterIn);
  pair.out = factorOf(learner, pair.from->name, kAdapterOut);
  pair.magnitude = factorOf(learner, pair.from->name, kMagnitude, "");
  pair.isTrained = pair.in || pair.out || adapter.recipe.saves(weight);
  if (!pair.in && !pair.out)
    return Status::success();
  pair.factors.scale =
      adapter.recipe.scaleOf(weight.substr(0, weight.rfind('.')));
  pair.factors.isTransposed = adapter.isTransposed;
  const auto isFloat = [](const StateTensor *tensor) {
    return tensor && converts(tensor->type, SafetensorsType::f32);
  };
  if (!isFloat(pair.in) || !isFloat(pair.out) || !isFloat(pair.from) ||
      !pair.factors.take(pair.from->shape, pair.in->shape, pair.out->shape))
    return Status::error(
        "the factors of '{}' are not matrices of floats that fit "
        "it",
        pair.from->name);
  if (pair.magnitude &&
      (!isFloat(pair.magnitude) ||
       pair.magnitude->shape != std::vector<uint64_t>{pair.factors.rows}))
    return Status::error("the magnitudes of '{}' are not floats of its {} rows",
                         pair.from->name, pair.factors.rows);
  return Status::success();
}

StatusOr<std::vector<float>> readFloats(ModelState &learner,
                                        const StateTensor &tensor) {
  std::vector<std::byte> bytes(tensor.size);
  TESSERA_RETURN_IF_ERROR(learner.readState(tensor, 0, bytes));
  std::vector<float> values(bytes.size() / (safetensorsBits(tensor.type) / 8));
  toFloats(tensor.type, bytes.data(), values.size(), values.data());
  return values;
}

Status copyMerged(const WeightPair &pair, ModelState &learner,
                  ModelState &sampler) {
  auto weight = readFloats(learner, *pair.from),
       in = readFloats(learner, *pair.in), out = readFloats(learner, *pair.out);
  StatusOr<std::vector<float>> magnitudes = std::vector<float>();
  if (pair.magnitude)
    magnitudes = readFloats(learner, *pair.magnitude);
  for (const Status *status :
       {&weight.status(), &in.status(), &out.status(), &magnitudes.status()})
    if (!status->ok())
      return *status;
  mergeFactors(pair.factors, *weight, *in, *out, *magnitudes);
  std::vector<std::byte> converted(pair.to->size);
  convertElements(SafetensorsType::f32, std::as_bytes(std::span(*weight)),
                  pair.to->type, converted);
  return sampler.writeState(*pair.to, 0, converted);
}

/// Piece by piece, so that no second copy of a tensor is in memory.
Status copyPieces(const WeightPair &pair, ModelState &learner,
                  ModelState &sampler) {
  constexpr uint64_t kElements = uint64_t(1) << 20;
  const uint64_t fromSize = safetensorsBits(pair.from->type) / 8;
  const uint64_t toSize = safetensorsBits(pair.to->type) / 8;
  const uint64_t elements = pair.to->size / toSize;
  std::vector<std::byte> read, converted;
  for (uint64_t at = 0; at < elements; at += kElements) {
    const uint64_t count = std::min(kElements, elements - at);
    read.resize(count * fromSize);
    TESSERA_RETURN_IF_ERROR(learner.readState(*pair.from, at * fromSize, read));
    converted.resize(count * toSize);
    convertElements(pair.from->type, read, pair.to->type, converted);
    TESSERA_RETURN_IF_ERROR(
        sampler.writeState(*pair.to, at * toSize, converted));
  }
  return Status::success();
}

} // namespace

StatusOr<std::vector<WeightPair>>
pairWeights(const ModelState &learner, const ModelState &sampler,
            const std::optional<LearnedAdapter> &adapter) {
  std::vector<WeightPair> pairs;
  for (const StateTensor &to : sampler.state()) {
    if (to.role != StateRole::parameter)
      continue;
    const StateTensor *from = learner.find(to.name);
    if (to.quantized || !from || from->shape != to.shape ||
        !converts(from->type, to.type))
      return Status::error("the model that samples has '{}' as {} [{}], which "
                           "the one that learns does not give it; compile "
                           "both from one recipe without inference.quant",
                           to.name, safetensorsName(to.type),
                           fmt::join(to.shape, ", "));
    pairs.push_back({from, &to});
    if (adapter)
      TESSERA_RETURN_IF_ERROR(addFactors(learner, *adapter, pairs.back()));
  }
  return pairs;
}

Status copyWeights(std::span<const WeightPair> pairs, bool onlyTrained,
                   ModelState &learner, ModelState &sampler) {
  const auto copy = [&](const WeightPair &pair) {
    if (pair.in)
      return copyMerged(pair, learner, sampler);
    return onlyTrained && !pair.isTrained ? Status::success()
                                          : copyPieces(pair, learner, sampler);
  };
  const bool inMemory = std::ranges::all_of(pairs, [&](const WeightPair &pair) {
    return !learner.stateInMemory(*pair.from).empty() &&
           !sampler.stateInMemory(*pair.to).empty();
  });
  if (inMemory)
    return inParallel(uint32_t(pairs.size()),
                      [&](uint32_t i, unsigned) { return copy(pairs[i]); });
  for (const WeightPair &pair : pairs)
    TESSERA_RETURN_IF_ERROR(copy(pair));
  return Status::success();
}

} // namespace tessera::rl
