#include "models/gguf/GgufParts.h"
#include "models/HfConfig.h"
#include "models/gguf/GgufConfig.h"

namespace tessera::models {
namespace {

using Json = nlohmann::ordered_json;

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

} // namespace

ModelFiles::Contents GgufParts::files(std::string_view dtype) {
  config["dtype"] = config["torch_dtype"] = dtype;
  ModelFiles::Contents contents{
      {"config.json", config.dump(2) + "\n"},
      {"generation_config.json", generation},
      {"tokenizer.json", tokenizer.json},
      {"tokenizer_config.json", tokenizer.config},
      {"chat_template.jinja", tokenizer.chatTemplate}};
  std::erase_if(contents, [](const auto &file) { return file.second.empty(); });
  return contents;
}

StatusOr<GgufParts> readGguf(const GgufFile &file) {
  GgufKeys keys(file);
  auto config = ggufConfig(keys);
  if (!config.ok())
    return config.status();
  auto spec = parseHfConfig(config->dump(),
                            file.where() + ": the config.json made of it");
  if (!spec.ok())
    return spec.status();
  std::string_view architecture;
  keys.get("general.architecture", architecture);
  auto tokenizer = ggufTokenizer(keys, architecture);
  if (!tokenizer.ok())
    return tokenizer.status();
  if (int64_t(tokenizer->size) > spec->vocab)
    return Status::error(
        "{}: the tokenizer has {} tokens, but the model's vocabulary only {}",
        file.where(), tokenizer->size, spec->vocab);
  std::string generation = generationConfig(keys, *config, *tokenizer);
  if (!keys.ok())
    return keys.status();
  auto weights = ggufWeights(file, *spec);
  if (!weights.ok())
    return weights.status();
  return GgufParts{config.take(), spec.take(), tokenizer.take(),
                   std::move(generation), weights.take()};
}

} // namespace tessera::models
