#include "runtime/weights/AdapterFile.h"
#include "runtime/data/Json.h"
#include "runtime/recipe/AdapterRecipe.h"
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
       {"bias", "lora_bias", "target_parameters", "layer_replication",
        "trainable_token_indices", "alora_invocation_tokens", "use_qalora",
        "arrow_config", "use_bdlora"})
    if (!isUnset(config[key]))
      return Status::error("{}: adapters with '{}' are not supported", file,
                           key);
  if (!isUnset(config["modules_to_save"]))
    return Status::error("{}: modules_to_save: slots hold factors, not whole "
                         "modules; merge the adapter into the model (of a run "
                         "of ours: tessera export --merge)",
                         file);
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

/// PEFT's patterns are regular expressions; in use they are names.
bool isName(std::string_view pattern) {
  return !pattern.empty() && std::ranges::all_of(pattern, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
  });
}

/// Of modules by their names.
StatusOr<std::vector<std::pair<std::string, double>>>
readPattern(const JsonValue &config, const char *key, const std::string &file) {
  std::vector<std::pair<std::string, double>> numbers;
  const JsonValue &pattern = config[key];
  if (isUnset(pattern))
    return numbers;
  if (!pattern.isObject())
    return Status::error("{}: {} must be an object of names and numbers", file,
                         key);
  for (const auto &[name, value] : pattern.members()) {
    double number = 0;
    if (!value.get(number) || !std::isfinite(number))
      return Status::error("{}: {} of {} must be a number", file, key,
                           quote(name));
    if (!isName(name))
      return Status::error("{}: {} has the regular expression {}; only names "
                           "of modules are supported, such as q_proj or "
                           "model.layers.0.mlp.down_proj",
                           file, key, quote(name));
    numbers.emplace_back(name, number);
  }
  return numbers;
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
  auto alphas = readPattern(*config, "alpha_pattern", file),
       ranks = readPattern(*config, "rank_pattern", file);
  for (const auto *read : {&alphas, &ranks})
    if (!read->ok())
      return read->status();
  adapter.alphas = alphas.take();
  adapter.ranks = ranks.take();
  const JsonValue &rank = (*config)["r"];
  int64_t most = 0;
  if (!rank.isNull() && !rank.get(most))
    return Status::error("{}: r must be an integer", file);
  adapter.statedRank = most;
  const JsonValue &byRoot = (*config)["use_rslora"];
  if (!byRoot.isNull() && !byRoot.get(adapter.byRoot))
    return Status::error("{}: use_rslora must be true or false", file);
  const JsonValue &hasMagnitudes = (*config)["use_dora"];
  if (!hasMagnitudes.isNull() && !hasMagnitudes.get(adapter.hasMagnitudes))
    return Status::error("{}: use_dora must be true or false", file);
  return Status::success();
}

//===--- the file ---------------------------------------------------------===//

/// PEFT's name of a factor as the module's path; empty of another tensor.
std::string pathOf(std::string_view name, std::string_view factor,
                   std::string_view suffix = ".weight") {
  constexpr std::string_view prefix = "base_model.model.";
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

Status checkType(const SafetensorsEntry &entry, const std::string &file) {
  if (!converts(entry.type, SafetensorsType::f32))
    return Status::error("'{}': '{}' is {}, expected f32, bf16 or f16", file,
                         entry.name, safetensorsName(entry.type));
  return Status::success();
}

Status checkMagnitude(const AdapterModule &module, bool isWanted,
                      const std::string &file) {
  const SafetensorsEntry *entry = module.magnitude;
  if (!entry != !isWanted)
    return entry ? Status::error("'{}' has '{}', and use_dora is not set; the "
                                 "files belong to different adapters",
                                 file, entry->name)
                 : Status::error("'{}' lacks '{}{}', and use_dora is set", file,
                                 module.path, kMagnitude);
  if (!entry)
    return Status::success();
  TESSERA_RETURN_IF_ERROR(checkType(*entry, file));
  if (entry->shape != std::vector<uint64_t>{module.out->shape[0]})
    return Status::error("'{}': '{}' must be [{}], a number for each row of "
                         "lora_B, its shape is [{}]",
                         file, entry->name, module.out->shape[0],
                         fmt::join(entry->shape, ", "));
  return Status::success();
}

Status checkPair(const AdapterModule &module, const std::string &file) {
  if (!module.in || !module.out)
    return Status::error("'{}': '{}' has only one of its factors lora_A and "
                         "lora_B",
                         file, module.path);
  for (const SafetensorsEntry *entry : {module.in, module.out}) {
    TESSERA_RETURN_IF_ERROR(checkType(*entry, file));
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

/// What a pattern has for a module, or the number of all.
double numberOf(const AdapterModule &module,
                const std::vector<std::pair<std::string, double>> &pattern,
                double ofAll) {
  const auto own = std::ranges::find_if(pattern, [&](const auto &each) {
    return recipe::endsWithName(module.path, each.first);
  });
  return own == pattern.end() ? ofAll : own->second;
}

/// The shapes of the factors have the ranks, too. Of several patterns that fit
/// versions of PEFT take the first or the shortest.
Status checkRanks(const AdapterFile &adapter) {
  for (const AdapterModule &module : adapter.modules) {
    const double stated =
        numberOf(module, adapter.ranks, double(adapter.statedRank));
    const bool isStated =
        std::ranges::any_of(adapter.ranks, [&](const auto &each) {
          return recipe::endsWithName(module.path, each.first) &&
                 each.second == double(module.rank());
        });
    if (stated != 0 && stated != double(module.rank()) && !isStated)
      return Status::error("'{}': the factors of '{}' have rank {}, and {} "
                           "says {}; the files belong to different adapters",
                           adapter.directory, module.path, module.rank(),
                           kConfigFile, stated);
  }
  return Status::success();
}

using ModuleEntry = const SafetensorsEntry *AdapterModule::*;

/// What a tensor is of a module, and the module's path; empty if nothing.
/// PEFT saves magnitudes without the suffix of a weight that it gives them.
std::pair<std::string, ModuleEntry> placeOf(std::string_view name) {
  if (std::string path = pathOf(name, kAdapterIn); !path.empty())
    return {path, &AdapterModule::in};
  if (std::string path = pathOf(name, kAdapterOut); !path.empty())
    return {path, &AdapterModule::out};
  std::string path = pathOf(name, kMagnitude, "");
  if (path.empty())
    path = pathOf(name, kMagnitude);
  return {path, &AdapterModule::magnitude};
}

Status findModules(AdapterFile &adapter) {
  const std::string &file =
      adapter.file ? adapter.file->path() : adapter.directory;
  std::map<std::string, AdapterModule> byPath;
  for (const SafetensorsEntry &entry :
       adapter.file ? adapter.file->header().tensors : adapter.inMemory) {
    const auto [path, place] = placeOf(entry.name);
    if (path.empty())
      return Status::error("'{}': '{}' is not a factor lora_A or lora_B of a "
                           "linear layer, nor its lora_magnitude_vector, and "
                           "nothing else is supported",
                           file, entry.name);
    AdapterModule &module =
        byPath.try_emplace(path, AdapterModule{path, nullptr, nullptr})
            .first->second;
    const SafetensorsEntry *&factor = module.*place;
    if (factor)
      return Status::error("'{}': '{}' and '{}' are the same", file,
                           factor->name, entry.name);
    factor = &entry;
  }
  if (byPath.empty())
    return Status::error("'{}' has no factors", file);
  for (auto &[path, module] : byPath) {
    TESSERA_RETURN_IF_ERROR(checkPair(module, file));
    TESSERA_RETURN_IF_ERROR(
        checkMagnitude(module, adapter.hasMagnitudes, file));
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
  TESSERA_RETURN_IF_ERROR(checkRanks(adapter));
  return adapter;
}

StatusOr<AdapterFile> AdapterFile::of(const std::string &title,
                                      const recipe::AdapterRecipe &recipe,
                                      std::vector<SafetensorsEntry> tensors) {
  AdapterFile adapter{title};
  adapter.inMemory = std::move(tensors);
  adapter.alpha = recipe.alpha;
  adapter.byRoot = recipe.scaling == recipe::AdapterScaling::Root;
  adapter.hasMagnitudes = recipe.kind == recipe::AdapterKind::Dora;
  TESSERA_RETURN_IF_ERROR(findModules(adapter));
  return adapter;
}

StatusOr<std::vector<float>>
AdapterFile::read(const SafetensorsEntry &entry) const {
  std::vector<std::byte> bytes(entry.end - entry.begin);
  TESSERA_RETURN_IF_ERROR(entry.source ? entry.source->read(0, bytes)
                                       : file->read(entry, 0, bytes));
  std::vector<float> values(bytes.size() / (safetensorsBits(entry.type) / 8));
  toFloats(entry.type, bytes.data(), values.size(), values.data());
  return values;
}

double AdapterFile::scale(const AdapterModule &module) const {
  const auto rank = double(module.rank());
  return numberOf(module, alphas, alpha) / (byRoot ? std::sqrt(rank) : rank);
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

} // namespace tessera
