// Selects the reader for a config.json, and reads the keys that all families
// share.
#include "models/HfConfig.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "models/HfReaders.h"
#include "models/RewardHead.h"
#include "runtime/support/Text.h"

namespace tessera::models {
namespace {

constexpr int64_t maxFileBytes = 1 << 20;

/// Keys of the reference's base classes and of common writers that do not
/// change a forward or backward pass.
constexpr std::string_view irrelevant[] = {"_attn_implementation",
                                           "_attn_implementation_autoset",
                                           "_name_or_path",
                                           "_commit_hash",
                                           "attn_implementation",
                                           "bad_words_ids",
                                           "begin_suppress_tokens",
                                           "cache_implementation",
                                           "chunk_size_feed_forward",
                                           "decoder_start_token_id",
                                           "diversity_penalty",
                                           "do_sample",
                                           "early_stopping",
                                           "encoder_no_repeat_ngram_size",
                                           "exponential_decay_length_penalty",
                                           "finetuning_task",
                                           "forced_bos_token_id",
                                           "forced_eos_token_id",
                                           "gradient_checkpointing",
                                           "id2label",
                                           "is_decoder",
                                           "label2id",
                                           "length_penalty",
                                           "max_length",
                                           "min_length",
                                           "n_ctx",
                                           "no_repeat_ngram_size",
                                           "num_beam_groups",
                                           "num_beams",
                                           "num_return_sequences",
                                           "output_attentions",
                                           "output_hidden_states",
                                           "output_scores",
                                           "prefix",
                                           "pretraining_tp",
                                           "problem_type",
                                           "remove_invalid_values",
                                           "repetition_penalty",
                                           "return_dict",
                                           "return_dict_in_generate",
                                           "sep_token_id",
                                           "suppress_tokens",
                                           "task_specific_params",
                                           "temperature",
                                           "tf_legacy_loss",
                                           "tokenizer_class",
                                           "top_k",
                                           "top_p",
                                           "torchscript",
                                           "transformers_version",
                                           "typical_p",
                                           "unsloth_fixed",
                                           "unsloth_version",
                                           "use_bfloat16",
                                           "use_cache"};

/// Keys of GPT-2's classification heads, which are not part of the language
/// model.
constexpr std::string_view summaries[] = {
    "summary_type", "summary_use_proj", "summary_activation",
    "summary_proj_to_labels", "summary_first_dropout"};

const FamilyInfo *readFamily(ConfigFields &fields) {
  std::vector<std::string_view> names;
  const FamilyInfo *byType = nullptr, *byClass = nullptr;
  std::string type = fields.text("model_type", "");
  for (const FamilyInfo &each : families()) {
    names.push_back(name(each.family));
    if (type == name(each.family))
      byType = &each;
  }
  if (!type.empty() && !byType)
    fields.fail("model_type",
                fmt::format("architecture {} is not supported; use {}",
                            quote(type), choices(names)));
  for (const std::string &given : fields.strings("architectures")) {
    const FamilyInfo *found = nullptr;
    for (const FamilyInfo &each : families())
      if (!given.empty() && (std::ranges::count(each.architectures, given) ||
                             given == scoreArchitecture(each.family)))
        found = &each;
    if (!found)
      fields.fail("architectures",
                  fmt::format("{} is not supported; use the causal language "
                              "model of {} (for BERT, the encoder)",
                              quote(given), choices(names)));
    else if ((byType && found != byType) || (byClass && found != byClass))
      fields.fail("architectures",
                  fmt::format("{} conflicts with {}; correct one of the two",
                              quote(given),
                              byType ? fmt::format("model_type '{}'", type)
                                     : "another entry"));
    byClass = found;
  }
  if (fields.ok() && !byType && !byClass)
    fields.fail("model_type", "is missing; add it");
  return byType ? byType : byClass;
}

/// Keys that all families share.
void readCommon(ConfigFields &fields, const LlamaTraits &traits,
                ModelSpec &spec) {
  spec.bosToken.reset();
  if (auto bos = fields.integers("bos_token_id", false); !bos.empty())
    spec.bosToken = bos[0];
  if (auto pad = fields.integers("pad_token_id", false); !pad.empty())
    spec.padToken = pad[0];
  spec.eosTokens = fields.integers("eos_token_id", true);
  spec.initializerRange =
      fields.number("initializer_range", 0, 100, spec.initializerRange);

  constexpr std::array<std::string_view, 5> types = {"", "float32", "bfloat16",
                                                     "float16", "auto"};
  spec.checkpointDtype = fields.text({"dtype", "torch_dtype"}, "");
  if (!std::ranges::count(types, spec.checkpointDtype))
    fields.fail("dtype", fmt::format("{} is not supported; use float32, "
                                     "bfloat16 or float16",
                                     quote(spec.checkpointDtype)));

  constexpr std::string_view ownCode[] = {"auto_map"};
  if (traits.ignoresAutoMap)
    fields.ignore(ownCode);
  else
    fields.requireNeutral(ownCode[0], nullptr,
                          "the model has its own code, which may compute "
                          "something else; remove the key if it does not");
  const char *only = spec.isEncoder() ? "encoder only" : "decoder only";
  for (const char *each :
       {"is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder"})
    fields.requireNeutral(each, false, only);
  fields.requireNeutral("pruned_heads", Json::object(),
                        "export the model with its heads removed");
  if (traits.rotaryShare == 0)
    fields.requireNeutral("partial_rotary_factor", 1.0,
                          "rope covers the whole head in these families");
  fields.ignore(irrelevant);
}

void readGpt2(ConfigFields &fields, ModelSpec &spec) {
  spec.vocab = fields.size("vocab_size", maxVocab);
  spec.hidden = fields.size({"n_embd", "hidden_size"}, maxWidth);
  spec.layers = fields.size({"n_layer", "num_hidden_layers"}, maxLayers);
  spec.heads = fields.size({"n_head", "num_attention_heads"}, maxHeads);
  spec.kvHeads = spec.heads;
  spec.maxPositions =
      fields.size({"n_positions", "max_position_embeddings"}, maxWidth);
  spec.intermediate = fields.size("n_inner", maxIntermediate, 4 * spec.hidden);
  if (spec.hidden % spec.heads != 0)
    fields.fail("n_embd", fmt::format("{} is not a multiple of n_head = {}",
                                      spec.hidden, spec.heads));
  spec.headDim = spec.hidden / spec.heads;

  spec.norm = NormKind::LayerNorm;
  spec.normEps = fields.number("layer_norm_epsilon", 1e-20, 1, 1e-5);
  spec.activation = readActivation(fields, "activation_function", "gelu_new");
  spec.gatedMlp = false;
  spec.tieWordEmbeddings = fields.flag("tie_word_embeddings", true);
  spec.qkvBias = spec.outputBias = spec.mlpBias = true;
  spec.scaleAttention = fields.flag("scale_attn_weights", true);
  spec.scaleAttentionByInverseLayer =
      fields.flag("scale_attn_by_inverse_layer_idx", false);
  // Attention scores are always accumulated in fp32, as this key requests.
  fields.flag("reorder_and_upcast_attn", false);
  spec.embeddingDropout = readDropout(fields, "embd_pdrop", 0.1);
  spec.attentionDropout = readDropout(fields, "attn_pdrop", 0.1);
  spec.residualDropout = readDropout(fields, "resid_pdrop", 0.1);
  fields.ignore(summaries);
}

} // namespace

Activation readActivation(ConfigFields &fields, Key key, const char *absent) {
  struct Entry {
    std::string_view name;
    Activation activation;
  };
  constexpr Entry table[] = {{"gelu", Activation::Gelu},
                             {"gelu_new", Activation::GeluTanh},
                             {"gelu_pytorch_tanh", Activation::GeluTanh},
                             {"gelu_fast", Activation::GeluTanh},
                             {"quick_gelu", Activation::QuickGelu},
                             {"silu", Activation::Silu},
                             {"swish", Activation::Silu},
                             {"relu", Activation::Relu}};
  std::string given = fields.text(key, absent);
  std::vector<std::string_view> names;
  for (const Entry &each : table) {
    if (each.name == given)
      return each.activation;
    names.push_back(each.name);
  }
  fields.fail(key.name, fmt::format("activation {} is not supported; use {}",
                                    quote(given), choices(names)));
  return Activation::Gelu;
}

/// A dropout of 1 would drop everything.
double readDropout(ConfigFields &fields, Key key, double absent) {
  double rate = fields.number(key, 0, 1, absent);
  if (rate == 1)
    fields.fail(key.name, "must be less than 1");
  return rate;
}

static StatusOr<LoadedConfig> parseConfig(std::string_view text,
                                          const std::string &file) {
  StatusOr<Json> object = parseConfigObject(text, file);
  if (!object.ok())
    return object.status();
  ConfigFields fields(*object, file);
  const FamilyInfo *info = readFamily(fields);
  if (!fields.ok())
    return fields.status();

  LoadedConfig config{file, std::string(text), {}, {}, {}, {}};
  ModelSpec &spec = config.spec;
  spec.family = info->family;
  spec.hasScore = readScoreHead(fields, info->family);
  if (info->family == Family::Gpt2)
    readGpt2(fields, spec);
  else if (info->family == Family::Bert)
    readBert(fields, spec);
  else if (info->family == Family::Mamba2)
    readMamba2(fields, spec);
  else
    readLlama(fields, info->llama, spec);
  readCommon(fields, info->llama, spec);
  readStoredWeights(fields, config);
  fields.finish(", so it may change the model; remove it if it does not");
  if (!fields.ok())
    return fields.status();
  return config;
}

StatusOr<ModelSpec> parseHfConfig(std::string_view text,
                                  const std::string &file) {
  StatusOr<LoadedConfig> loaded = parseConfig(text, file);
  if (!loaded.ok())
    return loaded.status();
  return loaded->spec;
}

StatusOr<LoadedConfig> loadedConfig(std::string text, const std::string &file) {
  return parseConfig(text, file);
}

StatusOr<LoadedConfig> loadedConfig(const ModelFiles &files) {
  constexpr std::string_view name = "config.json";
  StatusOr<std::string> text = files.read(name, maxFileBytes);
  if (!text.ok())
    return text.status();
  return loadedConfig(text.take(), files.where(name));
}

StatusOr<LoadedConfig> loadHfConfig(const std::string &path) {
  std::error_code failure;
  if (std::filesystem::is_directory(path, failure))
    return loadedConfig(ModelFiles(path));
  StatusOr<std::string> text = readTextFile(path, maxFileBytes);
  if (!text.ok())
    return text.status();
  return loadedConfig(text.take(), path);
}

} // namespace tessera::models
