#include "runtime/weights/ImportWeights.h"
#include "runtime/weights/AdapterNames.h"
#include "runtime/weights/CopyTensor.h"
#include "runtime/weights/Magnitudes.h"
#include "runtime/weights/PackMicropanels.h"
#include "runtime/weights/PackedWeights.h"
#include "runtime/weights/QuantizeTensor.h"

#include <algorithm>
#include <set>

namespace tessera {
namespace {

constexpr std::string_view kPrefixes[] = {"transformer.", "model.", "bert.",
                                          "gpt_neox."};

/// Without a prefix, and of BERT's norms the name in PyTorch: checkpoints that
/// came from TensorFlow have gamma and beta.
std::string coreName(std::string_view name) {
  for (std::string_view prefix : kPrefixes)
    if (name.starts_with(prefix)) {
      name.remove_prefix(prefix.size());
      break;
    }
  std::string core(name);
  for (auto [old, now] : {std::pair(".LayerNorm.gamma", ".LayerNorm.weight"),
                          std::pair(".LayerNorm.beta", ".LayerNorm.bias")})
    if (core.ends_with(old))
      core.replace(core.size() - std::string_view(old).size(),
                   std::string::npos, now);
  return core;
}

/// Tensors that embeddings do not use: those after BERT's last layer, and a
/// buffer that older versions saved.
bool isOutsideEncoder(std::string_view name) {
  std::string core = coreName(name);
  return core.starts_with("pooler.dense.") || core.starts_with("cls.") ||
         core == "embeddings.position_ids";
}

/// Buffers that older transformers versions saved with the weights, and a head
/// that is the embedding again: no loss if the model has no such tensor.
bool isRedundant(std::string_view name) {
  constexpr std::string_view suffixes[] = {
      ".attn.bias", ".attn.masked_bias", ".attention.bias",
      ".attention.masked_bias", ".rotary_emb.inv_freq"};
  auto ends = [&](std::string_view suffix) { return name.ends_with(suffix); };
  return std::ranges::any_of(suffixes, ends) || name == "lm_head.weight";
}

/// Whether the tensor is one of a layer of multi-token prediction
/// (DeepSeek-V3), which alone has an eh_proj: it combines the last layer's
/// output and an embedding. No program has such layers.
bool isOfMtpLayer(const SafetensorsModel &source, std::string_view name) {
  constexpr std::string_view layers = "model.layers.";
  if (!name.starts_with(layers))
    return false;
  const auto end = name.find('.', layers.size());
  if (end == name.npos)
    return false;
  const std::string own = std::string(name.substr(0, end)) + ".eh_proj.";
  auto found = source.tensors().lower_bound(own);
  return found != source.tensors().end() && found->first.starts_with(own);
}

Status checkMatch(const StateTensor &tensor, const StatePart &part,
                  const SafetensorsModel::Location &source) {
  if (source.entry->shape != part.shape)
    return Status::error(
        "'{}' in '{}' has the shape [{}], the model's has [{}]",
        source.entry->name, source.file->path(),
        fmt::join(source.entry->shape, ", "), fmt::join(part.shape, ", "));
  TESSERA_RETURN_IF_ERROR(checkScaled(*source.file, *source.entry));
  if (!converts(source.entry->type, tensor.type))
    return Status::error("'{}' in '{}' is {}, which does not convert to the "
                         "model's {}",
                         source.entry->name, source.file->path(),
                         safetensorsName(source.entry->type),
                         safetensorsName(tensor.type));
  return Status::success();
}

/// "a, b, c and 7 more".
std::string shortList(const std::vector<std::string> &names) {
  constexpr std::size_t kMost = 5;
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(),
                      names.begin() + std::min(kMost, names.size()), ", "));
  if (names.size() > kMost)
    text += fmt::format(" and {} more", names.size() - kMost);
  return text;
}

/// What was copied, once more, times its factors.
Status copyScaled(ModelState &model, const TensorCopy &copy,
                  const TensorFactors &factors) {
  auto scaled = readScaled(copy.from, factors);
  if (!scaled.ok())
    return scaled.status();
  const SafetensorsType from = copy.from.entry->type, to = copy.tensor->type;
  const std::size_t count = scaled->size() / (safetensorsBits(from) / 8);
  std::vector<std::byte> bytes(copy.part.size);
  if (from == to)
    bytes = scaled.take();
  else if (to == SafetensorsType::bf16)
    toBf16(from, scaled->data(), count,
           reinterpret_cast<uint16_t *>(bytes.data()));
  else
    toFloats(from, scaled->data(), count,
             reinterpret_cast<float *>(bytes.data()));
  return model.writeState(*copy.tensor, copy.part.offset, bytes);
}

const StateTensor *findScales(const ModelState &model,
                              const std::string &source) {
  for (const StateTensor &tensor : model.state())
    if (tensor.quantized && tensor.quantized->isScales &&
        tensor.quantized->source == source)
      return &tensor;
  return nullptr;
}

/// Where each tensor of a model comes from in a checkpoint, and what it
/// becomes.
class Import {
public:
  /// `path` is that of the source.
  Import(const std::string &path, const SafetensorsModel &source,
         ModelState &model, const WeightFactors &factors);
  Import(const Import &) = delete;

  /// Finds all tensors of the model. An error names those that are missing.
  Status find();
  /// Writes the model's state.
  Status write();
  ImportReport report() &&;

private:
  struct Quantization {
    StateTensor values;                 ///< of one matrix
    std::optional<StateTensor> scales;  ///< none of bf16 in micropanels
    SafetensorsModel::Location from;    ///< to be rounded; unless
    std::optional<PackedMatrix> packed; ///< it is in integers already
  };
  using Found = std::optional<SafetensorsModel::Location>;

  Found lookUp(const std::string &name);
  /// Also notes a name that is not there.
  Found locate(const std::string &name);
  Status findPart(const StateTensor &tensor, const StatePart &part);
  Status findMatrix(const StateTensor &values,
                    std::optional<StateTensor> scales);
  Status findQuantized(const StateTensor &values);
  Status findTensor(const StateTensor &tensor);
  Status write(const Quantization &each);

  const std::string &path;
  const SafetensorsModel &source;
  ModelState &model;
  const WeightFactors &factors;
  const FindTensor finder = [this](const std::string &name) {
    return lookUp(name);
  };
  std::map<std::string, SafetensorsModel::Location> byCoreName;
  std::vector<TensorCopy> copies;
  std::vector<Quantization> quantizations;
  std::vector<std::string> missing, initial;
  std::set<const SafetensorsEntry *> used;
};

Import::Import(const std::string &path, const SafetensorsModel &source,
               ModelState &model, const WeightFactors &factors)
    : path(path), source(source), model(model), factors(factors) {
  for (const auto &[name, location] : source.tensors())
    byCoreName.emplace(coreName(name), location);
}

Import::Found Import::lookUp(const std::string &name) {
  // The exact name first: "model.x" and "x" may both be there.
  auto exact = source.tensors().find(name);
  auto core = byCoreName.find(coreName(name));
  if (exact == source.tensors().end() && core == byCoreName.end())
    return std::nullopt;
  auto location =
      exact != source.tensors().end() ? exact->second : core->second;
  used.insert(location.entry);
  return location;
}

Import::Found Import::locate(const std::string &name) {
  Found location = lookUp(name);
  // Factors of adapters and heads of scores and values begin as they are.
  if (!location && (name == kScoreHead || isValueHead(name)))
    initial.push_back(name);
  else if (!location && !isOfAdapter(name))
    missing.push_back(name);
  return location;
}

Status Import::findPart(const StateTensor &tensor, const StatePart &part) {
  Found location = locate(part.name);
  if (!location)
    return Status::success();
  TESSERA_RETURN_IF_ERROR(checkMatch(tensor, part, *location));
  copies.push_back({&tensor, part, *location});
  return Status::success();
}

Status Import::findMatrix(const StateTensor &values,
                          std::optional<StateTensor> scales) {
  const QuantizedPart &part = *values.quantized;
  if (scales) {
    auto packed = findPacked(part, finder);
    if (!packed.ok())
      return packed.status();
    if (packed->has_value()) {
      quantizations.push_back({values, std::move(scales), {}, **packed});
      return Status::success();
    }
  }
  Found location = locate(part.source);
  if (!location)
    return Status::success();
  TESSERA_RETURN_IF_ERROR(
      checkQuantizable(part, *location->file, *location->entry));
  quantizations.push_back({values, std::move(scales), *location, {}});
  return Status::success();
}

Status Import::findQuantized(const StateTensor &values) {
  const QuantizedPart &part = *values.quantized;
  std::vector<StateTensor> scales;
  if (part.layout.hasScales()) {
    const StateTensor *found = findScales(model, part.source);
    if (!found || !(found->quantized->layout == part.layout) ||
        found->quantized->stack != part.stack)
      return Status::error("the program has no scales for the values of "
                           "'{}'; it was compiled by another version, run: "
                           "{}",
                           part.source, model.rebuildCommand());
    scales = matricesOf(*found);
  }
  const std::vector<StateTensor> matrices = matricesOf(values);
  for (std::size_t i = 0; i < matrices.size(); ++i)
    TESSERA_RETURN_IF_ERROR(findMatrix(
        matrices[i], scales.empty() ? std::nullopt : std::optional(scales[i])));
  return Status::success();
}

Status Import::findTensor(const StateTensor &tensor) {
  if (tensor.role != StateRole::parameter)
    return Status::success();
  if (tensor.quantized)
    return tensor.quantized->isScales ? Status::success()
                                      : findQuantized(tensor);
  if (isWeightNorm(tensor.name))
    return Status::success(); // of the weights, when they are there
  for (const StatePart &part : partsOf(tensor))
    TESSERA_RETURN_IF_ERROR(findPart(tensor, part));
  return Status::success();
}

Status Import::find() {
  for (const StateTensor &tensor : model.state())
    TESSERA_RETURN_IF_ERROR(findTensor(tensor));
  if (!missing.empty())
    return Status::error("'{}' lacks {} of the model's parameters: {}", path,
                         missing.size(), shortList(missing));
  for (const auto &[name, location] : source.tensors())
    if (isOfAdapter(name) && !used.contains(location.entry))
      return Status::error("'{}' has an adapter ('{}'), and this program has "
                           "none, or one of another kind; merge it with "
                           "tessera export --merge, and use what that writes",
                           path, name);
  return Status::success();
}

Status Import::write(const Quantization &each) {
  if (!each.scales)
    return packMicropanels(model, each.values, *each.from.file,
                           *each.from.entry);
  if (each.packed)
    return loadPacked(model, each.values, *each.scales, *each.packed);
  return quantizeTensor(model, each.values, *each.scales, *each.from.file,
                        *each.from.entry,
                        factorsOf(factors, each.values.quantized->source));
}

Status Import::write() {
  TESSERA_RETURN_IF_ERROR(copyTensors(model, copies));
  for (const Quantization &each : quantizations)
    TESSERA_RETURN_IF_ERROR(write(each));
  for (const TensorCopy &each : copies)
    if (auto found = factors.find(each.part.name); found != factors.end())
      TESSERA_RETURN_IF_ERROR(copyScaled(model, each, found->second));
  return startMagnitudes(path, model, finder);
}

ImportReport Import::report() && {
  const bool isEncoder =
      std::ranges::any_of(model.state(), [](const StateTensor &tensor) {
        return tensor.name == "embeddings.token_type_embeddings.weight";
      });
  ImportReport report;
  report.initial = std::move(initial);
  report.loaded = copies.size() + quantizations.size();
  for (const auto &[name, location] : source.tensors())
    if (!used.contains(location.entry) && !isRedundant(name) &&
        !isWeightNorm(name) && !isOfMtpLayer(source, name) &&
        !(isEncoder && isOutsideEncoder(name)))
      report.unexpected.push_back(name);
  return report;
}

} // namespace

StatusOr<ImportReport> importWeights(const WeightFiles &weights,
                                     ModelState &model,
                                     const WeightFactors &factors) {
  auto source = weights.open();
  if (!source.ok())
    return source.status();
  Import import(weights.place(), **source, model, factors);
  TESSERA_RETURN_IF_ERROR(import.find());
  TESSERA_RETURN_IF_ERROR(import.write());
  return std::move(import).report();
}

Status importAllWeights(const WeightFiles &weights, ModelState &model,
                        const WeightFactors &factors) {
  const std::string &path = weights.place();
  StatusOr<ImportReport> report = importWeights(weights, model, factors);
  if (!report.ok())
    return report.status();
  if (!report->initial.empty())
    return Status::error("'{}' lacks the model's {}; train it with task: "
                         "reward, and give what tessera export writes",
                         path, report->initial.front());
  if (report->unexpected.empty())
    return Status::success();
  return Status::error("'{}' has a tensor that the model of its config.json "
                       "has not: {} ({} in all)",
                       path, report->unexpected.front(),
                       report->unexpected.size());
}

} // namespace tessera
