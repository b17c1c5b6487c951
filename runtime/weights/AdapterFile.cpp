#include "runtime/weights/AdapterFile.h"
#include "runtime/data/Json.h"
#include "runtime/support/Text.h"
#include "runtime/weights/AdapterNames.h"
#include "runtime/weights/CopyTensor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>

namespace tessera {
namespace {

constexpr const char *kConfigFile = "adapter_config.json",
                     *kWeightsFile = "adapter_model.safetensors";

//===--- the configuration ------------------------------------------------===//

/// Whether PEFT's setting has no effect: absent, false, empty or "none".
bool isUnset(const JsonValue &value) {
  bool flag = false;
  std::string_view word;
  if (value.get(flag))
    return !flag;
  if (value.get(word))
    return word.empty() || word == "none";
  return value.isNull() || (value.isArray() && value.elements().empty()) ||
         (value.isObject() && value.members().empty());
}

/// Settings that change what an adapter computes, and are not supported.
Status checkSupported(const JsonValue &config, const std::string &file) {
  std::string_view type;
  if (!config["peft_type"].get(type) || type != "LORA")
    return Status::error("{}: peft_type must be LORA{}", file,
                         type.empty() ? "" : fmt::format(", got: {}", type));
  for (const char *key :
       {"bias", "lora_bias", "modules_to_save", "use_dora", "target_parameters",
        "rank_pattern", "alpha_pattern", "layer_replication",
        "trainable_token_indices", "alora_invocation_tokens", "use_qalora",
        "arrow_config", "use_bdlora"})
    if (!isUnset(config[key]))
      return Status::error("{}: adapters with '{}' are not supported", file,
                           key);
  // Others start from changed base weights, to which the adapter belongs.
  std::string_view start;
  if (config["init_lora_weights"].get(start) && start != "gaussian" &&
      start != "eva")
    return Status::error("{}: init_lora_weights is '{}', whose adapter belongs "
                         "to a changed base model; save it with PEFT's "
                         "path_initial_model_for_weight_conversion",
                         file, start);
  return Status::success();
}

Status readConfig(AdapterFile &adapter) {
  constexpr int64_t kMostBytes = 1 << 20;
  const std::string file = adapter.directory + "/" + kConfigFile;
  auto text = readTextFile(file, kMostBytes);
  if (!text.ok())
    return text.status();
  auto config = JsonValue::parse(*text, file);
  if (!config.ok())
    return config.status();
  if (!config->isObject())
    return Status::error("{}: must be a JSON object", file);
  TESSERA_RETURN_IF_ERROR(checkSupported(*config, file));
  if (!(*config)["lora_alpha"].get(adapter.alpha) ||
      !std::isfinite(adapter.alpha))
    return Status::error("{}: lora_alpha must be a number", file);
  const JsonValue &byRoot = (*config)["use_rslora"];
  if (!byRoot.isNull() && !byRoot.get(adapter.byRoot))
    return Status::error("{}: use_rslora must be true or false", file);
  return Status::success();
}

//===--- the file ---------------------------------------------------------===//

/// PEFT's name of a factor as the module's path; empty of another tensor.
std::string pathOf(std::string_view name, std::string_view factor) {
  constexpr std::string_view prefix = "base_model.model.", suffix = ".weight";
  if (name.starts_with(prefix))
    name.remove_prefix(prefix.size());
  if (!name.ends_with(suffix))
    return "";
  name.remove_suffix(suffix.size());
  if (!name.ends_with(factor))
    return "";
  name.remove_suffix(factor.size());
  return std::string(name);
}

Status checkPair(const AdapterModule &module, const std::string &file) {
  if (!module.in || !module.out)
    return Status::error("'{}': '{}' has only one of its factors lora_A and "
                         "lora_B",
                         file, module.path);
  for (const SafetensorsEntry *entry : {module.in, module.out}) {
    if (!converts(entry->type, SafetensorsType::f32))
      return Status::error("'{}': '{}' is {}, expected f32, bf16 or f16", file,
                           entry->name, safetensorsName(entry->type));
    if (entry->shape.size() != 2)
      return Status::error("'{}': '{}' must be a matrix, its shape is [{}]",
                           file, entry->name, fmt::join(entry->shape, ", "));
  }
  if (module.in->shape[0] != module.out->shape[1] || module.in->shape[0] == 0)
    return Status::error("'{}': the factors of '{}' have ranks {} and {}", file,
                         module.path, module.in->shape[0],
                         module.out->shape[1]);
  return Status::success();
}

Status findModules(AdapterFile &adapter) {
  const std::string &file = adapter.file.path();
  std::map<std::string, AdapterModule> byPath;
  for (const SafetensorsEntry &entry : adapter.file.header().tensors) {
    bool isOut = false;
    std::string path = pathOf(entry.name, kAdapterIn);
    if (path.empty()) {
      path = pathOf(entry.name, kAdapterOut);
      isOut = true;
    }
    if (path.empty())
      return Status::error("'{}': '{}' is not a factor lora_A or lora_B of a "
                           "linear layer, and nothing else is supported",
                           file, entry.name);
    AdapterModule &module =
        byPath.try_emplace(path, AdapterModule{path, nullptr, nullptr})
            .first->second;
    const SafetensorsEntry *&factor = isOut ? module.out : module.in;
    if (factor)
      return Status::error("'{}': '{}' and '{}' are the same factor", file,
                           factor->name, entry.name);
    factor = &entry;
  }
  if (byPath.empty())
    return Status::error("'{}' has no factors", file);
  for (auto &[path, module] : byPath) {
    TESSERA_RETURN_IF_ERROR(checkPair(module, file));
    adapter.modules.push_back(module);
  }
  return Status::success();
}

} // namespace

StatusOr<AdapterFile> AdapterFile::open(const std::string &directory) {
  std::error_code error;
  for (const char *name : {kConfigFile, kWeightsFile})
    if (!std::filesystem::exists(directory + "/" + name, error))
      return Status::error("'{}' is not an adapter in PEFT's layout: it has no "
                           "{}",
                           directory, name);
  auto file = SafetensorsFile::open(directory + "/" + kWeightsFile);
  if (!file.ok())
    return file.status();
  AdapterFile adapter{directory, file.take()};
  TESSERA_RETURN_IF_ERROR(readConfig(adapter));
  TESSERA_RETURN_IF_ERROR(findModules(adapter));
  return adapter;
}

double AdapterFile::scale(int64_t rank) const {
  return alpha / (byRoot ? std::sqrt(double(rank)) : double(rank));
}

int64_t AdapterFile::rank() const {
  int64_t most = 0;
  for (const AdapterModule &module : modules)
    most = std::max(most, module.rank());
  return most;
}

std::vector<std::string> AdapterFile::targets() const {
  std::vector<std::string> names;
  for (const AdapterModule &module : modules)
    names.push_back(module.path.substr(module.path.rfind('.') + 1));
  std::ranges::sort(names);
  names.erase(std::ranges::unique(names).begin(), names.end());
  return names;
}

//===--- slots ------------------------------------------------------------===//

namespace {

/// Of a tensor of factors of all slots, [slots, rank, width].
bool isOfSlots(const StateTensor &tensor) {
  return tensor.role == StateRole::parameter && tensor.shape.size() == 3 &&
         isAdapterFactor(tensor.name);
}

StatusOr<std::vector<float>> floatsOf(const SafetensorsFile &file,
                                      const SafetensorsEntry &entry) {
  std::vector<std::byte> bytes(entry.end - entry.begin);
  TESSERA_RETURN_IF_ERROR(file.read(entry, 0, bytes));
  std::vector<float> values(entry.shape[0] * entry.shape[1]);
  toFloats(entry.type, bytes.data(), values.size(), values.data());
  return values;
}

/// `floats` in the model's type.
std::vector<std::byte> bytesOf(const std::vector<float> &floats,
                               SafetensorsType type) {
  const auto *from = reinterpret_cast<const std::byte *>(floats.data());
  if (type == SafetensorsType::f32)
    return {from, from + floats.size() * sizeof(float)};
  std::vector<std::byte> bytes(floats.size() * sizeof(uint16_t));
  toBf16(SafetensorsType::f32, from, floats.size(),
         reinterpret_cast<uint16_t *>(bytes.data()));
  return bytes;
}

Status checkFits(const AdapterFile &adapter, const AdapterModule &module,
                 const StateTensor &in, const StateTensor &out) {
  const auto rank = uint64_t(module.rank());
  if (module.in->shape[1] != in.shape[2])
    return Status::error("'{}' is of another base model: '{}' is [{}, {}], "
                         "expected [{}, {}]",
                         adapter.directory, module.in->name, rank,
                         module.in->shape[1], rank, in.shape[2]);
  if (module.out->shape[0] != out.shape[2])
    return Status::error("'{}' is of another base model: '{}' is [{}, {}], "
                         "expected [{}, {}]",
                         adapter.directory, module.out->name,
                         module.out->shape[0], rank, out.shape[2], rank);
  if (rank > in.shape[1])
    return Status::error("'{}' has rank {}, and the slots hold ranks up to {}; "
                         "raise it by --adapter-rank",
                         adapter.directory, rank, in.shape[1]);
  return Status::success();
}

/// A in the first rows of [rank, in]; the others are zeros.
StatusOr<std::vector<float>> firstFactor(const AdapterFile &adapter,
                                         const AdapterModule &module,
                                         const StateTensor &tensor) {
  auto values = floatsOf(adapter.file, *module.in);
  if (values.ok())
    values->resize(tensor.shape[1] * tensor.shape[2]);
  return values;
}

/// B transposed and multiplied by the scale, in the first rows of [rank, out].
StatusOr<std::vector<float>> secondFactor(const AdapterFile &adapter,
                                          const AdapterModule &module,
                                          const StateTensor &tensor) {
  auto values = floatsOf(adapter.file, *module.out);
  if (!values.ok())
    return values;
  const auto rank = uint64_t(module.rank()), out = tensor.shape[2];
  const auto scale = float(adapter.scale(module.rank()));
  std::vector<float> transposed(tensor.shape[1] * out);
  for (uint64_t row = 0; row < out; ++row)
    for (uint64_t k = 0; k < rank; ++k)
      transposed[k * out + row] = scale * (*values)[row * rank + k];
  return transposed;
}

/// Whether a slot has the adapter's layers, and room for its ranks.
Status checkModules(const AdapterFile &adapter, const ModelState &model) {
  for (const AdapterModule &module : adapter.modules) {
    const StateTensor *in =
        model.find(fmt::format("{}{}.weight", module.path, kAdapterIn));
    const StateTensor *out =
        model.find(fmt::format("{}{}.weight", module.path, kAdapterOut));
    if (!in || !out || !isOfSlots(*in) || !isOfSlots(*out))
      return Status::error("'{}' adapts '{}', which is not a linear layer of "
                           "the model's layers, or not one that its slots "
                           "adapt (--adapter-target)",
                           adapter.directory, module.path);
    TESSERA_RETURN_IF_ERROR(checkFits(adapter, module, *in, *out));
  }
  return Status::success();
}

} // namespace

int64_t adapterSlots(const ModelState &model) {
  auto found = std::ranges::find_if(model.state(), isOfSlots);
  return found == model.state().end() ? 0 : int64_t(found->shape[0]);
}

StatusOr<AdapterValues> readAdapter(const AdapterFile &adapter,
                                    const ModelState &model) {
  TESSERA_RETURN_IF_ERROR(checkModules(adapter, model));
  std::map<std::string_view, const AdapterModule *> byPath;
  for (const AdapterModule &module : adapter.modules)
    byPath.emplace(module.path, &module);
  AdapterValues result;
  for (const StateTensor &tensor : model.state()) {
    if (!isOfSlots(tensor))
      continue;
    const std::string first = pathOf(tensor.name, kAdapterIn);
    auto found =
        byPath.find(first.empty() ? pathOf(tensor.name, kAdapterOut) : first);
    StatusOr<std::vector<float>> values =
        std::vector<float>(tensor.shape[1] * tensor.shape[2]);
    if (found != byPath.end())
      values = first.empty() ? secondFactor(adapter, *found->second, tensor)
                             : firstFactor(adapter, *found->second, tensor);
    if (!values.ok())
      return values.status();
    result.factors.push_back({&tensor, bytesOf(*values, tensor.type)});
  }
  return result;
}

Status writeAdapter(const AdapterValues &values, ModelState &model,
                    int64_t slot) {
  for (const auto &[tensor, bytes] : values.factors)
    TESSERA_RETURN_IF_ERROR(
        model.writeState(*tensor, uint64_t(slot) * bytes.size(), bytes));
  return Status::success();
}

} // namespace tessera
