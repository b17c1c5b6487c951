// Keys: gguf-py/gguf/constants.py. Their contents, and facts that only readers
// know: convert_hf_to_gguf.py and llama-model.cpp. All in ggml-org/llama.cpp.
#include "models/gguf/GgufConfig.h"
#include "runtime/support/Text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace tessera::models {
namespace {

using Json = nlohmann::ordered_json;
constexpr int64_t most = int64_t(1) << 31; // parseHfConfig has closer bounds

constexpr std::string_view kLongFactors = "rope_factors_long.weight",
                           kShortFactors = "rope_factors_short.weight",
                           kRopeFactors = "rope_freqs.weight";

enum class Kind { Llama, Qwen2, Qwen3, Gemma, Gemma2, Gemma3, Phi3, Gpt2 };
struct Architecture {
  std::string_view name;
  Kind kind;
  std::string_view modelType, className;
};
constexpr Architecture architectures[] = {
    {"llama", Kind::Llama, "llama", "LlamaForCausalLM"},
    {"qwen2", Kind::Qwen2, "qwen2", "Qwen2ForCausalLM"},
    {"qwen3", Kind::Qwen3, "qwen3", "Qwen3ForCausalLM"},
    {"gemma", Kind::Gemma, "gemma", "GemmaForCausalLM"},
    {"gemma2", Kind::Gemma2, "gemma2", "Gemma2ForCausalLM"},
    {"gemma3", Kind::Gemma3, "gemma3_text", "Gemma3ForCausalLM"},
    {"phi3", Kind::Phi3, "phi3", "Phi3ForCausalLM"},
    {"gpt2", Kind::Gpt2, "gpt2", "GPT2LMHeadModel"}};

class Config {
public:
  Config(GgufKeys &keys, const Architecture &architecture)
      : keys(keys), architecture(architecture), kind(architecture.kind) {}
  StatusOr<Json> read();

private:
  std::string key(std::string_view rest) const {
    return fmt::format("{}.{}", architecture.name, rest);
  }
  int64_t need(std::string_view rest) { return keys.need(key(rest), most); }
  bool isGemma() const {
    return kind == Kind::Gemma || kind == Kind::Gemma2 || kind == Kind::Gemma3;
  }
  bool has(std::string_view tensor) const { return keys.of().tensor(tensor); }

  bool isTied() const;
  void readTokens();
  void readGpt2();
  void readLlama();
  void readHeads();
  void readExperts();
  void readGemma();
  void readWindow();
  void readRope();
  void readScaling();
  void readLlama3Scaling();
  void readLongScaling();
  std::vector<float> factors(std::string_view tensor);

  GgufKeys &keys;
  const Architecture &architecture;
  const Kind kind;
  Json config;
  int64_t hidden = 1, layers = 1, heads = 1, headDim = 1, context = 1;
};

/// Whether the head is tied: its tensor is absent or, as GPT-2's converter
/// writes it, a copy of the token table.
bool Config::isTied() const {
  const GgufTensor *head = keys.of().tensor("output.weight"),
                   *table = keys.of().tensor("token_embd.weight");
  return !head ||
         (table && head->type == table->type && head->shape == table->shape &&
          std::ranges::equal(keys.of().bytes(*head), keys.of().bytes(*table)));
}

/// Rows of the token table: the padded vocabulary.
void Config::readTokens() {
  const GgufTensor *table = keys.of().tensor("token_embd.weight");
  if (!table || table->shape.size() != 2)
    keys.fail("general.architecture",
              "a two-dimensional tensor 'token_embd.weight' is missing");
  else
    config["vocab_size"] = table->shape[0];
  int64_t ignored = 0;
  keys.get(key("vocab_size"), ignored, most); // of tokens, without padding
  for (auto [from, to] :
       {std::pair("bos", "bos_token_id"), std::pair("eos", "eos_token_id"),
        std::pair("padding", "pad_token_id")}) {
    int64_t token = 0;
    if (keys.get(fmt::format("tokenizer.ggml.{}_token_id", from), token, most))
      config[to] = token;
  }
}

void Config::readGpt2() {
  config["n_embd"] = hidden;
  config["n_layer"] = layers;
  config["n_head"] = heads = need("attention.head_count");
  config["n_positions"] = context;
  config["n_inner"] = need("feed_forward_length");
  config["activation_function"] = "gelu_new";
  double eps = 1e-5;
  keys.get(key("attention.layer_norm_epsilon"), eps);
  config["layer_norm_epsilon"] = eps;
}

void Config::readHeads() {
  heads = std::max<int64_t>(need("attention.head_count"), 1);
  int64_t keyValue = heads;
  keys.getUniform(key("attention.head_count_kv"), keyValue, most);
  headDim = hidden / heads;
  keys.get(key("attention.key_length"), headDim, most);
  int64_t valueDim = headDim;
  keys.get(key("attention.value_length"), valueDim, most);
  if (valueDim != headDim)
    keys.fail(key("attention.value_length"),
              "{} differs from attention.key_length = {}, which is not "
              "supported",
              valueDim, headDim);
  config["num_attention_heads"] = heads;
  config["num_key_value_heads"] = keyValue;
  // Omitted if it follows from the other keys, as old readers expect.
  if (isGemma() || kind == Kind::Qwen3 || headDim * heads != hidden)
    config["head_dim"] = headDim;
}

void Config::readExperts() {
  int64_t experts = 0, chosen = 0;
  keys.get(key("expert_count"), experts, most);
  keys.get(key("expert_used_count"), chosen, most);
  if (experts == 0)
    return;
  if (kind != Kind::Llama)
    return keys.fail(key("expert_count"),
                     "experts are supported in 'llama' (Mixtral) only");
  config["model_type"] = "mixtral";
  config["architectures"] = Json::array({"MixtralForCausalLM"});
  config["num_local_experts"] = experts;
  config["num_experts_per_tok"] = chosen;
}

// Not in the file, as in llama.cpp: queries are scaled by the width of a head,
// except in the largest Gemma 2 and 3, which are recognized by their number of
// layers.
void Config::readGemma() {
  constexpr const char *gelu = "gelu_pytorch_tanh";
  config["hidden_act"] = config["hidden_activation"] = gelu;
  if (kind == Kind::Gemma)
    return;
  bool second = kind == Kind::Gemma2;
  bool largest = layers == (second ? 46 : 62);
  double width = double(largest ? hidden / heads : headDim), scale = 0;
  if (keys.get(key("attention.scale"), scale)) {
    if (scale <= 0)
      keys.fail(key("attention.scale"), "must be greater than 0");
    width = shortest(float(1 / (scale * scale)));
  }
  config["query_pre_attn_scalar"] = width;
  double cap = 50;
  bool given = keys.get(key("attn_logit_softcapping"), cap);
  config["attn_logit_softcapping"] = second || given ? Json(cap) : Json();
  cap = 30;
  given = keys.get(key("final_logit_softcapping"), cap);
  config["final_logit_softcapping"] = second || given ? Json(cap) : Json();
}

void Config::readWindow() {
  int64_t window = 0;
  keys.get(key("attention.sliding_window"), window, most);
  if (kind == Kind::Gemma3) {
    int64_t every = 6;
    keys.get(key("attention.sliding_window_pattern"), every, 1 << 16);
    config["sliding_window_pattern"] = every;
    double local = 1e4;
    keys.get(key("rope.freq_base_swa"), local);
    config["rope_local_base_freq"] = local;
  }
  if (kind == Kind::Gemma2 || kind == Kind::Gemma3)
    config["sliding_window"] = window ? Json(window) : Json();
  if (window == 0)
    return;
  switch (kind) {
  case Kind::Llama:
    if (config["model_type"] == "llama") {
      config["model_type"] = "mistral";
      config["architectures"] = Json::array({"MistralForCausalLM"});
    }
    [[fallthrough]];
  case Kind::Phi3:
    config["sliding_window"] = window;
    return;
  case Kind::Gemma2:
  case Kind::Gemma3:
    return;
  default:
    keys.fail(key("attention.sliding_window"), "is not supported in '{}'",
              architecture.name);
  }
}

void Config::readLlama() {
  config["hidden_size"] = hidden;
  config["num_hidden_layers"] = layers;
  config["intermediate_size"] = need("feed_forward_length");
  config["max_position_embeddings"] = context;
  readHeads();
  double eps = 1e-6;
  if (!keys.get(key("attention.layer_norm_rms_epsilon"), eps))
    keys.fail(key("attention.layer_norm_rms_epsilon"), "is missing");
  config["rms_norm_eps"] = eps;
  if (!isGemma())
    config["hidden_act"] = "silu";
  config["attention_bias"] = kind == Kind::Llama && has("blk.0.attn_q.bias");
  if (kind == Kind::Qwen2)
    config.erase("attention_bias"); // implied by the architecture
  readExperts();
  if (isGemma())
    readGemma();
  readWindow();
  readRope();
}

//===--- rotary positions -----------------------------------------------===//

void Config::readRope() {
  double theta = 10000;
  keys.get(key("rope.freq_base"), theta);
  config["rope_theta"] = theta;
  int64_t turning = headDim;
  keys.get(key("rope.dimension_count"), turning, most);
  if (kind == Kind::Phi3 && turning != headDim)
    config["partial_rotary_factor"] = double(turning) / double(headDim);
  else if (turning != headDim)
    keys.fail(
        key("rope.dimension_count"),
        "{} of {} elements of a head are rotated, which '{}' does not support",
        turning, headDim, architecture.name);
  double linear = 1;
  keys.get(key("rope.scale_linear"), linear);
  if (linear != 1)
    keys.fail(key("rope.scale_linear"),
              "files this old are not supported; reconvert the model");
  readScaling();
}

void Config::readScaling() {
  std::string_view type = "none";
  keys.get(key("rope.scaling.type"), type);
  double factor = 1;
  bool scaled = keys.get(key("rope.scaling.factor"), factor);
  int64_t original = 0;
  keys.get(key("rope.scaling.original_context_length"), original, most);
  bool finetuned = false;
  keys.get(key("rope.scaling.finetuned"), finetuned); // informational
  if (has(kLongFactors) || has(kShortFactors) || type == "longrope") {
    if (original > 0)
      config["original_max_position_embeddings"] = original;
    return readLongScaling();
  }
  if (has(kRopeFactors))
    return readLlama3Scaling();
  if (type == "none" || (scaled && factor == 1 && type == "linear"))
    return;
  Json &scaling =
      config["rope_scaling"] = {{"rope_type", type}, {"factor", factor}};
  if (type == "linear" && scaled)
    return;
  if (type != "yarn" || !scaled)
    return keys.fail(key("rope.scaling.type"),
                     "{} with a factor of {} is not supported; use longrope, "
                     "or linear or yarn with a factor",
                     quote(type), factor);
  if (original > 0)
    scaling["original_max_position_embeddings"] = original;
}

/// A list of divisors of rotary frequencies, [turning / 2].
std::vector<float> Config::factors(std::string_view name) {
  const GgufTensor *tensor = keys.of().tensor(name);
  std::vector<float> values;
  if (!tensor || tensor->shape.size() != 1 || tensor->type != GgufType::F32 ||
      tensor->shape[0] > 1 << 16) {
    keys.fail("general.architecture", "the tensor {} must exist, a list of F32",
              quote(name));
    return values;
  }
  values.resize(tensor->shape[0]);
  dequantize(tensor->type, keys.of().bytes(*tensor), values);
  return values;
}

// For Llama 3.1 and later the file has only the resulting divisors. The
// parameters are recovered from the published ones that produce them.
void Config::readLlama3Scaling() {
  std::vector<float> given = factors(kRopeFactors);
  constexpr double low = 1, high = 4, original = 8192;
  double factor = 1;
  for (float each : given)
    factor = std::max(factor, double(each));
  double theta = config["rope_theta"];
  bool same = int64_t(given.size()) * 2 == headDim;
  for (size_t i = 0; i < given.size() && same; ++i) {
    double frequency = std::pow(theta, -2.0 * double(i) / double(headDim));
    double turns = original * frequency / (2 * std::numbers::pi);
    double smooth = (turns - low) / (high - low), expected = factor;
    if (turns > high)
      expected = 1;
    else if (turns >= low)
      expected = 1 / ((1 - smooth) / factor + smooth);
    same = std::abs(double(given[i]) - expected) <= 1e-3 * expected;
  }
  if (!same)
    keys.fail("general.architecture",
              "the tensor 'rope_freqs.weight' differs from that of Llama 3.1 "
              "to 3.3, the only supported rope_scaling");
  else if (factor > 1)
    config["rope_scaling"] = {
        {"rope_type", "llama3"},
        {"factor", shortest(float(factor))},
        {"low_freq_factor", low},
        {"high_freq_factor", high},
        {"original_max_position_embeddings", int64_t(original)}};
}

void Config::readLongScaling() {
  if (kind != Kind::Phi3)
    return keys.fail(key("rope.scaling.type"),
                     "longrope is supported in 'phi3' only");
  auto list = [&](std::string_view tensor) {
    Json values = Json::array();
    for (float each : factors(tensor))
      values.push_back(shortest(each));
    return values;
  };
  config["rope_scaling"] = {{"type", "longrope"},
                            {"short_factor", list(kShortFactors)},
                            {"long_factor", list(kLongFactors)}};
  double scale = 0;
  if (!keys.get(key("rope.scaling.attn_factor"), scale))
    return;
  // Values that readers derive are omitted; old readers reject them.
  double original = config.value("original_max_position_embeddings", 4096.0);
  double ratio = double(context) / original;
  double usual =
      ratio > 1 ? std::sqrt(1 + std::log(ratio) / std::log(original)) : 1;
  if (std::abs(scale - usual) > 1e-4)
    config["rope_scaling"]["attention_factor"] = scale;
}

StatusOr<Json> Config::read() {
  config["architectures"] = Json::array({architecture.className});
  config["model_type"] = architecture.modelType;
  hidden = need("embedding_length");
  layers = need("block_count");
  context = need("context_length");
  if (uint64_t(layers) > keys.of().tensors().size())
    keys.fail(key("block_count"), "{} layers have only {} tensors", layers,
              keys.of().tensors().size());
  if (!keys.ok())
    return keys.status(); // the rest takes time proportional to the layers
  readTokens();
  if (kind == Kind::Gpt2)
    readGpt2();
  else
    readLlama();
  config["tie_word_embeddings"] = isTied();
  keys.refuseUnread(key(""));
  if (!keys.ok())
    return keys.status();
  return std::move(config);
}

} // namespace

bool isConfigTensor(std::string_view name) {
  return name == kLongFactors || name == kShortFactors || name == kRopeFactors;
}

StatusOr<Json> ggufConfig(GgufKeys &keys) {
  std::string_view given, type;
  std::vector<std::string_view> names;
  if (keys.get("general.type", type) && type != "model")
    keys.fail("general.type", "must be 'model', got {}", quote(type));
  int64_t parts = 1;
  if (keys.get("split.count", parts, 1 << 16) && parts > 1)
    keys.fail("split.count",
              "the model is in {} files; join them with "
              "llama-gguf-split --merge",
              parts);
  if (!keys.get("general.architecture", given))
    keys.fail("general.architecture", "is missing");
  if (!keys.ok())
    return keys.status();
  for (const Architecture &each : architectures) {
    if (each.name == given)
      return Config(keys, each).read();
    names.push_back(each.name);
  }
  keys.fail("general.architecture", "{} is not supported; use {}", quote(given),
            choices(names));
  return keys.status();
}

} // namespace tessera::models
