#include "models/HfConfig.h"
#include "test/parallelism/planner/Fixture.h"

#include <gtest/gtest.h>

namespace tessera::planner::test {
namespace {

// What the models' authors publish, to the digits that they do.
TEST(ModelShape, ParametersAsPublished) {
  EXPECT_EQ(specOf("llama-3-8b").parameters(), 8030261248);
  EXPECT_NEAR(double(specOf("llama-3.1-405b").parameters()), 405.9e9, 0.1e9);
  EXPECT_NEAR(double(specOf("mixtral-8x22b").parameters()), 140.6e9, 0.1e9);
  EXPECT_NEAR(double(specOf("mixtral-8x22b").activeParameters()), 39e9, 0.2e9);
  EXPECT_NEAR(double(specOf("qwen2-57b-a14b").parameters()), 57.4e9, 0.1e9);
  EXPECT_NEAR(double(specOf("deepseek-v3").parameters()), 671e9, 0.5e9);
  EXPECT_NEAR(double(specOf("deepseek-v3").activeParameters()), 37e9, 0.7e9);
  EXPECT_NEAR(double(specOf("megatron-1t").parameters()), 1008e9, 1e9);
}

// The compiler's own reader counts every tensor by name.
TEST(ModelShape, ParametersAsTheCompilerCountsThem) {
  for (const char *name : {"llama-3-8b", "llama-1b", "mistral-7b"}) {
    auto spec = models::loadHfConfig(
        std::string(TESSERA_SOURCE_DIR "/models/specs/") + name);
    ASSERT_TRUE(spec.ok()) << spec.message();
    EXPECT_EQ(specOf(name).parameters(), models::parameterCount(spec->spec))
        << name;
  }
}

// Biases and norms of heads and sub-layers are no part of a shape.
TEST(ModelShape, EveryDecoderThatTheCompilerBuilds) {
  for (const char *name :
       {"gemma-2-2b", "gemma-3-1b", "phi-3-mini", "smollm3-3b",
        "granite-3.3-2b", "olmo-3-7b", "olmoe-1b-7b", "glm-4-9b", "command-r7b",
        "starcoder2-3b", "stablelm-2-1.6b", "ernie-4.5-0.3b", "seed-oss-36b",
        "hunyuan-0.5b", "pythia-160m", "gpt-oss-20b", "gpt-oss-120b"}) {
    auto spec = models::loadHfConfig(
        std::string(TESSERA_SOURCE_DIR "/models/specs/") + name);
    ASSERT_TRUE(spec.ok()) << spec.message();
    const double counted = double(models::parameterCount(spec->spec));
    EXPECT_NEAR(double(specOf(name).parameters()), counted, 4e-3 * counted)
        << name;
  }
  const ModelShape shape = specOf("gpt-oss-20b");
  EXPECT_EQ(shape.window, 128);
  EXPECT_EQ(shape.fullLayers, shape.layers / 2);
  ModelShape unbounded = shape;
  unbounded.window = 0;
  EXPECT_LT(shape.flopsPerToken(4096), unbounded.flopsPerToken(4096));
  EXPECT_NEAR(double(shape.activeParameters()) / 1e9, 3.6, 0.2);
}

// 72 b L s h^2 (1 + s/6h + V/12hL) for b sequences (arXiv 2104.04473).
TEST(ModelShape, FlopsOfNarayanan) {
  ModelShape shape = classic(96, 12288, 96);
  double sequence = 2048, hidden = 12288, layers = 96, vocab = 51200;
  double expected =
      72 * layers * hidden * hidden *
      (1 + sequence / (6 * hidden) + vocab / (12 * hidden * layers));
  EXPECT_NEAR(shape.flopsPerToken(2048, true), expected, 1e-3 * expected);
  double causal = 72 * layers * hidden * hidden * sequence / (12 * hidden);
  EXPECT_NEAR(shape.flopsPerToken(2048, true) - shape.flopsPerToken(2048),
              causal, 1e-6 * causal);
}

TEST(ModelShape, WindowsBoundAttention) {
  ModelShape shape = specOf("mistral-7b");
  ASSERT_EQ(shape.window, 4096);
  ModelShape unbounded = shape;
  unbounded.window = 0;
  EXPECT_EQ(shape.flopsPerToken(4096), unbounded.flopsPerToken(4096));
  EXPECT_LT(shape.flopsPerToken(32768), unbounded.flopsPerToken(32768));
}

struct Refused {
  const char *text, *message;
};

TEST(ModelShape, ErrorsNameTheKey) {
  const Refused cases[] = {
      {R"({"model_type": "t5"})", "key 'model_type'"},
      {R"({"model_type": "bert", "vocab_size": 5, "hidden_size": 8,
           "num_hidden_layers": 1, "num_attention_heads": 2,
           "intermediate_size": 8, "max_position_embeddings": 8})",
       "key 'model_type': the planner plans training of decoders, and this is "
       "an encoder"},
      {R"({"model_type": "gemma", "vocab_size": 5, "hidden_size": 262144,
           "num_hidden_layers": 1, "num_attention_heads": 2,
           "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 8,
           "max_position_embeddings": 8})",
       "key 'hidden_size': 262144 is more than the planner's 131072"},
      {R"({"vocab_size": 5})", "key 'model_type'"},
      {R"({"model_type": "llama", "vocab_size": 5})",
       "key 'hidden_size' is missing"},
      {R"({"model_type": "gpt2", "vocab_size": 5, "n_embd": 10, "n_layer": 1,
           "n_head": 3, "n_positions": 8})",
       "key 'n_embd': 10 is not a multiple of n_head = 3"},
      {R"({"model_type": "llama", "vocab_size": 5, "hidden_size": 8,
           "num_hidden_layers": 1, "num_attention_heads": 4,
           "num_key_value_heads": 3, "max_position_embeddings": 8,
           "intermediate_size": 8})",
       "key 'num_attention_heads': 4 is not a multiple of "
       "num_key_value_heads = 3"},
      {R"({"model_type": "llama", "vocab_size": 5, "hidden_size": 9,
           "num_hidden_layers": 1, "num_attention_heads": 4,
           "max_position_embeddings": 8, "intermediate_size": 8})",
       "give head_dim"},
      {R"({"model_type": "llama", "vocab_size": 5, "hidden_size": 8,
           "num_hidden_layers": 1, "num_attention_heads": 4,
           "max_position_embeddings": 8})",
       "key 'intermediate_size': is missing"},
      {R"({"model_type": "mixtral", "vocab_size": 5, "hidden_size": 8,
           "num_hidden_layers": 1, "num_attention_heads": 4,
           "max_position_embeddings": 8, "intermediate_size": 8,
           "num_local_experts": 2, "num_experts_per_tok": 3})",
       "key 'num_experts_per_tok': 3 is more than there are experts, 2"},
      {R"({"model_type": "qwen3_moe", "vocab_size": 5, "hidden_size": 8,
           "num_hidden_layers": 1, "num_attention_heads": 4,
           "max_position_embeddings": 8, "num_experts": 2,
           "moe_intermediate_size": 4, "num_experts_per_tok": 1,
           "decoder_sparse_step": 2})",
       "key 'decoder_sparse_step': 2 is not supported"},
      {R"({"model_type": "deepseek_v3", "vocab_size": 5, "hidden_size": 8,
           "num_hidden_layers": 1, "num_attention_heads": 4,
           "max_position_embeddings": 8, "kv_lora_rank": 4,
           "qk_rope_head_dim": 2, "qk_nope_head_dim": 2, "v_head_dim": 2,
           "n_routed_experts": 4, "moe_intermediate_size": 4, "n_group": 2,
           "topk_group": 2, "n_shared_experts": 1, "num_experts_per_tok": 1,
           "num_nextn_predict_layers": 65, "intermediate_size": 4})",
       "key 'num_nextn_predict_layers': must be between 1 and 64, got 65"},
      {R"({"model_type": "llama", "vocab_size": 99999999999})",
       "key 'vocab_size'"},
      {"[]", "file"},
  };
  for (const Refused &each : cases) {
    auto shape = parseModelShape(each.text, "file");
    ASSERT_FALSE(shape.ok()) << each.text;
    EXPECT_NE(shape.message().find(each.message), std::string::npos)
        << shape.message();
  }
}

} // namespace
} // namespace tessera::planner::test
