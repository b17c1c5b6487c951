#include "runtime/generate/AdapterExport.h"
#include "runtime/weights/AdapterNames.h"
#include "runtime/weights/CopyTensor.h"
#include "runtime/weights/DequantizeMatrix.h"
#include "runtime/weights/MergeFactors.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tessera {

AdapterFactors adapterFactorsOf(const SafetensorsFile &file,
                                const std::string &weight) {
  constexpr std::string_view suffix = ".weight";
  if (!weight.ends_with(suffix) || isOfAdapter(weight))
    return {};
  const std::string path = weight.substr(0, weight.size() - suffix.size());
  auto find = [&](std::string_view factor) {
    return file.header().find(fmt::format("{}{}{}", path, factor, suffix));
  };
  return {find(kAdapterIn), find(kAdapterOut),
          file.header().find(fmt::format("{}{}", path, kMagnitude))};
}

static StatusOr<std::vector<float>> readFloats(const SafetensorsFile &file,
                                               const SafetensorsEntry &entry) {
  if (!converts(entry.type, SafetensorsType::f32))
    return Status::error("'{}' is {}, and adapters are merged in f32",
                         entry.name, safetensorsName(entry.type));
  std::vector<std::byte> bytes(entry.end - entry.begin);
  TESSERA_RETURN_IF_ERROR(file.read(entry, 0, bytes));
  std::vector<float> values(bytes.size() / (safetensorsBits(entry.type) / 8));
  toFloats(entry.type, bytes.data(), values.size(), values.data());
  return values;
}

//===--- weights of the base ----------------------------------------------===//

constexpr std::string_view kValues = ".values", kScales = ".scales";

std::string quantizedWeight(const SafetensorsEntry &entry) {
  if (entry.type != SafetensorsType::i32 || !entry.name.ends_with(kValues) ||
      entry.shape.size() != 3 || entry.shape[2] != uint64_t(kMicropanel))
    return "";
  return entry.name.substr(0, entry.name.size() - kValues.size());
}

bool isQuantizedPart(const SafetensorsFile &file,
                     const SafetensorsEntry &entry) {
  if (!quantizedWeight(entry).empty())
    return true;
  if (!entry.name.ends_with(kScales))
    return false;
  const SafetensorsEntry *values = file.header().find(
      entry.name.substr(0, entry.name.size() - kScales.size()) +
      std::string(kValues));
  return values && !quantizedWeight(*values).empty();
}

std::optional<BaseWeight>
baseWeightOf(const SafetensorsFile &file, const std::string &name,
             bool isTransposed, const std::optional<QuantizedLayout> &layout) {
  if (const SafetensorsEntry *entry = file.header().find(name))
    return BaseWeight{name, entry->shape, entry};
  const SafetensorsEntry *values =
                             file.header().find(name + std::string(kValues)),
                         *scales =
                             file.header().find(name + std::string(kScales));
  if (!layout || !values || !scales || quantizedWeight(*values).empty())
    return std::nullopt;
  // Rows and columns of a base are whole micropanels and blocks, so that the
  // shape of its words has them.
  QuantizedLayout own = *layout;
  own.rows = int64_t(values->shape[0]) * kMicropanel;
  own.columns = int64_t(values->shape[1]) * own.perWord();
  std::vector<uint64_t> shape = {uint64_t(own.rows), uint64_t(own.columns)};
  if (isTransposed)
    std::swap(shape[0], shape[1]);
  return BaseWeight{name, shape, values, scales, own};
}

static StatusOr<std::vector<std::byte>>
readBytes(const SafetensorsFile &file, const SafetensorsEntry &entry) {
  std::vector<std::byte> bytes(entry.end - entry.begin);
  TESSERA_RETURN_IF_ERROR(file.read(entry, 0, bytes));
  return bytes;
}

StatusOr<std::vector<float>> readWeight(const SafetensorsFile &file,
                                        const BaseWeight &weight,
                                        bool isTransposed) {
  if (!weight.scales)
    return readFloats(file, *weight.values);
  const QuantizedLayout &layout = weight.layout;
  auto words = readBytes(file, *weight.values),
       scales = readBytes(file, *weight.scales);
  for (const Status *status : {&words.status(), &scales.status()})
    if (!status->ok())
      return *status;
  const int64_t block = layout.nf4() ? QuantizedLayout::kNf4Group : kQuantBlock;
  const SafetensorsType type =
      layout.nf4() ? SafetensorsType::i32 : SafetensorsType::f16;
  if (weight.scales->type != type ||
      int64_t(scales->size()) != layout.micropanels() * layout.scaleRows() *
                                     kMicropanel * layout.scaleBytes() ||
      layout.columns % block != 0)
    return Status::error("'{}' in '{}' has scales that do not fit its values; "
                         "the checkpoint is damaged",
                         weight.name, file.path());
  return dequantizeMatrix(layout, *words, *scales, isTransposed);
}

StatusOr<std::vector<float>> mergedWeight(const SafetensorsFile &file,
                                          const BaseWeight &weight,
                                          const AdapterFactors &factors,
                                          double scale, bool isTransposed) {
  FactorShape shape{.scale = scale, .isTransposed = isTransposed};
  if (!shape.take(weight.shape, factors.in->shape, factors.out->shape))
    return Status::error("'{}' and its factors are not matrices of fitting "
                         "shapes",
                         weight.name);
  auto values = readWeight(file, weight, isTransposed),
       in = readFloats(file, *factors.in), out = readFloats(file, *factors.out);
  StatusOr<std::vector<float>> magnitudes = std::vector<float>();
  if (factors.magnitude)
    magnitudes = readFloats(file, *factors.magnitude);
  for (const Status *status :
       {&values.status(), &in.status(), &out.status(), &magnitudes.status()})
    if (!status->ok())
      return *status;
  if (factors.magnitude && magnitudes->size() != shape.rows)
    return Status::error("'{}' has {} rows, and {} magnitudes", weight.name,
                         shape.rows, magnitudes->size());
  mergeFactors(shape, *values, *in, *out, *magnitudes);
  return values;
}

constexpr std::string_view kHeadWeight = "lm_head.weight";

static const SafetensorsTensor *
findTensor(const std::vector<SafetensorsTensor> &tensors,
           std::string_view suffix) {
  const auto found = std::ranges::find_if(tensors, [&](const auto &tensor) {
    return tensor.name.ends_with(suffix);
  });
  return found == tensors.end() ? nullptr : &*found;
}

/// The table of embeddings.
static const SafetensorsTensor *
findTable(const std::vector<SafetensorsTensor> &tensors) {
  const SafetensorsTensor *table = findTensor(tensors, "embed_tokens.weight");
  return table ? table : findTensor(tensors, "wte.weight");
}

recipe::Recipe::Adapter
withTiedHead(recipe::Recipe::Adapter adapter,
             const std::vector<SafetensorsTensor> &tensors) {
  const SafetensorsTensor *table = findTable(tensors);
  // A reward model has another head.
  const bool isTied = !findTensor(tensors, kHeadWeight) &&
                      !findTensor(tensors, "embed_out.weight") &&
                      !findTensor(tensors, kScoreHead);
  if (isTied && table && adapter.saves(table->name))
    adapter.modulesToSave.emplace_back("lm_head");
  return adapter;
}

std::vector<SafetensorsTensor>
adapterTensors(std::vector<SafetensorsTensor> tensors,
               const recipe::Recipe::Adapter &adapter) {
  std::erase_if(tensors, [&](const SafetensorsTensor &tensor) {
    return !isOfAdapter(tensor.name) && tensor.name != kScoreHead &&
           !adapter.saves(tensor.name);
  });
  const SafetensorsTensor *table = findTable(tensors);
  if (table && adapter.saves(kHeadWeight) &&
      !findTensor(tensors, kHeadWeight)) {
    SafetensorsTensor head = *table;
    head.name = kHeadWeight;
    tensors.push_back(std::move(head));
  }
  for (SafetensorsTensor &tensor : tensors)
    tensor.name = "base_model.model." + tensor.name;
  return tensors;
}

std::string adapterConfig(const recipe::Recipe::Adapter &adapter,
                          bool isTransposed, bool hasScore) {
  nlohmann::ordered_json config = {
      {"peft_type", "LORA"},
      {"task_type", hasScore ? "SEQ_CLS" : "CAUSAL_LM"},
      {"base_model_name_or_path", nullptr},
      {"r", adapter.rank},
      {"lora_alpha", adapter.alpha},
      {"lora_dropout", adapter.dropout},
      {"target_modules", adapter.target},
      {"fan_in_fan_out", isTransposed},
      {"bias", "none"},
      {"init_lora_weights", "gaussian"},
      {"inference_mode", true}};
  if (adapter.kind == recipe::AdapterKind::Dora)
    config["use_dora"] = true;
  if (adapter.scaling == recipe::AdapterScaling::Root)
    config["use_rslora"] = true;
  for (const std::string &entry : adapter.ranks) {
    const auto [layer, rank] = recipe::rankEntry(entry);
    config["rank_pattern"].emplace(layer, rank);
  }
  std::vector<std::string> saved = adapter.modulesToSave;
  if (hasScore && std::ranges::count(saved, "score") == 0)
    saved.emplace_back("score");
  if (!saved.empty())
    config["modules_to_save"] = saved;
  return config.dump(2) + "\n";
}

} // namespace tessera
