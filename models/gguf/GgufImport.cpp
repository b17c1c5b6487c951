#include "models/gguf/GgufImport.h"
#include "models/HfConfig.h"
#include "models/gguf/GgufConfig.h"
#include "models/gguf/GgufTokenizer.h"
#include "models/gguf/GgufWeights.h"
#include "runtime/data/NewDirectory.h"

#include <filesystem>

namespace tessera::models {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string_view dtypeName(SafetensorsType type) {
  return type == SafetensorsType::f32   ? "float32"
         : type == SafetensorsType::f16 ? "float16"
                                        : "bfloat16";
}

/// Sampling parameters, start token and end tokens of the file.
std::string generationConfig(GgufKeys &keys, const Json &config,
                             const GgufTokenizer &tokenizer) {
  Json generation = Json::object();
  for (const char *name : {"bos_token_id", "pad_token_id"})
    if (config.contains(name))
      generation[name] = config[name];
  if (tokenizer.ends.size() == 1)
    generation["eos_token_id"] = tokenizer.ends[0];
  else if (!tokenizer.ends.empty())
    generation["eos_token_id"] = tokenizer.ends;
  for (auto [from, to] :
       {std::pair("temp", "temperature"), std::pair("top_p", "top_p"),
        std::pair("min_p", "min_p")}) {
    double value = 0;
    if (keys.get(fmt::format("general.sampling.{}", from), value))
      generation[to] = value;
  }
  int64_t topK = 0;
  if (keys.get("general.sampling.top_k", topK, INT32_MAX))
    generation["top_k"] = topK;
  return generation.dump(2) + "\n";
}

struct Written {
  std::string config, generation;
  GgufTokenizer tokenizer;
  GgufWeights weights;
};

Status write(const std::string &folder, Written &all) {
  GgufTokenizer &tokenizer = all.tokenizer;
  for (auto [name, text] :
       {std::pair("config.json", &all.config),
        std::pair("generation_config.json", &all.generation),
        std::pair("tokenizer.json", &tokenizer.json),
        std::pair("tokenizer_config.json", &tokenizer.config),
        std::pair("chat_template.jinja", &tokenizer.chatTemplate)})
    if (!text->empty())
      TESSERA_RETURN_IF_ERROR(writeNewFile(folder + "/" + name, *text));
  return writeNewSafetensors(folder + "/model.safetensors",
                             std::move(all.weights.tensors));
}

} // namespace

StatusOr<std::string> importGguf(const std::string &path,
                                 const std::string &directory,
                                 SafetensorsType type) {
  std::error_code code;
  if (fs::exists(directory, code))
    return Status::error("'{}' exists already; choose another directory",
                         directory);
  auto file = GgufFile::open(path);
  if (!file.ok())
    return file.status();
  GgufKeys keys(*file);
  auto config = ggufConfig(keys);
  if (!config.ok())
    return config.status();
  (*config)["dtype"] = (*config)["torch_dtype"] = dtypeName(type);
  Written all;
  all.config = config->dump(2) + "\n";
  auto spec = parseHfConfig(all.config, path + ": the config.json made of it");
  if (!spec.ok())
    return spec.status();
  std::string_view architecture;
  keys.get("general.architecture", architecture);
  auto tokenizer = ggufTokenizer(keys, architecture);
  if (!tokenizer.ok())
    return tokenizer.status();
  all.tokenizer = tokenizer.take();
  if (int64_t(all.tokenizer.size) > spec->vocab)
    return Status::error(
        "{}: the tokenizer has {} tokens, but the model's vocabulary only {}",
        path, all.tokenizer.size, spec->vocab);
  all.generation = generationConfig(keys, *config, all.tokenizer);
  if (!keys.ok())
    return keys.status();
  auto weights = ggufWeights(*file, *spec, type);
  if (!weights.ok())
    return weights.status();
  all.weights = weights.take();
  std::string types;
  for (const auto &[name, count] : all.weights.types)
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", count, name);
  std::string line = fmt::format(
      "{}; tensors: {}, written as {}; tokenizer: {}, {} tokens; {}",
      describe(*spec), types, dtypeName(type), all.tokenizer.shape,
      all.tokenizer.size,
      all.tokenizer.chatTemplate.empty() ? "no chat template"
                                         : "with a chat template");
  TESSERA_RETURN_IF_ERROR(
      makeNewDirectory(directory, [&](const std::string &folder) {
        return write(folder, all);
      }));
  return line;
}

} // namespace tessera::models
