// Members of the Llama family that differ in their residual stream, norms,
// rotary layout or multipliers: published sizes, facts, and refused keys.
#include "test/models/ConfigErrors.h"

#include <algorithm>
#include <map>

namespace tessera::models {
namespace {

using Flags = std::vector<bool>;

// As the reference's classes count them for these configs, tied heads once.
TEST(ReadySpecs, OfMoreFamiliesHaveTheReferencesParameterCounts) {
  const std::map<std::string, int64_t> counts = {
      {"smollm3-3b", 3075098624},
      {"granite-3.3-2b", 2533539840},
      {"olmo-2-7b", 7298617344},
      {"olmo-3-7b", 7298011136},
      {"olmoe-1b-7b", 6919161856},
      {"glm-4-9b", 9399951360},
      {"glm-4-9b-0414", 9400094720},
      {"command-r-35b", 34980831232},
      {"command-r7b", 8028033024},
      {"starcoder2-3b", 3030371328},
      {"stablelm-2-1.6b", 1644515328},
      {"ernie-4.5-0.3b", 360748032},
      {"seed-oss-36b", 36151104512},
      {"hunyuan-0.5b", 539010048},
      {"pythia-160m", 162322944},
      {"gpt-oss-20b", 20914757184},
      {"gpt-oss-120b", 116829156672},
      {"deepseek-v2-lite", 15706484224},
      // With the biases of routers, which are no parameters there.
      {"deepseek-v3", 671026404352 + 58 * 256}};
  for (const auto &[name, count] : counts)
    EXPECT_EQ(parameterCount(readySpec(name)), count) << name;
}

TEST(ReadySpecs, SmolLm3) {
  ModelSpec spec = readySpec("smollm3-3b");
  EXPECT_EQ(std::ranges::count(spec.unrotated, true), 9);
  EXPECT_TRUE(spec.rotates(0));
  EXPECT_FALSE(spec.rotates(3));
  EXPECT_TRUE(spec.windows.empty() && spec.tieWordEmbeddings);
}

TEST(ReadySpecs, Deepseek) {
  ModelSpec lite = readySpec("deepseek-v2-lite"),
            large = readySpec("deepseek-v3");
  EXPECT_EQ(lite.latent->queryRank, 0);
  EXPECT_EQ(large.latent->queryRank, 1536);
  for (const ModelSpec &spec : {lite, large}) {
    EXPECT_EQ(spec.latent->cacheWidth(), 576);
    EXPECT_EQ(spec.headDim, 192);
    EXPECT_TRUE(spec.interleavedRope);
  }
  // (0.1 ln 40 + 1)^2 / sqrt(192), which the released code computes.
  EXPECT_NEAR(large.attentionScale(0), 0.1352337788608801, 1e-15);
  EXPECT_EQ(lite.moe->score, RouterScore::Softmax);
  EXPECT_EQ(lite.moe->sharedIntermediate, 2 * 1408);
  EXPECT_EQ(large.moe->chosenGroups, 4);
  EXPECT_EQ(large.moe->sparseLayers(), 58);
}

// As transformers' configuration classes have them.
TEST(HfConfig, MixerDefaults) {
  const ModelSpec mamba = mustRead("mamba2", {{"n_groups", 1}});
  const StateSpaceSpec &mixer = *mamba.stateSpace;
  EXPECT_EQ(mixer.kernel, 4);
  EXPECT_TRUE(mixer.convBias && !mixer.bias && !mixer.mostStep);
  EXPECT_EQ(mixer.initialSteps, std::pair(0.001, 0.1));
  EXPECT_EQ(mamba.initializerRange, 0.1);
  EXPECT_FALSE(mamba.tieWordEmbeddings || mamba.hasMlp());
  const ModelSpec granite = mustRead("granitemoehybrid");
  EXPECT_EQ(granite.stateSpace->recurrent,
            (std::vector<bool>{true, false, true, true}));
  EXPECT_EQ(granite.intermediate, 40);
  EXPECT_FALSE(granite.rotates(1) || granite.stateSpace->initialSteps);
  EXPECT_TRUE(
      mustRead("granitemoehybrid", {{"position_embedding_type", "rope"}})
          .rotates(1));
  // Some members have attention in all layers.
  const ModelSpec plain = mustRead(
      "granitemoehybrid",
      {{"layer_types", {"attention", "attention", "attention", "attention"}}});
  EXPECT_FALSE(plain.stateSpace || plain.isRecurrent(0));
  EXPECT_EQ(plain.intermediate, 40);
}

// Python's words for what JSON does not have, in both dialects.
TEST(HfConfig, StepLimits) {
  auto of = [](const std::string &limits) {
    json config = smallConfig("mamba2");
    std::string text = config.dump();
    text.back() = ',';
    return parseHfConfig(text + "\"time_step_limit\": " + limits + "}",
                         "config.json");
  };
  for (const char *each :
       {"[0.25, Infinity]", "[0.25, {\"__float__\": \"Infinity\"}]"}) {
    StatusOr<ModelSpec> spec = of(each);
    ASSERT_TRUE(spec.ok()) << spec.message();
    EXPECT_EQ(spec->stateSpace->leastStep, 0.25);
    EXPECT_FALSE(spec->stateSpace->mostStep);
  }
  EXPECT_EQ(of("[0, 0.5]")->stateSpace->mostStep, 0.5);
  for (const char *each : {"[Infinity, 1]", "[0.5, 0.5]", "[0.5]", "[0, -1]",
                           "0.5", "[0, \"Infinity\"]", "[0, -Infinity]"})
    EXPECT_FALSE(of(each).ok()) << each;
}

TEST(HfConfigErrors, Mixers) {
  expectAll({
      {"mamba2",
       {{"num_heads", 5}},
       "key 'num_heads': 5 heads of 8 are 40 wide, and expand × hidden_size "
       "is 48; correct one of them"},
      {"mamba2",
       {{"n_groups", 4}},
       "key 'n_groups': 4 does not divide num_heads = 6"},
      {"mamba2",
       {{"conv_kernel", 1}},
       "key 'conv_kernel': is 1, a convolution of one token; only kernels of 2 "
       "to 16 are supported"},
      {"mamba2",
       {{"time_step_limit", {1, 0.5}}},
       "key 'time_step_limit': has limits that are not in order"},
      {"mamba2",
       {{"time_step_limit", 1}},
       "key 'time_step_limit': is not a list of two limits from 0 on, of which "
       "the second may be Infinity"},
      {"mamba2",
       {{"time_step_min", 0.5}},
       "key 'time_step_min': 0.5 is more than time_step_max = 0.1"},
      {"mamba2",
       {{"time_step_floor", 0.5}},
       "key 'time_step_floor': 0.5 is more than time_step_min = 0.001, which "
       "is not supported"},
      {"mamba2",
       {{"state_size", 1 << 16},
        {"hidden_size", 1 << 20},
        {"num_heads", 1 << 14},
        {"head_dim", 128},
        {"n_groups", 64}},
       "key 'state_size': the convolution of 10485760 channels is wider than "
       "4194304"},
      {"granitemoehybrid",
       {{"num_local_experts", 4}, {"num_experts_per_tok", 5}},
       "key 'num_experts_per_tok': 5 of 4 experts"},
      {"granitemoehybrid",
       {{"layer_types", {"mamba", "attention"}}},
       "key 'layer_types': has 2 entries for 4 layers"},
      {"granitemoehybrid",
       {{"layer_types", {"mamba", "attention", "mamba", "conv"}}},
       "key 'layer_types': 'conv' is not supported; use mamba or attention"},
      {"granitemoehybrid",
       {{"position_embedding_type", "alibi"}},
       "key 'position_embedding_type': 'alibi' is not supported; use rope or "
       "nope"},
  });
}

// As transformers' configuration classes have them.
TEST(HfConfig, DeepseekDefaults) {
  const ModelSpec three =
      mustRead("deepseek_v3", {{"first_k_dense_replace", nullptr},
                               {"num_hidden_layers", 5},
                               {"n_routed_experts", 16},
                               {"n_group", nullptr},
                               {"topk_group", nullptr},
                               {"q_lora_rank", nullptr}}); // removes the keys
  EXPECT_EQ(three.moe->sparseLayers(), 2);
  EXPECT_EQ(three.moe->groups, 8);
  EXPECT_TRUE(three.moe->normalize && three.interleavedRope);
  EXPECT_EQ(three.latent->queryRank, 1536);
  EXPECT_EQ(mustRead("deepseek_v2", {{"first_k_dense_replace", nullptr}})
                .moe->sparseLayers(),
            3);
  nlohmann::json config = smallConfig("deepseek_v3");
  config.update({{"rope_interleave", nullptr}, {"norm_topk_prob", nullptr}});
  const auto nulls = parseHfConfig(config.dump(), "config.json");
  ASSERT_TRUE(nulls.ok()) << nulls.message();
  EXPECT_FALSE(nulls->interleavedRope || nulls->moe->normalize);
}

TEST(ReadySpecs, Granite) {
  ModelSpec spec = readySpec("granite-3.3-2b");
  EXPECT_EQ(spec.attentionScale(0), 0.015625);
  EXPECT_EQ(spec.residual.scale, 0.22);
  EXPECT_EQ(spec.embeddingScale, 12);
  EXPECT_EQ(spec.logitScale, 0.125);
}

TEST(ReadySpecs, Olmo) {
  for (const char *name : {"olmo-2-7b", "olmo-3-7b"}) {
    ModelSpec spec = readySpec(name);
    EXPECT_TRUE(spec.residual.postNorms && !spec.residual.preNorms) << name;
    EXPECT_EQ(spec.qkNorm, QkNorm::Width) << name;
  }
  ModelSpec three = readySpec("olmo-3-7b");
  EXPECT_EQ(three.window(2), 4096);
  EXPECT_EQ(three.window(3), 0);
  EXPECT_EQ(three.ropeOf(2).type, RopeType::Default);
  EXPECT_EQ(three.ropeOf(3).type, RopeType::Yarn);
  EXPECT_EQ(three.ropeOf(2).theta, 5e5);
  ModelSpec experts = readySpec("olmoe-1b-7b");
  EXPECT_EQ(experts.moe->sparseLayers(), 16);
  EXPECT_EQ(experts.moe->intermediate, 1024);
  EXPECT_FALSE(experts.moe->normalize);
}

TEST(ReadySpecs, Glm) {
  ModelSpec one = readySpec("glm-4-9b"), four = readySpec("glm-4-9b-0414");
  EXPECT_TRUE(one.interleavedRope && one.fusedGateUp && one.qkvBias);
  EXPECT_FALSE(one.outputBias || one.residual.postNorms || four.qkvBias);
  EXPECT_TRUE(four.residual.postNorms && four.residual.preNorms);
  EXPECT_EQ(four.rotaryDim, 64);
}

TEST(ReadySpecs, Cohere) {
  ModelSpec one = readySpec("command-r-35b"), two = readySpec("command-r7b");
  for (const ModelSpec &each : {one, two}) {
    EXPECT_EQ(each.residual.order, ResidualSpec::ParallelOneNorm);
    EXPECT_EQ(each.norm, NormKind::LayerNorm);
    EXPECT_FALSE(each.normBias);
  }
  EXPECT_TRUE(one.unrotated.empty() && one.windows.empty());
  EXPECT_TRUE(two.rotates(2) && !two.rotates(3));
  EXPECT_EQ(two.window(2), 4096);
  EXPECT_EQ(two.logitScale, 0.25);
}

TEST(ReadySpecs, LayerNormsAndPlainMlps) {
  ModelSpec coder = readySpec("starcoder2-3b"), neox = readySpec("pythia-160m");
  for (const ModelSpec &each : {coder, neox}) {
    EXPECT_EQ(each.norm, NormKind::LayerNorm);
    EXPECT_FALSE(each.gatedMlp);
    EXPECT_TRUE(each.normBias && each.qkvBias && each.outputBias &&
                each.mlpBias);
  }
  EXPECT_EQ(coder.window(0), 4096);
  EXPECT_EQ(coder.residualDropout, 0.1);
  EXPECT_EQ(neox.qkvLayout, QkvLayout::ByHead);
  EXPECT_EQ(neox.residual.order, ResidualSpec::Parallel);
  EXPECT_EQ(neox.rotaryDim, 16);
  EXPECT_EQ(neox.activation, Activation::Gelu);
  ModelSpec stable = readySpec("stablelm-2-1.6b");
  EXPECT_TRUE(stable.gatedMlp && stable.qkvBias && !stable.outputBias);
  EXPECT_EQ(stable.rotaryDim, 16);
}

TEST(ReadySpecs, GptOss) {
  ModelSpec spec = readySpec("gpt-oss-20b");
  EXPECT_TRUE(spec.attentionSinks && spec.qkvBias && spec.outputBias);
  EXPECT_EQ(spec.window(0), 128);
  EXPECT_EQ(spec.window(1), 0);
  EXPECT_EQ(spec.rope->type, RopeType::Yarn);
  EXPECT_FALSE(spec.rope->truncate);
  EXPECT_TRUE(spec.moe->fused && spec.moe->routerBias && spec.moe->normalize);
  EXPECT_EQ(spec.moe->swigluLimit, 7);
  EXPECT_EQ(spec.moe->experts, 32);
  EXPECT_EQ(spec.moe->chosen, 4);
  // OpenAI's model card says 3.6 B and 5.1 B, without the embedding.
  EXPECT_EQ(activeParameterCount(spec), 4187440704);
}

TEST(ReadySpecs, HunYuanHasAFixedBase) {
  ModelSpec spec = readySpec("hunyuan-0.5b");
  EXPECT_EQ(spec.qkNorm, QkNorm::AfterRope);
  EXPECT_EQ(spec.rope->alpha, 1000);
  EXPECT_EQ(spec.headDim, 128);
}

TEST(HfMembers, SmolLm3ListsItsRotatedLayers) {
  EXPECT_EQ(mustRead("smollm3", {{"no_rope_layer_interval", 2}}).unrotated,
            (Flags{false, true, false, true}));
  EXPECT_EQ(mustRead("smollm3", {{"no_rope_layers", {0, 1, 1, 1, 0}}})
                .unrotated, // of more layers than there are
            (Flags{true, false, false, false}));
  EXPECT_EQ(
      mustRead("smollm3", {{"use_sliding_window", true}, {"sliding_window", 8}})
          .windows,
      (std::vector<int64_t>{0, 0, 0, 8}));
}

TEST(HfMembers, DefaultsAreTheReferences) {
  EXPECT_EQ(mustRead("smollm3", {{"rope_theta", nullptr}}).rope->theta, 2e6);
  EXPECT_EQ(mustRead("olmo3", {{"rope_theta", nullptr}}).rope->theta, 5e5);
  EXPECT_EQ(mustRead("cohere", {{"rope_theta", nullptr}}).rope->theta, 5e5);
  EXPECT_EQ(mustRead("glm").normEps, 1.5625e-7);
  EXPECT_EQ(mustRead("glm").rotaryDim, 4);
  EXPECT_EQ(mustRead("stablelm").rotaryDim, 2);
  EXPECT_EQ(mustRead("seed_oss").attentionDropout, 0.1);
  EXPECT_EQ(mustRead("seed_oss").residualDropout, 0.1);
  EXPECT_EQ(mustRead("granite").attentionScale(0), 1.0);
  EXPECT_EQ(mustRead("cohere").logitScale, 0.0625);
  EXPECT_TRUE(mustRead("starcoder2").mlpBias);
  EXPECT_TRUE(mustRead("cohere2", {{"sliding_window", 8}}).tieWordEmbeddings);
}

TEST(HfMembers, NamesOfTensors) {
  auto has = [](const char *type, const char *name, const json &patch = {}) {
    std::vector<Parameter> all = parameters(mustRead(type, patch));
    return std::ranges::count(all, name, &Parameter::name) == 1;
  };
  EXPECT_TRUE(has("olmo2", "model.layers.3.post_feedforward_layernorm.weight"));
  EXPECT_FALSE(has("olmo2", "model.layers.3.input_layernorm.weight"));
  EXPECT_TRUE(has("glm4", "model.layers.0.post_self_attn_layernorm.weight"));
  EXPECT_TRUE(has("glm4", "model.layers.0.mlp.gate_up_proj.weight"));
  EXPECT_TRUE(has("cohere", "model.layers.0.input_layernorm.weight"));
  EXPECT_FALSE(has("cohere", "model.layers.0.input_layernorm.bias"));
  EXPECT_FALSE(has("cohere", "model.layers.0.post_attention_layernorm.weight"));
  EXPECT_TRUE(has("starcoder2", "model.layers.0.mlp.c_fc.bias"));
  EXPECT_TRUE(has("starcoder2", "model.norm.bias"));
  EXPECT_TRUE(has("hunyuan_v1_dense",
                  "model.layers.0.self_attn.query_layernorm.weight"));
  EXPECT_TRUE(
      has("gpt_neox", "gpt_neox.layers.2.attention.query_key_value.bias"));
  EXPECT_TRUE(has("gpt_neox", "gpt_neox.final_layer_norm.weight"));
  EXPECT_TRUE(has("olmoe", "model.layers.0.mlp.experts.*.up_proj.weight"));
  EXPECT_TRUE(has("gpt_neox", "embed_out.weight"));
  EXPECT_FALSE(
      has("gpt_neox", "embed_out.weight", {{"tie_word_embeddings", true}}));
}

TEST(HfMembersErrors, AreNamed) {
  expectAll({
      {"smollm3",
       {{"no_rope_layers", {1, 0}}},
       "key 'no_rope_layers': has 2 entries for 4 layers"},
      {"smollm3",
       {{"no_rope_layers", {1, 2, 1, 1}}},
       "key 'no_rope_layers': has 2 for layer 1; use 1 (rope) or 0"},
      {"granite",
       {{"logits_scaling", 0}},
       "key 'logits_scaling': must be between 1e-06 and 1000000, got 0"},
      {"olmoe",
       {{"clip_qkv", 8.0}},
       "key 'clip_qkv': 8.0 is not supported: queries, keys and values are "
       "not clipped here"},
      {"cohere",
       {{"use_qk_norm", true}},
       "key 'use_qk_norm': true is not supported: norms of queries and keys "
       "with a weight for each head are not supported"},
      {"cohere2",
       {{"position_embedding_type", "alibi"}},
       "key 'position_embedding_type': 'alibi' is not supported: this "
       "architecture has no such choice"},
      {"starcoder2",
       {{"mlp_type", "gated"}},
       "key 'mlp_type': 'gated' is not supported: this architecture has no "
       "such choice"},
      {"stablelm",
       {{"qk_layernorm", true}},
       "key 'qk_layernorm': true is not supported: norms of queries and keys "
       "with a weight for each head are not supported"},
      {"stablelm",
       {{"hidden_dropout", 0.1}},
       "key 'hidden_dropout': 0.1 is not supported: only attention_dropout "
       "is supported in this architecture"},
      {"glm",
       {{"partial_rotary_factor", 0.4}},
       "key 'partial_rotary_factor': 0.4 of head_dim = 8 is 3 elements; rope "
       "needs pairs"},
      {"gpt_neox",
       {{"num_key_value_heads", 2}},
       "key 'num_key_value_heads': this architecture has a key and a value "
       "for each query head"},
      {"gpt_neox",
       {{"partial_rotary_factor", 0.5}, {"rotary_pct", 0.25}},
       "key 'rotary_pct': 0.25 conflicts with 'partial_rotary_factor' = 0.5; "
       "keep one of the two"},
      {"gpt_oss",
       {{"hidden_act", "gelu"}},
       "key 'hidden_act': 'gelu' is not supported: this architecture has no "
       "such choice"},
      {"gpt_oss",
       {{"experts_per_token", 3}},
       "key 'experts_per_token': 3 conflicts with 'num_experts_per_tok' = 2; "
       "keep one of the two"},
      {"hunyuan_v1_dense",
       {{"attention_head_dim", 16}},
       "key 'attention_head_dim': 16 is not supported: conflicts with "
       "head_dim; correct one of the two"},
      {"llama",
       {{"rope_scaling",
         {{"type", "dynamic"}, {"factor", 1}, {"alpha", 1000}}}},
       "key 'rope_scaling.alpha': is unknown for rope type 'dynamic'; remove "
       "it if it has no effect"},
      {"olmo2",
       {{"embedding_multiplier", 2}},
       "key 'embedding_multiplier': is unknown, so it may change the model; "
       "remove it if it does not"},
  });
}

} // namespace
} // namespace tessera::models
