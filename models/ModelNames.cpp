// Names of a family's tensors in checkpoints, and of its config's own words.
#include "models/ModelSpec.h"

#include <cassert>

#include <fmt/format.h>

namespace tessera::models {

ExpertNames expertNames(const ModelSpec &spec) {
  if (spec.family == Family::Mixtral)
    return {"block_sparse_moe.gate",
            "block_sparse_moe.experts.*",
            "block_sparse_moe.shared_expert",
            "w1",
            "w3",
            "w2"};
  if (spec.family == Family::GptOss)
    return {"mlp.router", "mlp.experts", "", "", "gate_up_proj", "down_proj"};
  if (spec.family == Family::GraniteHybrid)
    return {"block_sparse_moe.router.layer",
            "block_sparse_moe",
            "shared_mlp",
            "",
            "input_linear",
            "output_linear"};
  return {"mlp.gate",
          "mlp.experts.*",
          spec.family == Family::Qwen2Moe ? "mlp.shared_expert"
                                          : "mlp.shared_experts",
          "gate_proj",
          "up_proj",
          "down_proj"};
}

ModuleNames moduleNames(const ModelSpec &spec) {
  ModuleNames names;
  switch (spec.family) {
  case Family::Gpt2:
    names.embedding = "transformer.wte", names.layers = "transformer.h";
    names.norm = "transformer.ln_f";
    break;
  case Family::Bert:
    names.embedding = "embeddings.word_embeddings";
    names.layers = "encoder.layer";
    break;
  case Family::Gemma2:
  case Family::Gemma3:
    names.mlpNorm = "pre_feedforward_layernorm";
    break;
  case Family::Glm4:
    names.attentionPostNorm = "post_self_attn_layernorm";
    names.mlpPostNorm = "post_mlp_layernorm";
    break;
  case Family::StarCoder2:
    names.up = "mlp.c_fc", names.down = "mlp.c_proj";
    break;
  case Family::HunYuan:
    names.queryNorm = "self_attn.query_layernorm";
    names.keyNorm = "self_attn.key_layernorm";
    break;
  case Family::Mamba2:
    names.embedding = "backbone.embeddings", names.layers = "backbone.layers";
    names.norm = "backbone.norm_f", names.attentionNorm = "norm";
    break;
  case Family::GraniteHybrid:
    names.mixer = "mamba";
    names.gateUp = "shared_mlp.input_linear";
    names.down = "shared_mlp.output_linear";
    break;
  case Family::GptNeoX:
    names.embedding = "gpt_neox.embed_in", names.layers = "gpt_neox.layers";
    names.norm = "gpt_neox.final_layer_norm", names.head = "embed_out";
    names.qkv = "attention.query_key_value", names.output = "attention.dense";
    names.up = "mlp.dense_h_to_4h", names.down = "mlp.dense_4h_to_h";
    break;
  default:
    break;
  }
  return names;
}

std::string layerPrefix(const ModelSpec &spec, int64_t layer) {
  return fmt::format("{}.{}.", moduleNames(spec).layers, layer);
}

std::vector<std::string> checkpointNames(const ModelSpec &spec,
                                         std::string_view name) {
  std::vector<std::string> names{std::string(name)};
  constexpr std::string_view prefix = "transformer.";
  if (spec.family == Family::Gpt2 && name.substr(0, prefix.size()) == prefix)
    names.emplace_back(name.substr(prefix.size()));
  if (spec.family == Family::Bert)
    names.push_back(fmt::format("bert.{}", name));
  // As the first checkpoints have it.
  if (spec.family == Family::Mamba2 && name == "backbone.embeddings.weight")
    names.emplace_back("backbone.embedding.weight");
  return names;
}

std::string_view name(Family family) {
  switch (family) {
  case Family::Gpt2:
    return "gpt2";
  case Family::Llama:
    return "llama";
  case Family::Mistral:
    return "mistral";
  case Family::Qwen2:
    return "qwen2";
  case Family::Qwen3:
    return "qwen3";
  case Family::Mixtral:
    return "mixtral";
  case Family::Qwen2Moe:
    return "qwen2_moe";
  case Family::Qwen3Moe:
    return "qwen3_moe";
  case Family::Dots1:
    return "dots1";
  case Family::DeepseekV2:
    return "deepseek_v2";
  case Family::DeepseekV3:
    return "deepseek_v3";
  case Family::Gemma:
    return "gemma";
  case Family::Gemma2:
    return "gemma2";
  case Family::Gemma3:
    return "gemma3_text";
  case Family::Phi3:
    return "phi3";
  case Family::SmolLm3:
    return "smollm3";
  case Family::Granite:
    return "granite";
  case Family::Olmo2:
    return "olmo2";
  case Family::Olmo3:
    return "olmo3";
  case Family::Olmoe:
    return "olmoe";
  case Family::Glm:
    return "glm";
  case Family::Glm4:
    return "glm4";
  case Family::Cohere:
    return "cohere";
  case Family::Cohere2:
    return "cohere2";
  case Family::StarCoder2:
    return "starcoder2";
  case Family::StableLm:
    return "stablelm";
  case Family::Ernie45:
    return "ernie4_5";
  case Family::SeedOss:
    return "seed_oss";
  case Family::HunYuan:
    return "hunyuan_v1_dense";
  case Family::GptNeoX:
    return "gpt_neox";
  case Family::GptOss:
    return "gpt_oss";
  case Family::Mamba2:
    return "mamba2";
  case Family::GraniteHybrid:
    return "granitemoehybrid";
  case Family::Bert:
    return "bert";
  }
  assert(false && "every family has a name");
  return "";
}

std::string_view name(Activation activation) {
  switch (activation) {
  case Activation::Gelu:
    return "gelu";
  case Activation::GeluTanh:
    return "gelu_new";
  case Activation::QuickGelu:
    return "quick_gelu";
  case Activation::Silu:
    return "silu";
  case Activation::Relu:
    return "relu";
  }
  assert(false && "every activation has a name");
  return "";
}

std::string_view name(RopeType type) {
  switch (type) {
  case RopeType::Default:
    return "default";
  case RopeType::Linear:
    return "linear";
  case RopeType::Dynamic:
    return "dynamic";
  case RopeType::Yarn:
    return "yarn";
  case RopeType::LongRope:
    return "longrope";
  case RopeType::Llama3:
    return "llama3";
  }
  assert(false && "every rope type has a name");
  return "";
}

} // namespace tessera::models
