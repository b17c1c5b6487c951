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
       "gptq, awq, fp8, fbgemm_fp8 or mxfp4; for others use the model "
       "in full precision"},
      {"llama",
       {{"quantization_config", {{"quant_method", "gguf"}}}},
       "key 'quantization_config.types': is missing"},
      {"llama",
       {{"quantization_config",
         {{"quant_method", "gguf"}, {"types", {{"w", "Q5_1"}}}}}},
       "key 'quantization_config.types': no kernel reads the type of 'w'; give "
       "the GGUF file itself"},
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
       "supported"},
      {"llama",
       {{"quantization_config", awq({{"backend", "llm-awq"}})}},
       "key 'quantization_config.backend': must be autoawq; other orders are "
       "not supported"},
      {"llama",
       {{"quantization_config",
         awq({{"modules_to_not_convert", {"lm_head", "gate"}}})}},
       "key 'quantization_config.modules_to_not_convert': must be "
       "[\"lm_head\"] or empty"},
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
       "key 'quantization_config.checkpoint_format': must be gptq if sym is "
       "false: gptq_v2 encodes zero points differently"},
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
       "key 'quantization_config.format': must be pack-quantized or "
       "float-quantized"},
      {"llama",
       {{"quantization_config",
         stored({}, {{"ignore", {"lm_head", "model.layers.0.mlp"}}})}},
       "key 'quantization_config.ignore': must be [\"lm_head\"] or empty"},
      {"llama", // has no routers
       {{"quantization_config",
         stored({}, {{"ignore", {"lm_head", "model.layers.0.mlp.gate"}}})}},
       "key 'quantization_config.ignore': must be [\"lm_head\"] or empty"},
      {"mixtral",
       {{"quantization_config",
         stored({}, {{"ignore", {"lm_head", "re:.*self_attn"}}})}},
       "key 'quantization_config.ignore': must be [\"lm_head\"] or empty, "
       "apart from routers"},
      {"deepseek_v3",
       {{"quantization_config", stored({})}},
       "key 'quantization_config.ignore': kv_b_proj must be left out: latent "
       "attention does not read it from integers; use fp8 or full precision"},
      {"deepseek_v3",
       {{"quantization_config", stored({}, {{"ignore",
                                             {"lm_head", "re:.*kv_b_proj$",
                                              "model.layers.1.mlp.gate"}}})},
        {"no_such_key", 1}},
       "key 'no_such_key': is unknown, so it may change the model; remove it "
       "if it does not"},
      {"deepseek_v2",
       {{"quantization_config",
         awq({{"modules_to_not_convert", {"kv_b_proj"}}})},
        {"no_such_key", 1}},
       "key 'no_such_key': is unknown, so it may change the model; remove it "
       "if it does not"},
      {"llama",
       {{"tie_word_embeddings", false},
        {"quantization_config", stored({}, {{"ignore", json::array()}})}},
       "key 'quantization_config.ignore': must contain lm_head: heads are "
       "supported in 8 bits without zero points, or in full precision"},
      {"llama",
       {{"tie_word_embeddings", false},
        {"quantization_config", stored({{"num_bits", 8}, {"symmetric", false}},
                                       {{"ignore", json::array()}})}},
       "key 'quantization_config.ignore': must contain lm_head: heads are "
       "supported in 8 bits without zero points, or in full precision"},
      {"llama",
       {{"quantization_config",
         stored({}, {{"config_groups", nlohmann::json::object()}})}},
       "key 'quantization_config.config_groups': must have one group, "
       "group_0"},
  });
}

/// DeepSeek-V3's and Qwen3's, but for what is changed in it.
nlohmann::json fp8(const nlohmann::json &changes) {
  nlohmann::json config = {
      {"quant_method", "fp8"},           {"fmt", "e4m3"},
      {"activation_scheme", "dynamic"},  {"weight_block_size", {128, 128}},
      {"modules_to_not_convert", {"a"}}, {"scale_fmt", "ue8m0"}};
  if (!changes.empty())
    config.update(changes);
  return config;
}

/// llm-compressor's, but for what is changed in its weights and it.
nlohmann::json floats(const nlohmann::json &weights,
                      const nlohmann::json &all = nlohmann::json::object()) {
  nlohmann::json each = {{"num_bits", 8},         {"type", "float"},
                         {"strategy", "channel"}, {"group_size", nullptr},
                         {"actorder", nullptr},   {"dynamic", false},
                         {"observer", "minmax"}};
  if (!weights.empty())
    each.update(weights);
  nlohmann::json config = stored({}, {{"format", "float-quantized"}});
  nlohmann::json &group = config["config_groups"]["group_0"];
  group["weights"] = each;
  group["input_activations"] = {{"dynamic", true}, {"strategy", "token"}};
  if (!all.empty())
    config.update(all);
  return config;
}

// Weights that are bf16 once they are read, so that nothing is stored in
// integers.
TEST(HfStoredWeights, FloatsOf8BitsAreNoIntegers) {
  for (const nlohmann::json &each :
       {fp8({}), fp8({{"weight_block_size", nullptr}}),
        fp8({{"activation_scheme", "static"}, {"ignored_layers", {"lm_head"}}}),
        nlohmann::json{{"quant_method", "fbgemm_fp8"},
                       {"activation_scale_ub", 1200.0},
                       {"modules_to_not_convert", {"lm_head"}}},
        floats({}), floats({{"strategy", "tensor"}}),
        floats({{"strategy", "group"}, {"group_size", 64}}),
        floats({{"strategy", "block"}, {"block_structure", {128, 128}}}),
        floats({{"strategy", "block"}, {"block_structure", "128x128"}}),
        floats({}, {{"ignore", {"re:.*mlp.*", "lm_head"}},
                    {"sparsity_config", {{"format", "dense"}}}})}) {
    json config = smallConfig("llama");
    config["quantization_config"] = each;
    auto loaded = loadedConfig(config.dump(), "config.json");
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    EXPECT_FALSE(loaded->stored) << each;
  }
}

// Experts of gpt-oss are executed as stored, but those that are left out, and
// none if rows are not whole blocks.
TEST(HfStoredWeights, ExpertsInMxfp4) {
  auto layoutsOf = [](int64_t width, const nlohmann::json &leftOut) {
    nlohmann::json config = smallConfig("gpt_oss");
    config["hidden_size"] = 64;
    config["intermediate_size"] = width;
    config["quantization_config"] = {{"quant_method", "mxfp4"},
                                     {"modules_to_not_convert", leftOut}};
    auto loaded = loadedConfig(config.dump(), "config.json");
    EXPECT_TRUE(loaded.ok()) << loaded.message();
    return loaded.ok() ? loaded->layouts
                       : std::map<std::string, QuantizedLayout>();
  };
  const auto layouts = layoutsOf(96, {"model.layers.*.mlp.router", "lm_head"});
  EXPECT_GE(layouts.size(), 2U);
  EXPECT_EQ(layouts.size() % 2, 0U);
  auto down = layouts.find("model.layers.0.mlp.experts.down_proj");
  ASSERT_TRUE(down != layouts.end());
  EXPECT_TRUE(down->second.mxfp4());
  EXPECT_TRUE(layoutsOf(40, nullptr).empty());
  EXPECT_FALSE(layoutsOf(96, nullptr).empty());
  for (const char *module : {"model.layers.0.mlp.experts", "model.layers.0",
                             "model.layers.0.mlp.experts.down_proj"}) {
    const auto others = layoutsOf(96, {module});
    EXPECT_LT(others.size(), layouts.size()) << module;
    EXPECT_FALSE(others.contains("model.layers.0.mlp.experts.down_proj"));
    EXPECT_TRUE(others.contains("model.layers.1.mlp.experts.down_proj"));
  }
  EXPECT_TRUE(layoutsOf(96, {"model.layers.*.mlp"}).empty());
  EXPECT_EQ(layoutsOf(96, {"model.layers.0.mlp.exp", "layers.0"}), layouts);
}

// Groups that a base in fp8 has; none if a linear layer is not in fp8, or if a
// group would have two scales.
TEST(HfStoredWeights, GroupsOfFloats) {
  const std::pair<nlohmann::json, int64_t> cases[] = {
      {fp8({{"modules_to_not_convert",
             {"lm_head", "model.layers.0.input_layernorm"}}}),
       128},
      {fp8({{"modules_to_not_convert", nullptr},
            {"weight_block_size", {128, 192}}}),
       64},
      {fp8({{"modules_to_not_convert", nullptr},
            {"weight_block_size", {128, 48}}}),
       0},
      {fp8({}), 0},
      {floats({}), 128},
      {floats({{"strategy", "group"}, {"group_size", 32}}), 32},
      {floats({}, {{"ignore", {"re:.*mlp.*"}}}), 0}};
  for (const auto &[each, group] : cases) {
    json config = smallConfig("llama");
    config["quantization_config"] = each;
    auto loaded = loadedConfig(config.dump(), "config.json");
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    EXPECT_EQ(loaded->floats ? loaded->floats->group : 0, group) << each;
  }
}

TEST(HfStoredWeights, WhichFloatsAreNotRead) {
  const std::string weights =
      "key 'quantization_config.config_groups.group_0.weights.";
  const std::string bits = weights + "num_bits': must be 8, with the type "
                                     "float",
                    strategy = weights + "strategy': must be tensor, channel, "
                                         "group or block",
                    missing = weights + "strategy': is block, which requires a "
                                        "block_structure",
                    group = weights + "group_size': must be rows and columns "
                                      "of a block, at least 1 and 16, at most "
                                      "1048576",
                    structure = weights + "block_stru...': must be rows and "
                                          "columns of a block, at least 1 and "
                                          "16, at most 1048576",
                    noGroup = weights + "strategy': is group, which requires a "
                                        "group_size";
  expectAll({
      {"llama",
       {{"quantization_config", fp8({{"fmt", "e5m2"}})}},
       "key 'quantization_config.fmt': must be e4m3, the only supported "
       "8-bit float; use the model in full precision"},
      {"llama",
       {{"quantization_config", fp8({{"weight_block_size", {128, 0}}})}},
       "key 'quantization_config.weight_block_size': must be rows and columns "
       "of a block, at least 1 and 16, at most 1048576"},
      {"llama",
       {{"quantization_config", fp8({{"weight_block_size", {128, 1 << 21}}})}},
       "key 'quantization_config.weight_block_size': must be rows and columns "
       "of a block, at least 1 and 16, at most 1048576"},
      {"llama",
       {{"quantization_config",
         floats({{"strategy", "block"}, {"block_structure", "128x128junk"}})}},
       structure.c_str()},
      {"llama",
       {{"quantization_config",
         floats({{"strategy", "block"}, {"block_structure", {128, 8}}})}},
       structure.c_str()},
      {"llama",
       {{"quantization_config", floats({{"strategy", "group"}})}},
       noGroup.c_str()},
      {"llama",
       {{"quantization_config", fp8({{"rotated", true}})}},
       "key 'quantization_config.rotated': is unknown, so it may change the "
       "weights"},
      {"llama",
       {{"quantization_config",
         {{"quant_method", "fbgemm_fp8"}, {"rotated", true}}}},
       "key 'quantization_config.rotated': is unknown, so it may change the "
       "weights"},
      {"llama",
       {{"quantization_config", floats({{"num_bits", 4}})}},
       bits.c_str()},
      {"llama",
       {{"quantization_config", floats({{"strategy", "tensor_group"}})}},
       strategy.c_str()},
      {"llama",
       {{"quantization_config", floats({{"strategy", "block"}})}},
       missing.c_str()},
      {"llama",
       {{"quantization_config",
         floats({{"strategy", "group"}, {"group_size", 8}})}},
       group.c_str()},
      {"llama",
       {{"quantization_config",
         floats({}, {{"kv_cache_scheme", {{"num_bits", 8}}}})}},
       "key 'quantization_config.kv_cache_scheme': a section of 1 is not "
       "supported: weights only"},
      {"llama",
       {{"quantization_config",
         floats({}, {{"sparsity_config", {{"format", "sparse-24"}}}})}},
       "key 'quantization_config.sparsity_config': must be dense"},
  });
}

} // namespace
} // namespace tessera::models
