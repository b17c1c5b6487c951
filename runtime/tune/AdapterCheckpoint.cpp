#include "runtime/tune/AdapterCheckpoint.h"
#include "runtime/data/Json.h"
#include "runtime/data/NewDirectory.h"
#include "runtime/generate/AdapterExport.h"
#include "runtime/support/Text.h"
#include "runtime/weights/AdapterNames.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace tessera::tune {
namespace {

constexpr const char *kProgressFile = "training.json",
                     *kStateFile = "training.safetensors",
                     *kAdapterFile = "adapter_model.safetensors",
                     *kConfigFile = "adapter_config.json";

std::string printProgress(const Progress &progress) {
  return nlohmann::ordered_json{{"steps", progress.steps},
                                {"batches", progress.batches},
                                {"terms", progress.terms},
                                {"seed", progress.seed}}
             .dump(2) +
         "\n";
}

StatusOr<Progress> readProgress(const std::string &path) {
  auto text = readTextFile(path, 1 << 16);
  if (!text.ok())
    return text.status();
  auto json = JsonValue::parse(*text, path);
  if (!json.ok())
    return json.status();
  Progress progress;
  if (!(*json)["steps"].get(progress.steps) ||
      !(*json)["batches"].get(progress.batches) ||
      !(*json)["terms"].get(progress.terms) || !(progress.terms >= 0) ||
      !std::isfinite(progress.terms) || !(*json)["seed"].get(progress.seed))
    return Status::error("{}: expected the numbers steps, batches, terms and "
                         "seed",
                         path);
  return progress;
}

/// The scale of each layer is that of this server's programs.
Status checkScales(const AdapterFile &file,
                   const recipe::AdapterRecipe &recipe) {
  if (file.hasMagnitudes != (recipe.kind == recipe::AdapterKind::Dora))
    return Status::error("'{}' {} magnitudes (DoRA), and this server trains "
                         "adapter.kind: {}",
                         file.directory, file.hasMagnitudes ? "has" : "has no",
                         file.hasMagnitudes ? "lora" : "dora");
  for (const AdapterModule &module : file.modules)
    if (module.rank() == recipe.rankOf(module.path) &&
        std::abs(file.scale(module) / recipe.scaleOf(module.path) - 1) > 1e-6)
      return Status::error("'{}' scales the factors of '{}' by {}, this server "
                           "by {}; set adapter.alpha and adapter.scaling as "
                           "the adapter has them",
                           file.directory, module.path, file.scale(module),
                           recipe.scaleOf(module.path));
  return Status::success();
}

/// PEFT's factors under the names of the state.
std::vector<std::pair<std::string, const SafetensorsEntry *>>
namedFactors(const AdapterFile &file) {
  std::vector<std::pair<std::string, const SafetensorsEntry *>> named;
  for (const AdapterModule &module : file.modules) {
    named.emplace_back(fmt::format("{}{}.weight", module.path, kAdapterIn),
                       module.in);
    named.emplace_back(fmt::format("{}{}.weight", module.path, kAdapterOut),
                       module.out);
    if (module.magnitude)
      named.emplace_back(fmt::format("{}{}", module.path, kMagnitude),
                         module.magnitude);
  }
  return named;
}

/// Another adapter than those of the server must not be read in part.
Status checkLayers(const AdapterFile &file, const AdapterLearner &learner) {
  for (const auto &[name, entry] : namedFactors(file))
    if (!learner.has(name))
      return Status::error("'{}' has '{}', which is not of this server's "
                           "adapters; start it with the adapter's layers in "
                           "adapter.target",
                           file.directory, name);
  return Status::success();
}

} // namespace

Status saveAdapter(AdapterLearner &learner, const std::string &name,
                   const std::string &directory) {
  auto all = learner.tensors(name);
  if (!all.ok())
    return all.status();
  std::vector<SafetensorsTensor> state, factors;
  bool isTransposed = false;
  for (const auto &[tensor, bytes] : *all) {
    state.push_back({tensor->name, tensor->type, tensor->shape, bytes->size(),
                     [bytes = bytes](SafetensorsSink &sink) {
                       return sink.write(*bytes);
                     }});
    isTransposed |= isAdapterFactor(tensor->name) && isConv1d(tensor->name);
    if (tensor->role == StateRole::parameter)
      factors.push_back(state.back());
  }
  const recipe::AdapterRecipe &recipe = learner.recipe().values.adapter;
  return makeNewDirectory(directory, [&](const std::string &folder) -> Status {
    TESSERA_RETURN_IF_ERROR(
        writeNewFile(folder + "/" + kConfigFile,
                     adapterConfig(recipe, isTransposed, /*hasScore=*/false)));
    TESSERA_RETURN_IF_ERROR(
        writeNewFile(folder + "/" + kProgressFile,
                     printProgress(learner.adapters().find(name)->second)));
    TESSERA_RETURN_IF_ERROR(
        writeNewSafetensors(folder + "/" + kStateFile, std::move(state)));
    return writeNewSafetensors(folder + "/" + kAdapterFile,
                               adapterTensors(std::move(factors), recipe));
  });
}

Status loadAdapter(AdapterLearner &learner, const std::string &name,
                   const std::string &directory) {
  auto adapter = AdapterFile::open(directory);
  if (!adapter.ok())
    return adapter.status();
  TESSERA_RETURN_IF_ERROR(
      checkScales(*adapter, learner.recipe().values.adapter));
  TESSERA_RETURN_IF_ERROR(checkLayers(*adapter, learner));
  std::error_code error;
  if (!std::filesystem::exists(directory + "/" + kProgressFile, error)) {
    const auto named = namedFactors(*adapter);
    return learner.add(
        name, Progress(), directory,
        [&](const StateTensor &tensor,
            std::span<std::byte> out) -> StatusOr<bool> {
          const auto found = std::ranges::find_if(named, [&](const auto &each) {
            return each.first == tensor.name;
          });
          if (found == named.end())
            return false;
          auto values = adapter->read(*found->second);
          if (!values.ok())
            return values.status();
          if (found->second->shape != tensor.shape ||
              values->size() * sizeof(float) != out.size())
            return Status::error("'{}' has '{}' of another shape than this "
                                 "server's adapters: [{}], expected [{}]",
                                 directory, tensor.name,
                                 fmt::join(found->second->shape, ", "),
                                 fmt::join(tensor.shape, ", "));
          std::memcpy(out.data(), values->data(), out.size());
          return true;
        });
  }
  auto progress = readProgress(directory + "/" + kProgressFile);
  if (!progress.ok())
    return progress.status();
  auto file = SafetensorsFile::open(directory + "/" + kStateFile);
  if (!file.ok())
    return file.status();
  return learner.add(
      name, *progress, directory,
      [&](const StateTensor &tensor,
          std::span<std::byte> out) -> StatusOr<bool> {
        const SafetensorsEntry *entry = file->header().find(tensor.name);
        if (!entry || entry->type != tensor.type ||
            entry->shape != tensor.shape)
          return Status::error("'{}' has no '{}' that is {} [{}]; it was saved "
                               "by a server with another recipe",
                               file->path(), tensor.name,
                               safetensorsName(tensor.type),
                               fmt::join(tensor.shape, ", "));
        TESSERA_RETURN_IF_ERROR(file->read(*entry, 0, out));
        return true;
      });
}

} // namespace tessera::tune
