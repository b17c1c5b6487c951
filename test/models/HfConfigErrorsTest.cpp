// Every way in which a config.json can be refused, with the whole line.
#include "test/models/ConfigErrors.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace tessera::models {
namespace {

#define SUPPORTED                                                              \
  "gpt2, llama, mistral, qwen2, qwen3, mixtral, qwen2_moe, qwen3_moe, "        \
  "dots1, deepseek_v2, deepseek_v3, gemma, gemma2, gemma3_text, phi3, "        \
  "smollm3, granite, olmo2, olmo3, "                                           \
  "olmoe, glm, glm4, cohere, cohere2, starcoder2, stablelm, ernie4_5, "        \
  "seed_oss, hunyuan_v1_dense, gpt_neox, gpt_oss, mamba2, "                    \
  "granitemoehybrid or bert"

json rope(json section) { return {{"rope_scaling", std::move(section)}}; }

TEST(HfConfigErrors, GemmaAndPhi) {
  expectAll({
      {"gemma2",
       {{"attn_logit_softcapping", 0}},
       "key 'attn_logit_softcapping': must be between 0.001 and 1000000, got "
       "0"},
      {"gemma",
       {{"hidden_act", "silu"}},
       "key 'hidden_act': activation 'silu' is not supported; use "
       "gelu_pytorch_tanh"},
      {"gemma3_text",
       {{"sliding_window", 8},
        {"rope_parameters",
         {{"full_attention", {{"rope_theta", 1e6}}},
          {"sliding_attention", {{"rope_theta", 1e4}}}}}},
       "key 'rope_theta': 10000 conflicts with 1000000 in 'rope_parameters'; "
       "keep one of the two"},
      {"phi3",
       {{"partial_rotary_factor", 0.4}},
       "key 'partial_rotary_factor': 0.4 of head_dim = 8 is 3 elements; rope "
       "needs pairs"},
      {"phi3",
       {{"resid_pdrop", 0.1}},
       "key 'resid_pdrop': 0.1 is not supported: only attention_dropout is "
       "supported in this architecture"},
  });
}

TEST(HfConfigErrors, Architecture) {
  expectAll({
      {"gpt2",
       {{"model_type", "vit"}},
       "key 'model_type': architecture 'vit' is not supported; use " SUPPORTED
       ""},
      {"gpt2",
       {{"model_type", nullptr}},
       "key 'model_type': is missing; add it"},
      {"gpt2",
       {{"model_type", 2}},
       "key 'model_type': must be a string, got 2"},
      {"llama",
       {{"architectures", {"LlamaForTokenClassification"}}},
       "key 'architectures': 'LlamaForTokenClassification' is not "
       "supported; use the causal language model of " SUPPORTED
       " (for BERT, the encoder)"},
      {"bert",
       {{"architectures", {"BertForTokenClassification"}}},
       "key 'architectures': 'BertForTokenClassification' is not "
       "supported; use the causal language model of " SUPPORTED
       " (for BERT, the encoder)"},
      {"gpt2",
       {{"architectures", {""}}},
       "key 'architectures': '' is not "
       "supported; use the causal language model of " SUPPORTED
       " (for BERT, the encoder)"},
      {"llama",
       {{"architectures", {"MistralForCausalLM"}}},
       "key 'architectures': 'MistralForCausalLM' conflicts with model_type "
       "'llama'; correct one of the two"},
      {"llama",
       {{"model_type", nullptr},
        {"architectures", {"LlamaModel", "Qwen2Model"}}},
       "key 'architectures': 'Qwen2Model' conflicts with another entry; "
       "correct one of the two"},
      {"llama",
       {{"architectures", "LlamaModel"}},
       "key 'architectures': must be a list of strings, got 'LlamaModel'"},
      {"llama",
       {{"architectures", json::array({1})}},
       "key 'architectures': must be a list of strings, got a list of 1"},
  });
}

TEST(HfConfigErrors, Bert) {
  expectAll({
      {"bert",
       {{"position_embedding_type", "relative_key"}},
       "key 'position_embedding_type': 'relative_key' is not supported: "
       "positions are a learned table here"},
      {"bert",
       {{"is_decoder", true}},
       "key 'is_decoder': true is not supported: encoder only"},
      {"bert",
       {{"add_cross_attention", true}},
       "key 'add_cross_attention': true is not supported: encoder only"},
      {"bert",
       {{"num_attention_heads", 5}},
       "key 'hidden_size': 24 is not a multiple of num_attention_heads = 5"},
      {"bert",
       {{"type_vocab_size", 0}},
       "key 'type_vocab_size': must be between 1 and 1048576, got 0"},
      {"bert",
       {{"architectures", {"BertForSequenceClassification"}}},
       "key 'id2label': a classifier of 2 labels is not supported, only the "
       "one score of a reward model or reranker"},
      {"bert",
       {{"architectures", {"BertForSequenceClassification"}},
        {"num_labels", 1},
        {"type_vocab_size", 1}},
       "key 'type_vocab_size': a cross-encoder needs 2 token types, one for "
       "each of a pair"},
      {"bert",
       {{"matryoshka_dimensions", {8, 25}}},
       "key 'matryoshka_dimensions': 25 is not a width in [1, 24]"},
      {"bert",
       {{"rope_theta", 1e4}},
       "key 'rope_theta': is unknown, so it may change the model; remove it if "
       "it "
       "does not"},
  });
}

TEST(HfConfigErrors, Sizes) {
  expectAll({
      {"gpt2", {{"n_embd", nullptr}}, "key 'n_embd' is missing; add it"},
      {"gpt2",
       {{"n_head", 0}},
       "key 'n_head': must be between 1 and 16384, got 0"},
      {"gpt2",
       {{"n_layer", -1}},
       "key 'n_layer': must be between 1 and 4096, got -1"},
      {"gpt2",
       {{"vocab_size", 50257.0}},
       "key 'vocab_size': must be an integer, got 50257.0"},
      {"gpt2",
       {{"vocab_size", true}},
       "key 'vocab_size': must be an integer, got true"},
      {"gpt2",
       {{"vocab_size", "50257"}},
       "key 'vocab_size': must be an integer, got '50257'"},
      {"gpt2",
       {{"vocab_size", UINT64_MAX}},
       "key 'vocab_size': must be between 1 and 16777216, got "
       "18446744073709551615"},
      {"gpt2",
       {{"n_embd", 25}},
       "key 'n_embd': 25 is not a multiple of n_head = 3"},
      {"gpt2",
       {{"hidden_size", 32}},
       "key 'hidden_size': 32 conflicts with 'n_embd' = 24; keep one of the "
       "two"},
      {"llama",
       {{"num_key_value_heads", 4}},
       "key 'num_attention_heads': 6 is not a multiple of num_key_value_heads "
       "= 4"},
      {"qwen2",
       {{"num_key_value_heads", nullptr}},
       "key 'num_key_value_heads' is missing; add it"},
      {"llama",
       {{"head_dim", nullptr}, {"hidden_size", 25}},
       "key 'hidden_size': 25 is not a multiple of num_attention_heads = 6; "
       "correct one or give head_dim"},
      {"llama",
       {{"head_dim", 7}},
       "key 'head_dim': 7 is odd; rope needs pairs"},
      {"llama",
       {{"head_dim", 65536},
        {"num_attention_heads", 256},
        {"num_key_value_heads", 1}},
       "key 'head_dim': 256 heads of 65536 are wider than 4194304"},
  });
}

TEST(HfConfigErrors, ValuesThatChangeTheModel) {
  expectAll({
      {"gpt2",
       {{"activation_function", "mish"}},
       "key 'activation_function': activation 'mish' is not supported; use "
       "gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, quick_gelu, silu, swish "
       "or relu"},
      {"gpt2",
       {{"add_cross_attention", true}},
       "key 'add_cross_attention': true is not supported: decoder only"},
      {"gpt2",
       {{"scale_attn_weights", 1}},
       "key 'scale_attn_weights': must be true or false, got 1"},
      {"gpt2", {{"attn_pdrop", 1.0}}, "key 'attn_pdrop': must be less than 1"},
      {"gpt2",
       {{"resid_pdrop", -0.1}},
       "key 'resid_pdrop': must be between 0 and 1, got -0.1"},
      {"gpt2",
       {{"layer_norm_epsilon", 0}},
       "key 'layer_norm_epsilon': must be between 1e-20 and 1, got 0"},
      {"llama",
       {{"rms_norm_eps", "1e-5"}},
       "key 'rms_norm_eps': must be a number, got '1e-5'"},
      {"llama",
       {{"auto_map", {{"AutoModel", "x.Y"}}}},
       "key 'auto_map': a section of 1 is not supported: the model has its "
       "own code, which may compute something else; remove the key if it does "
       "not"},
      {"llama",
       {{"partial_rotary_factor", 0.5}},
       "key 'partial_rotary_factor': 0.5 is not supported: rope covers the "
       "whole head in these families"},
      {"llama",
       {{"dtype", "float8_e4m3fn"}},
       "key 'dtype': 'float8_e4m3fn' is not supported; use float32, bfloat16 "
       "or float16"},
      {"llama",
       {{"dtype", "float32"}, {"torch_dtype", "bfloat16"}},
       "key 'torch_dtype': 'bfloat16' conflicts with 'dtype' = 'float32'; "
       "keep one of the two"},
      {"mistral",
       {{"attention_bias", true}},
       "key 'attention_bias': true is not supported: this architecture fixes "
       "its biases"},
      {"qwen2",
       {{"attention_bias", false}},
       "key 'attention_bias': false is not supported: this architecture fixes "
       "its biases"},
      {"qwen3",
       {{"mlp_bias", true}},
       "key 'mlp_bias': true is not supported: this architecture fixes its "
       "biases"},
      {"llama",
       {{"eos_token_id", {1, "</s>"}}},
       "key 'eos_token_id': must be an integer, got '</s>'"},
      {"llama",
       {{"logit_scale", 0.0625}},
       "key 'logit_scale': is unknown, so it may change the model; remove it "
       "if it does not"},
      {"llama",
       {{"rms_norm_epz", 1e-5}},
       "key 'rms_norm_epz': is unknown, did you mean 'rms_norm_eps'?"},
  });
}

TEST(HfConfigErrors, Windows) {
  expectAll({
      {"llama",
       {{"sliding_window", 64}},
       "key 'sliding_window': 64 is not supported: this architecture attends "
       "to the whole past"},
      {"mistral",
       {{"use_sliding_window", true}},
       "key 'use_sliding_window': true is not supported: this architecture "
       "has no such setting"},
      {"qwen2",
       {{"layer_types", {"full_attention"}}},
       "key 'layer_types': has 1 entries for 4 layers"},
      {"qwen2",
       {{"layer_types", json(4, "chunked_attention")}},
       "key 'layer_types': 'chunked_attention' is not supported; use "
       "full_attention or sliding_attention"},
      {"qwen2",
       {{"layer_types", json(4, "sliding_attention")}},
       "key 'layer_types': layer 0 slides but the model has no sliding "
       "window; correct one of the two"},
      {"mistral",
       {{"sliding_window", 8}, {"layer_types", json(4, "full_attention")}},
       "key 'layer_types': layer 0 does not slide, but 'mistral' models slide "
       "in every layer or in none"},
      {"qwen3",
       {{"use_sliding_window", true}, {"sliding_window", 0}},
       "key 'sliding_window': must be between 1 and 134217728, got 0"},
      {"qwen3",
       {{"max_window_layers", -1}},
       "key 'max_window_layers': must be between 1 and 4096, got -1"},
  });
}

TEST(HfConfigErrors, Rope) {
  json llama3 = {{"rope_type", "llama3"},
                 {"factor", 8},
                 {"low_freq_factor", 4},
                 {"high_freq_factor", 4},
                 {"original_max_position_embeddings", 64}};
  expectAll({
      {"llama", rope({{"rope_type", "mrope"}}),
       "key 'rope_scaling.rope_type': 'mrope' is not supported; use default, "
       "linear, dynamic, yarn, longrope or llama3"},
      {"llama", rope({{"rope_type", "linear"}, {"type", "yarn"}}),
       "key 'rope_scaling.type': 'yarn' conflicts with 'rope_type' = "
       "'linear'; keep one of the two"},
      {"llama", rope({{"type", "linear"}}),
       "key 'rope_scaling.factor' is missing; add it"},
      {"llama", rope({{"type", "linear"}, {"factor", 0.5}}),
       "key 'rope_scaling.factor': must be between 1 and 1000000, got 0.5"},
      {"llama", rope({{"type", "linear"}, {"factor", 2}, {"beta_fast", 32}}),
       "key 'rope_scaling.beta_fast': is unknown for rope type 'linear'; "
       "remove it if it has no effect"},
      {"llama", rope(llama3),
       "key 'rope_scaling.high_freq_factor': 4 must be greater than "
       "low_freq_factor = 4"},
      {"llama",
       rope({{"type", "yarn"},
             {"factor", 2},
             {"beta_fast", 1},
             {"beta_slow", 2}}),
       "key 'rope_scaling.beta_fast': 1 is less than beta_slow = 2"},
      {"llama",
       rope({{"type", "longrope"},
             {"original_max_position_embeddings", 32},
             {"short_factor", {1, 1, 1}},
             {"long_factor", {1, 1, 1, 1}}}),
       "key 'rope_scaling.short_factor': has 3 entries, head_dim / 2 is 4"},
      {"llama",
       rope({{"type", "longrope"}, {"original_max_position_embeddings", 32}}),
       "key 'rope_scaling.short_factor' is missing; add it"},
      {"llama",
       rope({{"type", "longrope"},
             {"original_max_position_embeddings", 32},
             {"short_factor", 1}}),
       "key 'rope_scaling.short_factor': must be a list of numbers, got 1"},
      {"llama",
       {{"rope_scaling", 2.0}},
       "key 'rope_scaling': must be a section {...} or null, got 2.0"},
      {"llama",
       {{"rope_theta", 1.0}},
       "key 'rope_theta': must be between 1.0001 and 1000000000000000, got "
       "1.0"},
      {"llama",
       {{"original_max_position_embeddings", 32}},
       "key 'original_max_position_embeddings': has no meaning for rope type "
       "'default'; remove it"},
  });
  json conflict = rope(llama3);
  conflict["rope_scaling"]["high_freq_factor"] = 8;
  conflict["original_max_position_embeddings"] = 32;
  expectAll({{"llama", conflict,
              "key 'rope_scaling.original_max_position_embeddings': 64 "
              "conflicts with 32 outside the section; keep one of the two"}});
  expectAll({{"llama",
              {{"head_dim", 2},
               {"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}}},
              "key 'rope_scaling.rope_type': 'dynamic' requires at least "
              "4 rotated elements of a head"}});
}

TEST(HfConfigErrors, DialectsThatDisagree) {
  json sections = {
      {"rope_parameters", {{"rope_type", "linear"}, {"factor", 2}}},
      {"rope_scaling", {{"type", "linear"}, {"factor", 4}}}};
  expectAll({
      {"llama",
       {{"rope_parameters", {{"rope_theta", 5e5}}}},
       "key 'rope_theta': 10000 conflicts with 'rope_parameters.rope_theta' = "
       "500000; keep one of the two"},
      {"llama", rope({{"type", "default"}, {"rope_theta", 5e5}}),
       "key 'rope_theta': 10000 conflicts with 'rope_scaling.rope_theta' = "
       "500000; keep one of the two"},
      {"llama", sections,
       "key 'rope_scaling': conflicts with 'rope_parameters'; keep one of the "
       "two"},
  });
}

std::string parseError(std::string_view text) {
  StatusOr<ModelSpec> spec = parseHfConfig(text, "config.json");
  return spec.ok() ? "" : spec.message();
}

TEST(HfConfigErrors, Text) {
  EXPECT_EQ(parseError("{\"model_type\": \"gpt2\",\n \"n_head\": 3,\n "
                       "\"n_head\": 4}"),
            "config.json: duplicate key 'n_head'; keep one");
  EXPECT_EQ(parseError("[1, 2]"),
            "config.json: is a list of 2, expected a JSON object {...}");
  EXPECT_EQ(parseError("7"), "config.json: is 7, expected a JSON object {...}");
  EXPECT_EQ(parseError(std::string(10000, '[')),
            "config.json: nests deeper than 32 levels");
  EXPECT_EQ(parseError("{\"a\":\n  nan}").substr(0, 39),
            "config.json:2:4: is not valid JSON: syn");
  for (const char *broken :
       {"", "{", "{\"a\" 1}", "{\"a\": 1} x", "{\"a\": \"\xff\"}",
        "{\"a\": 1e999}", "{'a': 1}", "{\"a\": 1,}"}) {
    std::string message = parseError(broken);
    EXPECT_TRUE(message.starts_with("config.json:1:")) << message;
    EXPECT_EQ(message.find('\n'), message.npos);
  }
}

TEST(HfConfigErrors, HostileTextStaysOnOneLine) {
  std::string message =
      parseError("{\"model_type\": \"a\\nb" + std::string(500, 'x') + "\"}");
  EXPECT_EQ(message.find('\n'), message.npos);
  EXPECT_NE(message.find("a\\x0ab"), message.npos);
  EXPECT_LT(message.size(), 460u);
}

TEST(HfConfigErrors, Files) {
  std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "tessera-config-errors";
  std::filesystem::create_directories(folder / "config.json");
  EXPECT_EQ(loadHfConfig("/no/such/place").message(),
            "/no/such/place: No such file or directory");
  EXPECT_EQ(loadHfConfig(folder.string()).message(),
            (folder / "config.json").string() + ": is not a regular file");
  std::string big = (folder / "big.json").string();
  std::ofstream(big) << std::string((1 << 20) + 1, ' ');
  EXPECT_EQ(loadHfConfig(big).message(),
            big + ": larger than 1048576 bytes, which no such file is; check "
                  "the path");
  std::filesystem::remove_all(folder);
}

TEST(HfConfigErrors, Experts) {
  expectAll({
      {"mixtral",
       {{"num_local_experts", nullptr}},
       "key 'num_local_experts' is missing; add it"},
      {"mixtral",
       {{"num_experts_per_tok", 6}},
       "key 'num_experts_per_tok': 6 of 5 experts"},
      {"mixtral",
       {{"router_jitter_noise", 0.1}},
       "key 'router_jitter_noise': 0.1 is not supported: routers are not noisy "
       "here"},
      {"qwen2_moe",
       {{"num_experts", 16384}, {"moe_intermediate_size", 4194304}},
       "key 'moe_intermediate_size': 16384 experts of 4194304 are wider than "
       "67108864 in all"},
      {"qwen2_moe",
       {{"mlp_only_layers", {0, 3}}},
       "key 'mlp_only_layers': has layer 3 of 3 layers"},
      {"qwen3_moe",
       {{"use_sliding_window", true}},
       "key 'use_sliding_window': true is not supported: versions of this "
       "architecture disagree about which layers slide"},
      {"qwen3_moe",
       {{"decoder_sparse_step", 0}},
       "key 'decoder_sparse_step': must be between 1 and 4096, got 0"},
      {"dots1",
       {{"n_group", 3}},
       "key 'n_group': 3 groups of 8 experts; each must have the same number "
       "of experts, at least 2"},
      {"dots1",
       {{"n_group", 8}},
       "key 'n_group': 8 groups of 8 experts; each must have the same number "
       "of experts, at least 2"},
      {"dots1",
       {{"topk_group", 5}},
       "key 'topk_group': 5 of 4 groups do not have the 2 experts of a token"},
      {"dots1",
       {{"topk_group", 1}, {"num_experts_per_tok", 3}},
       "key 'topk_group': 1 of 4 groups do not have the 3 experts of a token"},
      {"dots1",
       {{"n_shared_experts", 16384}, {"moe_intermediate_size", 4096}},
       "key 'n_shared_experts': 16384 shared experts of 4096 are wider than "
       "4194304"},
      {"dots1",
       {{"scoring_func", "softmax"}},
       "key 'scoring_func': 'softmax' is not supported; use sigmoid"},
      {"deepseek_v2",
       {{"topk_method", "noaux_tc"}},
       "key 'topk_method': 'noaux_tc' is not supported; use greedy or "
       "group_limited_greedy"},
      {"deepseek_v2",
       {{"topk_method", "group_limited_greedy"}, {"n_group", 4}},
       "key 'topk_group' is missing; add it"},
      {"deepseek_v2",
       {{"mlp_bias", true}},
       "key 'mlp_bias': true is not supported: this architecture fixes its "
       "biases"},
      {"deepseek_v2",
       {{"norm_topk_prob", true}},
       "key 'norm_topk_prob': true is not supported: this architecture does "
       "not normalize weights"},
      {"dots1",
       {{"topk_method", "greedy"}},
       "key 'topk_method': 'greedy' is not supported: this architecture "
       "uses noaux_tc"},
  });
}

TEST(HfConfigErrors, LatentAttention) {
  expectAll({
      {"deepseek_v3",
       {{"num_key_value_heads", 2}},
       "key 'num_key_value_heads': 2 must be num_attention_heads = 6 in latent "
       "attention"},
      {"deepseek_v3",
       {{"qk_rope_head_dim", 3}},
       "key 'qk_rope_head_dim': 3 is odd; rope needs pairs"},
      {"deepseek_v3",
       {{"head_dim", 8}},
       "key 'head_dim': 8 is not supported: it must be qk_rope_head_dim in "
       "this architecture"},
      {"deepseek_v3",
       {{"qk_head_dim", 12}},
       "key 'qk_head_dim': 12 is not supported: it must be qk_nope_head_dim + "
       "qk_rope_head_dim"},
      {"deepseek_v3",
       {{"num_attention_heads", 128},
        {"num_key_value_heads", 128},
        {"v_head_dim", 65536}},
       "key 'num_attention_heads': 128 heads of 65542 are wider than 4194304"},
      {"deepseek_v2",
       {{"kv_lora_rank", 0}},
       "key 'kv_lora_rank': must be between 1 and 1048576, got 0"},
  });
}

} // namespace
} // namespace tessera::models
