// Small valid configs and the means to bend them.
#pragma once
#include <string>

#include <nlohmann/json.hpp>

#include "models/HfConfig.h"

namespace tessera::models {

/// The same for models with experts.
inline nlohmann::json smallMoeConfig(const std::string &modelType) {
  nlohmann::json config = {{"model_type", modelType},
                           {"vocab_size", 96},
                           {"hidden_size", 24},
                           {"intermediate_size", 40},
                           {"num_hidden_layers", 3},
                           {"num_attention_heads", 6},
                           {"num_key_value_heads", 2},
                           {"head_dim", 8},
                           {"max_position_embeddings", 64},
                           {"rope_theta", 10000.0},
                           {"num_experts_per_tok", 2}};
  if (modelType == "mixtral" || modelType == "gpt_oss")
    config["num_local_experts"] = 5;
  else if (modelType != "olmoe")
    config["moe_intermediate_size"] = 12;
  if (modelType.ends_with("_moe") || modelType == "olmoe")
    config["num_experts"] = 6;
  if (modelType == "qwen2_moe")
    config["shared_expert_intermediate_size"] = 20;
  if (modelType == "gpt_oss")
    config.update({{"sliding_window", 3}, {"rope_scaling", nullptr}});
  if (modelType == "dots1")
    config.update({{"n_routed_experts", 8},
                   {"n_shared_experts", 2},
                   {"first_k_dense_replace", 1},
                   {"n_group", 4},
                   {"topk_group", 2},
                   {"routed_scaling_factor", 2.5},
                   {"norm_topk_prob", true}});
  if (modelType.starts_with("deepseek")) {
    config.update({{"n_routed_experts", 8},
                   {"n_shared_experts", 2},
                   {"first_k_dense_replace", 1},
                   {"num_key_value_heads", 6},
                   {"q_lora_rank", 10},
                   {"kv_lora_rank", 14},
                   {"qk_nope_head_dim", 6},
                   {"qk_rope_head_dim", 4},
                   {"v_head_dim", 8}});
    config.erase("head_dim");
  }
  if (modelType == "deepseek_v3")
    config.update({{"n_group", 4}, {"topk_group", 2}});
  return config;
}

/// A valid config of `modelType` with sizes small enough to count by hand.
inline nlohmann::json smallConfig(const std::string &modelType) {
  if (modelType == "gpt2")
    return {{"model_type", "gpt2"}, {"vocab_size", 96}, {"n_positions", 32},
            {"n_embd", 24},         {"n_layer", 2},     {"n_head", 3}};
  if (modelType == "mamba2")
    return {{"model_type", "mamba2"}, {"vocab_size", 96}, {"hidden_size", 24},
            {"num_hidden_layers", 2}, {"num_heads", 6},   {"head_dim", 8},
            {"state_size", 5},        {"n_groups", 3}};
  if (modelType == "granitemoehybrid")
    return {{"model_type", "granitemoehybrid"},
            {"vocab_size", 96},
            {"hidden_size", 24},
            {"intermediate_size", 16},
            {"shared_intermediate_size", 40},
            {"num_local_experts", 0},
            {"num_experts_per_tok", 0},
            {"num_hidden_layers", 4},
            {"layer_types", {"mamba", "attention", "mamba", "mamba"}},
            {"num_attention_heads", 6},
            {"num_key_value_heads", 2},
            {"mamba_n_heads", 4},
            {"mamba_d_head", 12},
            {"mamba_d_state", 7},
            {"max_position_embeddings", 64}};
  if (modelType == "bert")
    return {{"model_type", "bert"},   {"vocab_size", 96},
            {"hidden_size", 24},      {"intermediate_size", 40},
            {"num_hidden_layers", 2}, {"num_attention_heads", 3},
            {"type_vocab_size", 2},   {"max_position_embeddings", 64},
            {"layer_norm_eps", 1e-12}};
  if (modelType == "mixtral" || modelType.ends_with("_moe") ||
      modelType.starts_with("deepseek") || modelType == "dots1" ||
      modelType == "olmoe" || modelType == "gpt_oss")
    return smallMoeConfig(modelType);
  const int kvHeads = modelType == "gpt_neox" ? 6 : 2;
  return {{"model_type", modelType},
          {"vocab_size", 96},
          {"hidden_size", 24},
          {"intermediate_size", 40},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 6},
          {"num_key_value_heads", kvHeads},
          {"head_dim", 8},
          {"sliding_window", nullptr},
          {"max_position_embeddings", 64},
          {"rope_theta", 10000.0}};
}

/// `patch` as RFC 7386: a null removes the key.
inline StatusOr<ModelSpec> readPatched(const std::string &modelType,
                                       const nlohmann::json &patch) {
  nlohmann::json config = smallConfig(modelType);
  config.merge_patch(patch);
  return parseHfConfig(config.dump(), "config.json");
}

inline ModelSpec mustRead(const std::string &modelType,
                          const nlohmann::json &patch = {}) {
  StatusOr<ModelSpec> spec = readPatched(
      modelType, patch.is_null() ? nlohmann::json::object() : patch);
  if (!spec.ok())
    throw std::runtime_error(spec.message());
  return *spec;
}

/// A spec of models/specs by name.
inline ModelSpec readySpec(const std::string &name) {
  StatusOr<LoadedConfig> loaded =
      loadHfConfig(std::string(TESSERA_SOURCE_DIR "/models/specs/") + name);
  if (!loaded.ok())
    throw std::runtime_error(loaded.message());
  return loaded->spec;
}

} // namespace tessera::models
