#include "runtime/rl/CopyWeights.h"
#include "runtime/weights/AdapterNames.h"
#include "runtime/weights/CopyTensor.h"
#include "runtime/weights/DequantizeMatrix.h"

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

/// Values or scales of a quantized matrix, or null.
const StateTensor *findCodes(const ModelState &learner,
                             const std::string &weight, bool isScales) {
  const auto &state = learner.state();
  const auto found = std::ranges::find_if(state, [&](const StateTensor &each) {
    return each.quantized && each.quantized->isScales == isScales &&
           each.quantized->source == weight;
  });
  return found == state.end() ? nullptr : &*found;
}

/// Whether the codes are those of a matrix, or a stack of them, of this shape.
bool hasShape(const StateTensor &values, const std::vector<uint64_t> &shape) {
  const QuantizedPart &part = *values.quantized;
  const auto rows = uint64_t(part.layout.rows),
             columns = uint64_t(part.layout.columns),
             stack = uint64_t(part.stack);
  if (stack)
    return shape == std::vector{stack, rows / stack, columns};
  return shape == (part.transposed ? std::vector{columns, rows}
                                   : std::vector{rows, columns});
}

Status addFactors(const ModelState &learner, const LearnedAdapter &adapter,
                  WeightPair &pair) {
  const std::string &weight = pair.to->name;
  pair.in = factorOf(learner, weight, kAdapterIn);
  pair.out = factorOf(learner, weight, kAdapterOut);
  pair.magnitude = factorOf(learner, weight, kMagnitude, "");
  pair.isTrained = pair.in || pair.out || adapter.recipe.saves(weight);
  if (!pair.in && !pair.out)
    return Status::success();
  pair.factors.scale =
      adapter.recipe.scaleOf(weight.substr(0, weight.rfind('.')));
  pair.factors.isTransposed = adapter.isTransposed;
  const auto isFloat = [](const StateTensor *tensor) {
    return tensor && converts(tensor->type, SafetensorsType::f32);
  };
  if (!isFloat(pair.in) || !isFloat(pair.out) ||
      !(pair.scales || isFloat(pair.from)) ||
      !pair.factors.take(pair.to->shape, pair.in->shape, pair.out->shape))
    return Status::error(
        "the factors of '{}' are not matrices of floats that fit "
        "it",
        weight);
  if (pair.magnitude &&
      (!isFloat(pair.magnitude) ||
       pair.magnitude->shape != std::vector<uint64_t>{pair.factors.rows}))
    return Status::error("the magnitudes of '{}' are not floats of its {} rows",
                         weight, pair.factors.rows);
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

/// The learner's weight in f32, in the sampler's shape.
StatusOr<std::vector<float>> readWeight(const WeightPair &pair,
                                        ModelState &learner) {
  if (!pair.scales)
    return readFloats(learner, *pair.from);
  std::vector<std::byte> words(pair.from->size), scales(pair.scales->size);
  TESSERA_RETURN_IF_ERROR(learner.readState(*pair.from, 0, words));
  TESSERA_RETURN_IF_ERROR(learner.readState(*pair.scales, 0, scales));
  return dequantizeMatrix(pair.from->quantized->layout, words, scales,
                          pair.from->quantized->transposed);
}

Status writeFloats(const StateTensor &to, std::span<const float> values,
                   ModelState &sampler) {
  std::vector<std::byte> converted(to.size);
  convertElements(SafetensorsType::f32, std::as_bytes(values), to.type,
                  converted);
  return sampler.writeState(to, 0, converted);
}

Status copyMerged(const WeightPair &pair, ModelState &learner,
                  ModelState &sampler) {
  auto weight = readWeight(pair, learner), in = readFloats(learner, *pair.in),
       out = readFloats(learner, *pair.out);
  StatusOr<std::vector<float>> magnitudes = std::vector<float>();
  if (pair.magnitude)
    magnitudes = readFloats(learner, *pair.magnitude);
  for (const Status *status :
       {&weight.status(), &in.status(), &out.status(), &magnitudes.status()})
    if (!status->ok())
      return *status;
  mergeFactors(pair.factors, *weight, *in, *out, *magnitudes);
  return writeFloats(*pair.to, *weight, sampler);
}

Status copyDequantized(const WeightPair &pair, ModelState &learner,
                       ModelState &sampler) {
  auto weight = readWeight(pair, learner);
  return weight.ok() ? writeFloats(*pair.to, *weight, sampler)
                     : weight.status();
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
    const StateTensor *from = learner.find(to.name),
                      *values =
                          from ? nullptr : findCodes(learner, to.name, false),
                      *scales =
                          from ? nullptr : findCodes(learner, to.name, true);
    const bool hasCodes = values && scales && hasShape(*values, to.shape) &&
                          converts(SafetensorsType::f32, to.type),
               isSame = from && from->shape == to.shape &&
                        converts(from->type, to.type);
    if (to.quantized || !(hasCodes || isSame))
      return Status::error("the model that samples has '{}' as {} [{}], which "
                           "the one that learns does not give it; compile "
                           "both from one recipe without inference.quant",
                           to.name, safetensorsName(to.type),
                           fmt::join(to.shape, ", "));
    pairs.push_back({.from = hasCodes ? values : from,
                     .to = &to,
                     .scales = hasCodes ? scales : nullptr});
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
    if (onlyTrained && !pair.isTrained)
      return Status::success();
    return pair.scales ? copyDequantized(pair, learner, sampler)
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
