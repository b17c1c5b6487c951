#include "models/SentenceModel.h"
#include "models/HfReaders.h"
#include "runtime/support/Text.h"

#include <algorithm>

namespace tessera::models {
namespace {

constexpr std::string_view kModulesFile = "modules.json",
                           kTransformerFile = "sentence_bert_config.json",
                           kPromptFile = "config_sentence_transformers.json";
constexpr int64_t maxFileBytes = 1 << 20;
constexpr size_t maxModules = 16;
constexpr const char *advice =
    ", so it may change the embeddings; remove it if it does not";

/// The JSON object of one of the files; nothing if the file does not exist.
StatusOr<std::optional<Json>> readObject(const ModelFiles &files,
                                         std::string_view name) {
  if (!files.has(name))
    return std::optional<Json>();
  StatusOr<std::string> text = files.read(name, maxFileBytes);
  if (!text.ok())
    return text.status();
  StatusOr<Json> object = parseConfigObject(*text, files.where(name));
  if (!object.ok())
    return object.status();
  return std::optional<Json>(object.take());
}

//===--- the pooling ----------------------------------------------------===//

struct Mode {
  std::string_view key; ///< a flag, as all versions write it
  std::string_view
      word; ///< value of `pooling_mode`, which some versions write instead
  std::optional<Pooling> pooling;
};
constexpr Mode modes[] = {
    {"pooling_mode_cls_token", "cls", Pooling::Cls},
    {"pooling_mode_mean_tokens", "mean", Pooling::Mean},
    {"pooling_mode_max_tokens", "max", Pooling::Max},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens",
     Pooling::MeanSqrt},
    {"pooling_mode_weightedmean_tokens", "weightedmean", std::nullopt},
    {"pooling_mode_lasttoken", "lasttoken", std::nullopt}};

const Mode *readMode(ConfigFields &fields) {
  const Mode *chosen = nullptr;
  auto choose = [&](const Mode &mode, std::string_view key) {
    if (chosen && chosen != &mode)
      fields.fail(key, fmt::format("a second pooling in addition to {} is not "
                                   "supported; export the model with one",
                                   chosen->word));
    else if (!mode.pooling)
      fields.fail(key, fmt::format("the pooling {} is not supported; use cls, "
                                   "mean, max or mean_sqrt_len_tokens",
                                   mode.word));
    chosen = &mode;
  };
  std::string word = fields.text("pooling_mode", "");
  for (const Mode &mode : modes) {
    if (fields.flag(mode.key, false))
      choose(mode, mode.key);
    if (word == mode.word)
      choose(mode, "pooling_mode");
  }
  if (!chosen)
    fields.fail("pooling_mode",
                "must be cls, mean, max or mean_sqrt_len_tokens");
  return chosen;
}

Status readPooling(const ModelFiles &files, SentenceModel &model,
                   bool &includesPrompt) {
  const std::string path = files.where(model.poolingFile);
  StatusOr<std::optional<Json>> object = readObject(files, model.poolingFile);
  if (!object.ok())
    return object.status();
  if (!*object)
    return Status::error("{}: is missing; it configures the pooling", path);
  ConfigFields fields(**object, path);
  const Mode *mode = readMode(fields);
  includesPrompt = fields.flag("include_prompt", true);
  // The model's width is in its config.json.
  constexpr std::string_view widths[] = {"word_embedding_dimension",
                                         "embedding_dimension"};
  fields.ignore(widths);
  fields.finish(advice);
  if (fields.ok())
    model.pooling = *mode->pooling;
  return fields.status();
}

//===--- the list of modules --------------------------------------------===//

/// A direct subfolder of the model's folder, or the folder itself.
bool isFolder(const std::string &path) {
  return path.find_first_of("/\\") == path.npos && path != "." &&
         path != ".." && path.find('\0') == path.npos;
}

/// The part after the last dot of "sentence_transformers.models.Pooling".
std::string_view lastPart(std::string_view type) {
  return type.substr(type.rfind('.') + 1);
}

struct Modules {
  std::vector<std::string> kinds, paths;
};

StatusOr<Modules> readModules(const std::string &file, std::string_view text) {
  StatusOr<Json> whole = parseConfigList(text, file);
  if (!whole.ok())
    return whole.status();
  Modules modules;
  for (const Json &each : *whole) {
    if (!each.is_object() || modules.kinds.size() == maxModules)
      return Status::error("{}: must be a list of up to {} modules", file,
                           maxModules);
    ConfigFields fields(each, file);
    modules.kinds.emplace_back(lastPart(fields.text("type", "")));
    modules.paths.push_back(fields.text("path", ""));
    constexpr std::string_view names[] = {"idx", "name"};
    fields.ignore(names);
    fields.finish(advice);
    if (!isFolder(modules.paths.back()))
      fields.fail("path", fmt::format("{} is not a subfolder of the model",
                                      quote(modules.paths.back())));
    if (!fields.ok())
      return fields.status();
  }
  return modules;
}

Status checkModules(const std::string &file, const Modules &modules) {
  constexpr std::string_view order[] = {"Transformer", "Pooling", "Normalize"};
  for (const std::string &kind : modules.kinds)
    if (!std::ranges::count(order, kind))
      return Status::error("{}: the module {} is not supported; use {}", file,
                           quote(kind), choices(order));
  const size_t count = modules.kinds.size();
  if (count < 2 || count > 3 ||
      !std::equal(modules.kinds.begin(), modules.kinds.end(), order))
    return Status::error("{}: the modules must be Transformer, Pooling and "
                         "optionally Normalize, in this order",
                         file);
  if (!modules.paths[0].empty())
    return Status::error("{}: the transformer's files are in {}; move them to "
                         "the folder of modules.json",
                         file, quote(modules.paths[0]));
  return Status::success();
}

//===--- the other files ------------------------------------------------===//

/// Lower-casing must be done by the tokenizer.
Status readTransformer(const ModelFiles &files, SentenceModel &model) {
  StatusOr<std::optional<Json>> object = readObject(files, kTransformerFile);
  if (!object.ok() || !*object)
    return object.status();
  ConfigFields fields(**object, files.where(kTransformerFile));
  if (fields.find("max_seq_length"))
    model.maxTokens = fields.size("max_seq_length", maxPositionCount);
  fields.requireNeutral("do_lower_case", false,
                        "use the normalizer of tokenizer.json");
  fields.finish(advice);
  return fields.status();
}

Status readPrompt(const ModelFiles &files, SentenceModel &model) {
  const std::string path = files.where(kPromptFile);
  StatusOr<std::optional<Json>> object = readObject(files, kPromptFile);
  if (!object.ok() || !*object)
    return object.status();
  ConfigFields fields(**object, path);
  // Versions, and the similarity function.
  constexpr std::string_view others[] = {"__version__", "similarity_fn_name",
                                         "model_type"};
  fields.ignore(others);
  std::string name = fields.text("default_prompt_name", "");
  const Json *prompts = fields.section("prompts");
  if (!name.empty() && (!prompts || !prompts->contains(name))) {
    fields.fail("default_prompt_name",
                fmt::format("unknown prompt {}", quote(name)));
  } else if (!name.empty()) {
    ConfigFields inner(*prompts, path, "prompts.");
    model.prompt = inner.text(std::string_view(name), "");
    fields.adopt(inner.status());
  }
  if (fields.find("truncate_dim"))
    fields.fail("truncate_dim", "truncated embeddings are not supported here; "
                                "use `dimensions` of a request");
  fields.finish(advice);
  return fields.status();
}

} // namespace

StatusOr<SentenceModel> loadSentenceModel(const ModelFiles &files) {
  SentenceModel model;
  if (!files.has(kModulesFile))
    return model;
  const std::string file = files.where(kModulesFile);
  StatusOr<std::string> text = files.read(kModulesFile, maxFileBytes);
  if (!text.ok())
    return text.status();
  StatusOr<Modules> modules = readModules(file, *text);
  if (!modules.ok())
    return modules.status();
  TESSERA_RETURN_IF_ERROR(checkModules(file, *modules));
  model.given = true;
  if (modules->kinds.size() == 3)
    model.normalize = Normalize::L2;
  bool includesPrompt = true;
  const std::string &pooling = modules->paths[1]; // empty: the model's folder
  model.poolingFile = pooling + (pooling.empty() ? "" : "/") + "config.json";
  TESSERA_RETURN_IF_ERROR(readPooling(files, model, includesPrompt));
  TESSERA_RETURN_IF_ERROR(readTransformer(files, model));
  TESSERA_RETURN_IF_ERROR(readPrompt(files, model));
  if (!includesPrompt && !model.prompt.empty())
    return Status::error(
        "{}: a pooling that excludes the prompt {} is not supported", file,
        quote(model.prompt));
  return model;
}

std::vector<std::string> sentenceModelFiles(const SentenceModel &model) {
  std::vector<std::string> names;
  if (model.given)
    for (std::string_view name : {kModulesFile, kTransformerFile, kPromptFile,
                                  std::string_view(model.poolingFile)})
      names.emplace_back(name);
  return names;
}

//===--- rerankers --------------------------------------------------------===//

/// By the name of its class in torch, as CrossEncoder reads it.
static StatusOr<Relevance> relevanceOf(const Json &name,
                                       const std::string &file) {
  for (const char *known :
       {"torch.nn.modules.linear.Identity", "torch.nn.Identity"})
    if (name == known)
      return Relevance::Score;
  for (const char *known :
       {"torch.nn.modules.activation.Sigmoid", "torch.nn.Sigmoid"})
    if (name == known)
      return Relevance::Logistic;
  return Status::error("{}: the activation {} of a score is not supported; use "
                       "torch.nn.Sigmoid or torch.nn.Identity",
                       file, name.dump());
}

StatusOr<Relevance> loadRelevance(const ModelFiles &files) {
  auto own = readObject(files, kRelevanceFile);
  if (!own.ok())
    return own.status();
  auto config = readObject(files, "config.json");
  if (!config.ok())
    return config.status();
  const std::string ownFile = files.where(kRelevanceFile),
                    configFile = files.where("config.json");
  if (*own) {
    if (const Json prompt = (*own)->value("default_prompt_name", Json());
        !prompt.is_null())
      return Status::error("{}: default_prompt_name: prompts of rerankers are "
                           "not supported; remove it, and write the prompt in "
                           "the query",
                           ownFile);
    if (const Json name = (*own)->value("activation_fn", Json());
        !name.is_null())
      return relevanceOf(name, ownFile);
  }
  if (!*config)
    return Relevance::Logistic;
  const Json settings = (*config)->value("sentence_transformers", Json());
  if (settings.is_object() && settings.contains("activation_fn"))
    return settings["activation_fn"].is_null()
               ? Relevance::Logistic
               : relevanceOf(settings["activation_fn"], configFile);
  const Json old =
      (*config)->value("sbert_ce_default_activation_function", Json());
  return old.is_null() ? Relevance::Logistic : relevanceOf(old, configFile);
}

StatusOr<Recipe> withSentenceModel(Recipe recipe, const ModelSpec &spec,
                                   const std::string &directory) {
  if (!spec.isEncoder() || spec.hasScore)
    return recipe;
  StatusOr<SentenceModel> model = loadSentenceModel(directory);
  if (!model.ok())
    return model.status();
  Recipe::Inference &inference = recipe.inference;
  if (inference.pooling == Pooling::Model)
    inference.pooling = model->pooling;
  if (inference.normalize == Normalize::Model)
    inference.normalize = model->normalize;
  inference.context =
      std::min(inference.context, model->maxTokens.value_or(spec.maxPositions));
  return recipe;
}

} // namespace tessera::models
