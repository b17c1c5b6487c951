// Every way in which a config.json's quantization_config can be refused.
#include "test/models/ConfigErrors.h"

namespace tessera::models {
namespace {

/// A quantization_config that is read, but for what is changed in it.
nlohmann::json stored(const nlohmann::json &weights,
                      const nlohmann::json &all = nlohmann::json::object()) {
  nlohmann::json each = {{"num_bits", 4},       {"type", "int"},
                         {"symmetric", true},   {"strategy", "group"},
                         {"group_size", 128},   {"dynamic", false},
                         {"actorder", nullptr}, {"observer", "minmax"}};
  if (!weights.empty())
    each.update(weights);
  nlohmann::json config = {{"quant_method", "compressed-tensors"},
                           {"format", "pack-quantized"},
                           {"quantization_status", "compressed"},
                           {"ignore", {"lm_head"}},
                           {"config_groups",
                            {{"group_0",
                              {{"targets", nlohmann::json::array({"Linear"})},
                               {"input_activations", nullptr},
                               {"weights", each}}}}}};
  config.update(all);
  return config;
}

/// What AutoAWQ writes, but for what is changed in it.
nlohmann::json awq(const nlohmann::json &changes) {
  nlohmann::json config = {
      {"quant_method", "awq"}, {"bits", 4},
      {"group_size", 128},     {"zero_point", true},
      {"version", "gemm"},     {"modules_to_not_convert", nullptr}};
  config.update(changes);
  return config;
}

TEST(HfStoredWeights, WhatIsNotRead) {
  expectAll({
      {"llama",
       {{"quantization_config", {{"quant_method", "hqq"}}}},
       "key 'quantization_config.quant_method': must be compressed-tensors, "
       "gptq or awq; other formats are not read, give the model in full "
       "precision"},
      {"llama",
       {{"quantization_config", awq({{"bits", 8}})}},
       "key 'quantization_config.bits': must be 4"},
      {"llama",
       {{"quantization_config", awq({{"group_size", -1}})}},
       "key 'quantization_config.group_size': must be between 1 and 65536, got "
       "-1"},
      {"llama",
       {{"quantization_config", awq({{"zero_point", false}})}},
       "key 'quantization_config.zero_point': false is not supported: with "
       "zero points only"},
      {"llama",
       {{"quantization_config", awq({{"version", "gemv"}})}},
       "key 'quantization_config.version': must be gemm; other orders are not "
       "read"},
      {"llama",
       {{"quantization_config", awq({{"backend", "llm-awq"}})}},
       "key 'quantization_config.backend': must be autoawq; other orders are "
       "not read"},
      {"llama",
       {{"quantization_config",
         awq({{"modules_to_not_convert", {"lm_head", "gate"}}})}},
       "key 'quantization_config.modules_to_not_convert': must be "
       "[\"lm_head\"], or nothing"},
      {"mixtral", // whose routers alone have such names
       {{"quantization_config", awq({{"modules_to_not_convert", {"gate"}}})},
        {"no_such_key", 1}},
       "key 'no_such_key': is unknown, so it may change the model; remove it "
       "if it does not"},
      {"mixtral",
       {{"quantization_config",
         stored({}, {{"ignore",
                      {"lm_head", "re:.*block_sparse_moe.gate$",
                       "model.layers.0.block_sparse_moe.gate"}}})},
        {"no_such_key", 1}},
       "key 'no_such_key': is unknown, so it may change the model; remove it "
       "if it does not"},
      {"llama",
       {{"quantization_config",
         {{"quant_method", "gptq"},
          {"bits", 4},
          {"group_size", 128},
          {"sym", false},
          {"checkpoint_format", "gptq_v2"}}}},
       "key 'quantization_config.checkpoint_format': must be gptq where sym is "
       "false: in gptq_v2 zero points are others"},
      {"llama",
       {{"quantization_config",
         {{"quant_method", "gptq"}, {"bits", 3}, {"group_size", 128}}}},
       "key 'quantization_config.bits': must be 4 or 8"},
      {"llama",
       {{"quantization_config",
         {{"quant_method", "gptq"},
          {"bits", 4},
          {"group_size", 128},
          {"desc_act", true}}}},
       "key 'quantization_config.desc_act': true is not supported: columns in "
       "their own order"},
      {"llama",
       {{"quantization_config", stored({})}, {"no_such_key", 1}},
       "key 'no_such_key': is unknown, so it may change the model; remove it "
       "if it does not"}, // and nothing else is wrong
      {"llama",
       {{"quantization_config", stored({{"num_bits", 3}})}},
       "key 'quantization_config.config_groups.group_0.weights.num_bits': must "
       "be 4 or 8"},
      {"llama",
       {{"quantization_config", stored({{"group_size", 16}})}},
       "key 'quantization_config.config_groups.group_0.weights.group_size': "
       "must be 32, 64 or 128"},
      {"llama",
       {{"quantization_config", stored({{"symmetric", 0}})}},
       "key 'quantization_config.config_groups.group_0.weights.symmetric': "
       "must be true or false, got 0"},
      {"llama",
       {{"quantization_config", stored({}, {{"format", "int-quantized"}})}},
       "key 'quantization_config.format': must be pack-quantized"},
      {"llama",
       {{"quantization_config",
         stored({}, {{"ignore", {"lm_head", "model.layers.0.mlp"}}})}},
       "key 'quantization_config.ignore': must be [\"lm_head\"], or nothing"},
      {"llama", // has no routers
       {{"quantization_config",
         stored({}, {{"ignore", {"lm_head", "model.layers.0.mlp.gate"}}})}},
       "key 'quantization_config.ignore': must be [\"lm_head\"], or nothing"},
      {"mixtral",
       {{"quantization_config",
         stored({}, {{"ignore", {"lm_head", "re:.*self_attn"}}})}},
       "key 'quantization_config.ignore': must be [\"lm_head\"], or nothing, "
       "beside routers"},
      {"llama",
       {{"tie_word_embeddings", false},
        {"quantization_config", stored({}, {{"ignore", json::array()}})}},
       "key 'quantization_config.ignore': lm_head must be in it: heads are "
       "read in 8 bits without zero points, or unpacked"},
      {"llama",
       {{"tie_word_embeddings", false},
        {"quantization_config", stored({{"num_bits", 8}, {"symmetric", false}},
                                       {{"ignore", json::array()}})}},
       "key 'quantization_config.ignore': lm_head must be in it: heads are "
       "read in 8 bits without zero points, or unpacked"},
      {"llama",
       {{"quantization_config",
         stored({}, {{"config_groups", nlohmann::json::object()}})}},
       "key 'quantization_config.config_groups': must have one group, "
       "group_0"},
  });
}

} // namespace
} // namespace tessera::models
