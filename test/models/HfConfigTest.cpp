// Golden facts: what the public checkpoints of each family are known to be.
#include "models/RewardHead.h"
#include "test/models/ConfigFixture.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

namespace tessera::models {
namespace {

using nlohmann::json;

// Parameter counts as the model cards and the checkpoints' own tensors have
// them; tied heads counted once.
TEST(ReadySpecs, HaveThePublishedParameterCounts) {
  const std::map<std::string, int64_t> published = {
      {"gpt2-124m", 124439808},
      {"gpt2-350m", 354823168},
      {"llama-1b", 1235814400},
      {"llama-3-8b", 8030261248},
      {"mistral-7b", 7241732096},
      {"qwen2-0.5b", 494032768},
      {"qwen3-0.6b", 596049920},
      {"qwen3-8b", 8190735360},
      {"gemma-2-2b", 2614341888},
      {"gemma-3-1b", 999885952},
      {"phi-3-mini", 3821079552},
      {"mixtral-8x7b", 46702792704},
      {"qwen3-30b-a3b", 30532122624},
      // Its 22713216 without the pooler's, of which no vector has anything.
      {"minilm-l6", 22713216 - 384 * 385}};
  for (const auto &[name, count] : published)
    EXPECT_EQ(parameterCount(readySpec(name)), count) << name;
}

// What a token meets, as their reports round it: "12.9B", "3.3B".
TEST(ReadySpecs, WithExpertsHaveThePublishedActiveParameters) {
  EXPECT_NEAR(double(activeParameterCount(readySpec("mixtral-8x7b"))) / 1e9,
              12.9, 0.05);
  EXPECT_NEAR(double(activeParameterCount(readySpec("qwen3-30b-a3b"))) / 1e9,
              3.3, 0.06);
  ModelSpec dense = readySpec("llama-1b");
  EXPECT_EQ(activeParameterCount(dense), parameterCount(dense));
}

TEST(ReadySpecs, OfOurOwnAreWhatTheirNamesSay) {
  const std::map<std::string, double> millions = {
      {"tiny-gpt2", 1},         {"gpt2-demo", 4.3},
      {"gpt2-10m", 10},         {"llama-15m", 15},
      {"llama-110m", 110},      {"tiny-mixtral", 2.3},
      {"tiny-qwen-moe", 1.9},   {"tiny-deepseek-moe", 1.6},
      {"tiny-deepseek-v3", 1.5}};
  for (const auto &[name, size] : millions)
    EXPECT_NEAR(double(parameterCount(readySpec(name))) / 1e6, size,
                size * 0.06)
        << name;
}

TEST(ReadySpecs, MiniLm) {
  ModelSpec spec = readySpec("minilm-l6");
  EXPECT_EQ(spec.family, Family::Bert);
  EXPECT_TRUE(spec.isEncoder());
  EXPECT_EQ(spec.headDim, 32);
  EXPECT_EQ(spec.tokenTypes, 2);
  EXPECT_EQ(spec.normEps, 1e-12);
  EXPECT_EQ(spec.activation, Activation::Gelu); // by erf
  EXPECT_EQ(checkpointNames(spec, "embeddings.LayerNorm.bias"),
            (std::vector<std::string>{"embeddings.LayerNorm.bias",
                                      "bert.embeddings.LayerNorm.bias"}));
}

TEST(HfConfig, BertsOfTheHub) {
  // Keys as early checkpoints have them.
  ModelSpec spec = mustRead("bert", {{"architectures", {"BertForMaskedLM"}},
                                     {"directionality", "bidi"},
                                     {"pooler_fc_size", 768},
                                     {"pooler_type", "first_token_transform"},
                                     {"position_embedding_type", "absolute"},
                                     {"classifier_dropout", nullptr},
                                     {"gradient_checkpointing", false},
                                     {"use_cache", true}});
  EXPECT_TRUE(spec.vectorCuts.empty());
  EXPECT_FALSE(spec.cutsAnywhere);
  spec = mustRead("bert", {{"is_matryoshka", true}});
  EXPECT_TRUE(spec.cutsAnywhere);
  spec = mustRead(
      "bert", {{"is_matryoshka", true}, {"matryoshka_dimensions", {16, 8}}});
  EXPECT_FALSE(spec.cutsAnywhere);
  EXPECT_EQ(spec.vectorCuts, (std::vector<int64_t>{8, 16}));
}

TEST(ReadySpecs, Gpt2) {
  ModelSpec spec = readySpec("gpt2-124m");
  EXPECT_EQ(spec.family, Family::Gpt2);
  EXPECT_EQ(spec.headDim, 64);
  EXPECT_EQ(spec.kvHeads, 12);
  EXPECT_EQ(spec.intermediate, 3072); // n_inner null: 4 n_embd
  EXPECT_EQ(spec.norm, NormKind::LayerNorm);
  EXPECT_EQ(spec.activation, Activation::GeluTanh);
  EXPECT_TRUE(spec.tieWordEmbeddings && spec.qkvBias && spec.outputBias &&
              spec.mlpBias);
  EXPECT_FALSE(spec.gatedMlp || spec.rope);
  EXPECT_EQ(spec.qkNorm, QkNorm::None);
  EXPECT_EQ(spec.attentionDropout, 0.1);
  EXPECT_EQ(spec.eosTokens, std::vector<int64_t>{50256});
  EXPECT_DOUBLE_EQ(spec.attentionScale(5), 0.125);
}

TEST(ReadySpecs, Llama) {
  ModelSpec spec = readySpec("llama-1b");
  EXPECT_EQ(spec.family, Family::Llama);
  EXPECT_EQ(spec.kvHeads, 8);
  EXPECT_EQ(spec.queryWidth(), 2048);
  EXPECT_EQ(spec.keyValueWidth(), 512);
  EXPECT_EQ(spec.norm, NormKind::RmsNorm);
  EXPECT_EQ(spec.activation, Activation::Silu);
  EXPECT_TRUE(spec.gatedMlp && spec.tieWordEmbeddings);
  EXPECT_FALSE(spec.qkvBias || spec.outputBias || spec.mlpBias);
  EXPECT_EQ(spec.qkNorm, QkNorm::None);
  EXPECT_EQ(spec.rope->type, RopeType::Llama3);
  EXPECT_EQ(spec.rope->theta, 500000.0);
  EXPECT_EQ(spec.rope->factor, 32.0);
  EXPECT_EQ(spec.rope->originalMaxPosition, 8192);
  EXPECT_EQ(spec.checkpointDtype, "bfloat16");
  EXPECT_TRUE(spec.windows.empty());
}

TEST(ReadySpecs, Mistral) {
  ModelSpec spec = readySpec("mistral-7b");
  EXPECT_EQ(spec.headDim, 128); // derived
  EXPECT_EQ(spec.windows, std::vector<int64_t>(32, 4096));
}

TEST(ReadySpecs, Qwen) {
  ModelSpec two = readySpec("qwen2-0.5b");
  EXPECT_TRUE(two.qkvBias);
  EXPECT_FALSE(two.outputBias);
  EXPECT_EQ(two.qkNorm, QkNorm::None);
  EXPECT_TRUE(two.windows.empty()); // sliding_window stands, its switch is off
  ModelSpec three = readySpec("qwen3-0.6b");
  EXPECT_EQ(three.qkNorm, QkNorm::Head);
  EXPECT_FALSE(three.qkvBias);
  EXPECT_EQ(three.headDim, 128); // given; hidden / heads would be 64
  EXPECT_EQ(three.queryWidth(), 2048);
  EXPECT_EQ(three.rope->theta, 1e6);
}

TEST(ReadySpecs, Gemma) {
  ModelSpec two = readySpec("gemma-2-2b");
  EXPECT_TRUE(two.normPlusOne && two.residual.postNorms &&
              two.tieWordEmbeddings);
  EXPECT_FALSE(two.localRope);
  EXPECT_EQ(two.qkNorm, QkNorm::None);
  EXPECT_EQ(two.embeddingScale, 48);
  EXPECT_EQ(two.scoreCap, 50);
  EXPECT_EQ(two.logitCap, 30);
  EXPECT_EQ(two.attentionScale(0), 1.0 / 16);
  EXPECT_EQ(two.window(0), 4096);
  EXPECT_EQ(two.window(1), 0);
  ModelSpec three = readySpec("gemma-3-1b");
  EXPECT_TRUE(three.normPlusOne && three.residual.postNorms);
  EXPECT_EQ(three.qkNorm, QkNorm::Head);
  EXPECT_FALSE(three.scoreCap || three.logitCap);
  EXPECT_EQ(three.window(4), 512);
  EXPECT_EQ(three.window(5), 0);
  EXPECT_EQ(three.ropeOf(4).theta, 1e4);
  EXPECT_EQ(three.ropeOf(5).theta, 1e6);
  EXPECT_EQ(three.activation, Activation::GeluTanh);
}

TEST(ReadySpecs, Phi3) {
  ModelSpec spec = readySpec("phi-3-mini");
  EXPECT_TRUE(spec.fusedGateUp);
  EXPECT_EQ(spec.qkvLayout, QkvLayout::Fused);
  EXPECT_EQ(spec.rotaryDim, 0);
  EXPECT_EQ(spec.windows, std::vector<int64_t>(32, 2047));
}

TEST(HfConfig, Gemma2CapsUnlessTheyAreNull) {
  ModelSpec absent = mustRead("gemma2");
  EXPECT_EQ(absent.scoreCap, 50);
  EXPECT_EQ(absent.logitCap, 30);
  nlohmann::json config = smallConfig("gemma2");
  config["attn_logit_softcapping"] = nullptr;
  StatusOr<ModelSpec> none = parseHfConfig(config.dump(), "config.json");
  ASSERT_TRUE(none.ok()) << none.message();
  EXPECT_FALSE(none->scoreCap);
  EXPECT_EQ(none->logitCap, 30);
  // "gelu" means its tanh form here.
  EXPECT_EQ(mustRead("gemma", {{"hidden_act", "gelu"}}).activation,
            Activation::GeluTanh);
}

TEST(HfConfig, Gemma3HasARopeForEachTypeOfLayer) {
  nlohmann::json old = {{"sliding_window", 8},
                        {"rope_theta", 5e5},
                        {"rope_local_base_freq", 2e4},
                        {"rope_scaling",
                         {{"rope_type", "linear"}, {"factor", 8}}}},
                 sections = {{"full_attention",
                              {{"rope_type", "linear"},
                               {"factor", 8},
                               {"rope_theta", 5e5}}},
                             {"sliding_attention", {{"rope_theta", 2e4}}}};
  nlohmann::json now = {{"sliding_window", 8},
                        {"rope_theta", nullptr},
                        {"rope_parameters", sections}};
  ModelSpec spec = mustRead("gemma3_text", old);
  EXPECT_EQ(spec, mustRead("gemma3_text", now));
  EXPECT_EQ(spec.rope->factor, 8);
  EXPECT_EQ(spec.localRope->theta, 2e4);
  EXPECT_EQ(spec.localRope->type, RopeType::Default);
  EXPECT_FALSE(mustRead("gemma3_text").localRope); // no layer has a window
}

TEST(HfConfig, Phi3TurnsAShareOfEachHead) {
  EXPECT_EQ(mustRead("phi3", {{"partial_rotary_factor", 0.75}}).rotaryDim, 6);
  nlohmann::json section = {{"rope_type", "default"},
                            {"rope_theta", 1e4},
                            {"partial_rotary_factor", 0.5}};
  EXPECT_EQ(mustRead("phi3", {{"rope_parameters", section}}).rotaryDim, 4);
  section = {{"type", "su"},
             {"short_factor", {1, 1, 1, 1}},
             {"long_factor", {2, 2, 2, 2}}};
  ModelSpec spec = mustRead(
      "phi3", {{"rope_scaling", section}, {"max_position_embeddings", 8192}});
  EXPECT_EQ(spec.rope->type, RopeType::LongRope);
  EXPECT_EQ(spec.rope->originalMaxPosition, 4096); // the reference's default
  EXPECT_EQ(spec.rope->factor, 2);
  // As on the hub.
  nlohmann::json code = {{"AutoConfig", "configuration_phi3.Phi3Config"}};
  EXPECT_TRUE(readPatched("phi3", {{"auto_map", code}}).ok());
}

TEST(ReadySpecs, Mixtral) {
  ModelSpec spec = readySpec("mixtral-8x7b");
  ASSERT_TRUE(spec.moe);
  EXPECT_EQ(spec.moe->experts, 8);
  EXPECT_EQ(spec.moe->chosen, 2);
  EXPECT_EQ(spec.moe->intermediate, 14336);
  EXPECT_EQ(spec.moe->score, RouterScore::Softmax);
  EXPECT_TRUE(spec.moe->normalize);
  EXPECT_FALSE(spec.moe->sharedIntermediate || spec.moe->selectionBias);
  EXPECT_EQ(spec.moe->sparseLayers(), 32);
  EXPECT_TRUE(spec.windows.empty());
}

TEST(HfConfig, MixtralDefaultsDifferFromMistrals) {
  ModelSpec spec = mustRead("mixtral", {{"rope_theta", nullptr}});
  EXPECT_EQ(spec.rope->theta, 1e6);
  EXPECT_EQ(spec.normEps, 1e-5);
  EXPECT_TRUE(spec.windows.empty()); // absent means none
  EXPECT_EQ(mustRead("mixtral", {{"sliding_window", 8}}).window(2), 8);
}

TEST(HfConfig, QwenSaysWhichLayersHaveExperts) {
  using Layers = std::vector<bool>;
  EXPECT_EQ(mustRead("qwen2_moe").moe->sparse, (Layers{true, true, true}));
  EXPECT_EQ(mustRead("qwen2_moe", {{"decoder_sparse_step", 2}}).moe->sparse,
            (Layers{false, true, false}));
  EXPECT_EQ(mustRead("qwen3_moe", {{"mlp_only_layers", {0, 2}}}).moe->sparse,
            (Layers{false, true, false}));
  EXPECT_FALSE(mustRead("qwen3_moe", {{"mlp_only_layers", {0, 1, 2}}}).moe);
  ModelSpec two = mustRead("qwen2_moe"), three = mustRead("qwen3_moe");
  EXPECT_EQ(two.moe->sharedIntermediate, 20);
  EXPECT_TRUE(two.moe->sharedGate && two.qkvBias);
  EXPECT_FALSE(two.moe->normalize);
  EXPECT_EQ(two.qkNorm, QkNorm::None);
  EXPECT_EQ(three.moe->sharedIntermediate, 0);
  EXPECT_EQ(three.qkNorm, QkNorm::Head);
  EXPECT_FALSE(three.qkvBias);
  // A window stands there, its switch is off.
  EXPECT_TRUE(mustRead("qwen2_moe", {{"sliding_window", 8}}).windows.empty());
}

TEST(HfConfig, Dots1RoutesAsDeepSeekDoes) {
  ModelSpec spec = mustRead("dots1");
  ASSERT_TRUE(spec.moe);
  EXPECT_EQ(spec.moe->score, RouterScore::Sigmoid);
  EXPECT_TRUE(spec.moe->selectionBias && spec.moe->normalize);
  EXPECT_EQ(spec.qkNorm, QkNorm::Head);
  EXPECT_EQ(spec.moe->groups, 4);
  EXPECT_EQ(spec.moe->chosenGroups, 2);
  EXPECT_EQ(spec.moe->scale, 2.5);
  EXPECT_EQ(spec.moe->sharedIntermediate, 24);
  EXPECT_EQ(spec.moe->sparse, (std::vector<bool>{false, true, true}));
  EXPECT_TRUE(spec.windows.empty()); // they begin at layer 62
  EXPECT_EQ(mustRead("dots1", {{"max_window_layers", 1}, {"sliding_window", 8}})
                .windows,
            (std::vector<int64_t>{0, 8, 8}));
}

TEST(HfConfig, DefaultsAreTheReferences) {
  ModelSpec gpt2 = mustRead("gpt2");
  EXPECT_EQ(gpt2.normEps, 1e-5);
  EXPECT_EQ(gpt2.embeddingDropout, 0.1);
  EXPECT_EQ(gpt2.initializerRange, 0.02);
  EXPECT_TRUE(gpt2.tieWordEmbeddings && gpt2.scaleAttention);

  ModelSpec llama = mustRead("llama", {{"num_key_value_heads", nullptr},
                                       {"max_position_embeddings", nullptr},
                                       {"head_dim", nullptr},
                                       {"rope_theta", nullptr}});
  EXPECT_EQ(llama.kvHeads, 6);
  EXPECT_EQ(llama.headDim, 4);
  EXPECT_EQ(llama.maxPositions, 2048);
  EXPECT_EQ(llama.normEps, 1e-6);
  EXPECT_EQ(llama.rope->theta, 10000.0);
  EXPECT_FALSE(llama.tieWordEmbeddings);
  EXPECT_EQ(mustRead("qwen3", {{"head_dim", nullptr}}).headDim, 128);
}

TEST(HfConfig, MistralWindowIsNullAware) {
  EXPECT_EQ(mustRead("mistral", {{"sliding_window", 16}}).window(3), 16);
  // A null in the patch takes the key away.
  EXPECT_EQ(mustRead("mistral", {{"sliding_window", nullptr}}).window(0), 4096);
  json config = smallConfig("mistral"); // holds sliding_window: null
  StatusOr<ModelSpec> spec = parseHfConfig(config.dump(), "config.json");
  ASSERT_TRUE(spec.ok()) << spec.message();
  EXPECT_TRUE(spec->windows.empty());
}

TEST(HfConfig, QwenWindowsFollowTheirSwitch) {
  json on = {{"use_sliding_window", true},
             {"sliding_window", 16},
             {"max_window_layers", 3}};
  EXPECT_EQ(mustRead("qwen2", on).windows, (std::vector<int64_t>{0, 0, 0, 16}));
  on["max_window_layers"] = 0;
  EXPECT_EQ(mustRead("qwen3", on).windows, std::vector<int64_t>(4, 16));
  on["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                       "sliding_attention"};
  EXPECT_EQ(mustRead("qwen3", on).windows,
            (std::vector<int64_t>{16, 0, 0, 16}));
  on["use_sliding_window"] = false;
  on.erase("layer_types");
  EXPECT_TRUE(mustRead("qwen2", on).windows.empty());
}

TEST(HfConfig, BiasesByFamily) {
  ModelSpec llama =
      mustRead("llama", {{"attention_bias", true}, {"mlp_bias", true}});
  EXPECT_TRUE(llama.qkvBias && llama.outputBias && llama.mlpBias);
  ModelSpec qwen3 = mustRead("qwen3", {{"attention_bias", true}});
  EXPECT_TRUE(qwen3.qkvBias && qwen3.outputBias);
  EXPECT_FALSE(qwen3.mlpBias);
}

TEST(HfConfig, ActivationsByName) {
  const std::map<std::string, Activation> names = {
      {"gelu", Activation::Gelu},
      {"gelu_new", Activation::GeluTanh},
      {"gelu_pytorch_tanh", Activation::GeluTanh},
      {"gelu_fast", Activation::GeluTanh},
      {"quick_gelu", Activation::QuickGelu},
      {"silu", Activation::Silu},
      {"swish", Activation::Silu},
      {"relu", Activation::Relu}};
  for (const auto &[name, activation] : names) {
    EXPECT_EQ(mustRead("gpt2", {{"activation_function", name}}).activation,
              activation);
    EXPECT_EQ(mustRead("llama", {{"hidden_act", name}}).activation, activation);
  }
}

TEST(HfConfig, Gpt2AttentionScales) {
  ModelSpec spec = mustRead("gpt2", {{"scale_attn_weights", false},
                                     {"scale_attn_by_inverse_layer_idx", true},
                                     {"reorder_and_upcast_attn", true}});
  EXPECT_DOUBLE_EQ(spec.attentionScale(0), 1.0);
  EXPECT_DOUBLE_EQ(spec.attentionScale(3), 0.25);
}

TEST(HfConfig, BothDialectsGiveTheSameModel) {
  json four = {{"rope_theta", 5e5},
               {"torch_dtype", "bfloat16"},
               {"rope_scaling", {{"type", "linear"}, {"factor", 4}}}};
  json five = {
      {"rope_theta", nullptr},
      {"dtype", "bfloat16"},
      {"rope_parameters",
       {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 500000}}}};
  ModelSpec spec = mustRead("llama", four);
  EXPECT_EQ(spec, mustRead("llama", five));
  json both = four;
  both.update(five);
  both["rope_theta"] = 5e5;
  EXPECT_EQ(spec, mustRead("llama", both)); // agreeing twice is no conflict
}

TEST(HfConfig, AliasesOfGpt2) {
  ModelSpec spec = mustRead(
      "gpt2",
      {{"n_embd", nullptr}, {"hidden_size", 24}, {"num_hidden_layers", 2}});
  EXPECT_EQ(spec, mustRead("gpt2"));
}

TEST(HfConfig, FamilyFromTheArchitectureAlone) {
  EXPECT_EQ(mustRead("qwen2", {{"model_type", nullptr},
                               {"architectures", {"Qwen2ForCausalLM"}}})
                .family,
            Family::Qwen2);
}

TEST(HfConfig, RewardModelsHaveAScoreInsteadOfLogits) {
  const nlohmann::json label = {{"0", "LABEL_0"}};
  auto classifier = [&](const char *architecture) {
    return nlohmann::json{
        {"architectures", nlohmann::json::array({architecture})},
        {"id2label", label}};
  };
  for (auto [family, architecture] :
       {std::pair("gpt2", "GPT2ForSequenceClassification"),
        std::pair("llama", "LlamaForSequenceClassification"),
        std::pair("gemma3_text", "Gemma3TextForSequenceClassification"),
        std::pair("qwen2_moe", "Qwen2MoeForSequenceClassification")}) {
    const ModelSpec spec = mustRead(family, classifier(architecture));
    EXPECT_TRUE(spec.hasScore && !spec.generates()) << family;
    const std::vector<Parameter> all = parameters(spec);
    EXPECT_EQ(all.back().name, "score.weight");
    EXPECT_EQ(all.back().shape, (std::vector<int64_t>{1, spec.hidden}));
    EXPECT_TRUE(all.back().keepF32);
    for (const Parameter &each : all)
      EXPECT_NE(each.name, "lm_head.weight");
  }
  EXPECT_FALSE(mustRead("llama", {{"id2label", label}}).hasScore);
}

TEST(HfConfig, WhatARewardModelsRunSaysOfItself) {
  const std::string text = smallConfig("llama").dump();
  const ModelSpec llama = mustRead("llama");
  StatusOr<std::string> made = withScoreHead(text, llama);
  ASSERT_TRUE(made.ok()) << made.message();
  StatusOr<ModelSpec> read = parseHfConfig(*made, "config.json");
  ASSERT_TRUE(read.ok()) << read.message();
  EXPECT_TRUE(read->hasScore);
  EXPECT_EQ(*withScoreHead(*made, *read), *made);
  read->hasScore = false;
  EXPECT_EQ(*read, llama);
  EXPECT_EQ(withScoreHead("{}", mustRead("dots1")).message(),
            "task: reward: dots1 has no ForSequenceClassification in "
            "transformers, which is the layout of reward models");
}

TEST(HfConfig, TokensMayBeLists) {
  ModelSpec spec = mustRead(
      "llama",
      {{"eos_token_id", {1, 2}}, {"bos_token_id", 0}, {"pad_token_id", -1}});
  EXPECT_EQ(spec.eosTokens, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(spec.bosToken, 0);
  EXPECT_EQ(spec.padToken, -1);
}

TEST(HfConfig, IrrelevantKeysAreIgnored) {
  EXPECT_EQ(mustRead("gpt2", {{"n_ctx", 7},
                              {"transformers_version", "9.9.9"},
                              {"task_specific_params", {{"a", {{"b", 1}}}}},
                              {"summary_type", "cls_index"},
                              {"use_cache", false}}),
            mustRead("gpt2"));
}

TEST(Parameters, NamesShapesAndStartsOfGpt2) {
  ModelSpec spec = mustRead("gpt2");
  std::vector<Parameter> all = parameters(spec);
  ASSERT_EQ(all.size(), 2 + 2 * 12 + 2u);
  EXPECT_EQ(all[0].name, "transformer.wte.weight");
  EXPECT_EQ(all[1].shape, (std::vector<int64_t>{32, 24}));
  auto find = [&](const std::string &name) {
    return *std::ranges::find(all, name, &Parameter::name);
  };
  Parameter attention = find("transformer.h.1.attn.c_attn.weight");
  EXPECT_EQ(attention.shape, (std::vector<int64_t>{24, 72})); // [in, out]
  EXPECT_EQ(attention.layer, 1);
  EXPECT_EQ(attention.deviation, 0.02);
  EXPECT_DOUBLE_EQ(find("transformer.h.0.mlp.c_proj.weight").deviation, 0.01);
  EXPECT_EQ(find("transformer.h.0.ln_1.weight").initializer, Initializer::Ones);
  EXPECT_EQ(find("transformer.h.0.attn.c_proj.bias").initializer,
            Initializer::Zeros);
  EXPECT_EQ(all.back().name, "transformer.ln_f.bias");
  EXPECT_EQ(checkpointNames(spec, "transformer.h.0.ln_1.weight"),
            (std::vector<std::string>{"transformer.h.0.ln_1.weight",
                                      "h.0.ln_1.weight"}));
}

TEST(Parameters, NamesAndShapesOfQwen3) {
  std::vector<Parameter> all =
      parameters(mustRead("qwen3", {{"attention_bias", true}}));
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const Parameter &each : all)
    shapes[each.name] = each.shape;
  using Shape = std::vector<int64_t>;
  std::string layer = "model.layers.3.";
  EXPECT_EQ(shapes[layer + "self_attn.q_proj.weight"], (Shape{48, 24}));
  EXPECT_EQ(shapes[layer + "self_attn.k_proj.bias"], Shape{16});
  EXPECT_EQ(shapes[layer + "self_attn.o_proj.weight"], (Shape{24, 48}));
  EXPECT_EQ(shapes[layer + "self_attn.o_proj.bias"], Shape{24});
  EXPECT_EQ(shapes[layer + "self_attn.q_norm.weight"], Shape{8});
  EXPECT_EQ(shapes[layer + "mlp.down_proj.weight"], (Shape{24, 40}));
  EXPECT_EQ(shapes["lm_head.weight"], (Shape{96, 24}));
  EXPECT_EQ(all.size(), 3u + 4 * 15);
}

TEST(Parameters, ExpertsAreStacks) {
  std::map<std::string, Parameter> all;
  for (const char *type : {"mixtral", "qwen2_moe", "dots1"})
    for (const Parameter &each : parameters(mustRead(type)))
      all[std::string(type) + "/" + each.name] = each;
  using Shape = std::vector<int64_t>;
  std::string mixtral = "mixtral/model.layers.1.block_sparse_moe.",
              qwen = "qwen2_moe/model.layers.1.mlp.",
              dots = "dots1/model.layers.1.mlp.";
  EXPECT_EQ(all[mixtral + "gate.weight"].shape, (Shape{5, 24}));
  EXPECT_TRUE(all[mixtral + "gate.weight"].keepF32);
  EXPECT_EQ(all[mixtral + "experts.*.w1.weight"].shape, (Shape{5, 40, 24}));
  EXPECT_EQ(all[mixtral + "experts.*.w2.weight"].shape, (Shape{5, 24, 40}));
  EXPECT_EQ(all[qwen + "experts.*.up_proj.weight"].shape, (Shape{6, 12, 24}));
  EXPECT_EQ(all[qwen + "shared_expert.down_proj.weight"].shape,
            (Shape{24, 20}));
  EXPECT_EQ(all[qwen + "shared_expert_gate.weight"].shape, (Shape{1, 24}));
  EXPECT_EQ(all[dots + "shared_experts.gate_proj.weight"].shape,
            (Shape{24, 24}));
  const Parameter &bias = all[dots + "gate.e_score_correction_bias"];
  EXPECT_EQ(bias.shape, Shape{8});
  EXPECT_TRUE(bias.frozen && bias.keepF32);
  EXPECT_EQ(bias.initializer, Initializer::Zeros);
  EXPECT_EQ(all["dots1/model.layers.0.mlp.gate_proj.weight"].shape,
            (Shape{40, 24}));
}

TEST(Parameters, CountIsTheSumOfElements) {
  for (const char *type : {"gpt2",      "llama",      "mistral",
                           "qwen2",     "qwen3",      "mixtral",
                           "qwen2_moe", "qwen3_moe",  "dots1",
                           "gemma",     "gemma2",     "gemma3_text",
                           "phi3",      "smollm3",    "granite",
                           "olmo2",     "olmo3",      "olmoe",
                           "glm",       "glm4",       "cohere",
                           "cohere2",   "starcoder2", "stablelm",
                           "ernie4_5",  "seed_oss",   "hunyuan_v1_dense",
                           "gpt_neox",  "gpt_oss"}) {
    ModelSpec spec = mustRead(type);
    int64_t sum = 0;
    for (const Parameter &each : parameters(spec))
      sum += each.elements();
    EXPECT_EQ(parameterCount(spec), sum) << type;
  }
}

TEST(Describe, IsOneLine) {
  EXPECT_EQ(describe(readySpec("llama-1b")),
            "llama: 16 layers, hidden 2048, 32 heads (8 kv) of 64, mlp 8192, "
            "vocabulary 128256, 131072 positions, 1235814400 parameters");
  EXPECT_EQ(describe(readySpec("mixtral-8x7b")),
            "mixtral: 32 layers, hidden 4096, 32 heads (8 kv) of 128, mlp "
            "14336, 2 of 8 experts of 14336 in 32 layers, vocabulary 32000, "
            "32768 positions, 46702792704 parameters (12879925248 active)");
}

} // namespace
} // namespace tessera::models
