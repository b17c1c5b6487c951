// The builders' modules, interpreted in fp64, against ReferenceModel.
#include "mlir/Parser/Parser.h"
#include "test/models/BuildFixture.h"

namespace tessera::models {
namespace {

TEST_F(Build, Gpt2) {
  expectReference(mustRead("gpt2"));
  for (const char *each : {"gelu", "quick_gelu", "silu", "relu"})
    expectReference(mustRead("gpt2", {{"activation_function", each}}));
}

TEST_F(Build, Gpt2WithItsRareSwitches) {
  expectReference(mustRead("gpt2", {{"scale_attn_by_inverse_layer_idx", true},
                                    {"tie_word_embeddings", false},
                                    {"n_inner", 20}}));
  expectReference(mustRead("gpt2", {{"scale_attn_weights", false}}));
}

TEST_F(Build, Llama) {
  expectReference(mustRead("llama"));
  expectReference(mustRead("llama", {{"attention_bias", true},
                                     {"mlp_bias", true},
                                     {"tie_word_embeddings", true},
                                     {"num_key_value_heads", 1}}));
  json section = {{"rope_type", "yarn"}, {"factor", 4}};
  expectReference(mustRead("llama", {{"rope_scaling", section}}));
  section = {{"rope_type", "dynamic"}, {"factor", 2}};
  expectReference(mustRead("llama", {{"rope_scaling", section}}));
}

TEST_F(Build, MistralWindow) {
  ModelSpec spec = mustRead("mistral", {{"sliding_window", 3}});
  expectReference(spec);
  expectReference(mustRead("mistral", {{"sliding_window", 1}}));
  // A window that hides nothing is not there.
  build(mustRead("mistral", {{"sliding_window", length}}));
  module->walk([](graph::AttentionOp op) { EXPECT_FALSE(op.getWindow()); });
}

TEST_F(Build, Qwen2MixesWindows) {
  expectReference(mustRead("qwen2", {{"use_sliding_window", true},
                                     {"sliding_window", 2},
                                     {"max_window_layers", 2}}));
  // Two kinds of layer, each once for @loss and once for @logits.
  EXPECT_EQ(count<graph::AttentionOp>(), 4);
  EXPECT_EQ(count<mlir::func::CallOp>(), 8);
}

TEST_F(Build, Qwen3) {
  expectReference(mustRead("qwen3"));
  expectReference(mustRead("qwen3", {{"attention_bias", true}}));
}

TEST_F(Build, Gemma) {
  expectReference(mustRead("gemma"));
  expectReference(mustRead("gemma", {{"tie_word_embeddings", false}}));
}

// Caps so low that they bend every score and logit.
TEST_F(Build, Gemma2) {
  json caps = {{"attn_logit_softcapping", 1.5},
               {"final_logit_softcapping", 2},
               {"query_pre_attn_scalar", 3},
               {"sliding_window", 3}};
  ModelSpec spec = mustRead("gemma2", caps);
  EXPECT_EQ(spec.windows, (std::vector<int64_t>{3, 0, 3, 0}));
  expectReference(spec);
  expectReference(mustRead("gemma2", {{"sliding_window", 3}}));
  recipe.dropout.rate = 1e-13; // as in DropoutOfNothingIsTheReference
  expectReference(spec);
}

TEST_F(Build, Gemma3TurnsLayersWithAWindowByARopeOfTheirOwn) {
  json patch = {{"sliding_window", 3},
                {"sliding_window_pattern", 2},
                {"rope_local_base_freq", 3.0}};
  ModelSpec spec = mustRead("gemma3_text", patch);
  EXPECT_EQ(spec.windows, (std::vector<int64_t>{3, 0, 3, 0}));
  expectReference(spec);
  // Also where the window hides nothing.
  patch["sliding_window"] = 2 * length;
  expectReference(mustRead("gemma3_text", patch));
}

TEST_F(Build, Phi3) {
  expectReference(mustRead("phi3"));
  expectReference(mustRead("phi3", {{"partial_rotary_factor", 0.5}}));
  json section = {{"type", "longrope"},
                  {"short_factor", {1.5, 2, 2.5, 3}},
                  {"long_factor", {4, 5, 6, 7}}};
  for (int original : {4, 32})
    expectReference(
        mustRead("phi3", {{"rope_scaling", section},
                          {"original_max_position_embeddings", original}}));
}

TEST_F(Build, SmolLm3DoesNotRotateEveryFourthLayer) {
  ModelSpec spec = mustRead("smollm3");
  EXPECT_EQ(spec.unrotated, (std::vector<bool>{false, false, false, true}));
  expectReference(spec);
  expectReference(mustRead("smollm3", {{"no_rope_layers", {1, 0, 0, 1}},
                                       {"use_sliding_window", true},
                                       {"sliding_window", 3}}));
}

TEST_F(Build, GranitesMultipliers) {
  expectReference(mustRead("granite", {{"embedding_multiplier", 3.5},
                                       {"residual_multiplier", 0.3},
                                       {"attention_multiplier", 0.2},
                                       {"logits_scaling", 1.7}}));
}

TEST_F(Build, OlmoNormsOutputsAndWholeQueries) {
  expectReference(mustRead("olmo2"));
  json yarn = {{"rope_type", "yarn"},
               {"factor", 4},
               {"original_max_position_embeddings", 16}};
  expectReference(
      mustRead("olmo3", {{"sliding_window", 3}, {"rope_scaling", yarn}}));
  expectReference(mustRead("olmoe"));
  expectReference(mustRead("olmoe", {{"norm_topk_prob", true}}));
}

TEST_F(Build, GlmRotatesNeighbours) {
  for (const char *type : {"glm", "glm4"}) {
    expectReference(mustRead(type));
    expectReference(mustRead(
        type, {{"partial_rotary_factor", 1.0}, {"attention_bias", false}}));
  }
  expectReference(mustRead("ernie4_5"));
  expectReference(mustRead("ernie4_5", {{"use_bias", true}}));
}

TEST_F(Build, CohereAddsAttentionAndMlpInParallel) {
  expectReference(mustRead("cohere", {{"logit_scale", 0.3}}));
  expectReference(mustRead("cohere", {{"attention_bias", true}}));
  ModelSpec spec = mustRead("cohere2", {{"sliding_window", 3}});
  EXPECT_EQ(spec.windows, (std::vector<int64_t>{3, 3, 3, 0}));
  EXPECT_EQ(spec.unrotated, (std::vector<bool>{false, false, false, true}));
  expectReference(spec);
  // Layers whose window hides nothing still differ from those without one.
  expectReference(mustRead("cohere2", {{"sliding_window", 2 * length}}));
}

TEST_F(Build, LayerNormsAndMlpsWithoutAGate) {
  expectReference(mustRead("starcoder2", {{"sliding_window", 3}}));
  expectReference(mustRead("starcoder2", {{"use_bias", false}}));
  expectReference(mustRead("stablelm", {{"use_qkv_bias", true}}));
  expectReference(mustRead("stablelm", {{"use_parallel_residual", true}}));
  for (bool isParallel : {true, false})
    expectReference(
        mustRead("gpt_neox", {{"use_parallel_residual", isParallel}}));
}

TEST_F(Build, SeedOssAndHunYuan) {
  expectReference(mustRead("seed_oss", {{"attention_out_bias", true}}));
  json section = {{"type", "dynamic"}, {"factor", 1}, {"alpha", 20}};
  expectReference(mustRead("hunyuan_v1_dense", {{"rope_scaling", section}}));
}

TEST_F(Build, MixersOfMamba2) {
  expectReference(mustRead("mamba2"));
  expectReference(mustRead("mamba2", {{"use_bias", true},
                                      {"use_conv_bias", false},
                                      {"n_groups", 1},
                                      {"conv_kernel", 2},
                                      {"tie_word_embeddings", true},
                                      {"time_step_limit", {0.5, 0.9}}}));
}

TEST_F(Build, HybridOfMixersAndAttention) {
  ModelSpec spec = mustRead("granitemoehybrid");
  expectReference(spec);
  // A block for each kind.
  EXPECT_TRUE(module->lookupSymbol("layer.recurrent"));
  expectReference(
      mustRead("granitemoehybrid", {{"position_embedding_type", "rope"},
                                    {"mamba_n_groups", 2},
                                    {"residual_multiplier", 0.3}}));
}

TEST_F(Build, PortsCarryNamesRolesDecayAndLayers) {
  ModelSpec spec = mustRead("gpt2");
  build(spec);
  auto loss = module->lookupSymbol<mlir::func::FuncOp>("loss");
  auto init = module->lookupSymbol<mlir::func::FuncOp>("init");
  auto logits = module->lookupSymbol<mlir::func::FuncOp>("logits");
  std::vector<Parameter> all = parameters(spec);
  ASSERT_EQ(loss.getNumArguments(), all.size() + 5);
  ASSERT_EQ(logits.getNumArguments(), all.size() + 1);
  ASSERT_EQ(init.getNumResults(), all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    auto attributes = loss.getArgAttrDict(unsigned(i));
    EXPECT_EQ(attributes, logits.getArgAttrDict(unsigned(i)));
    EXPECT_EQ(attributes, init.getResultAttrDict(unsigned(i)));
    EXPECT_EQ(attributes.getAs<mlir::StringAttr>(graph::kStateAttr).getValue(),
              all[i].name);
    EXPECT_EQ(attributes.contains(graph::kDecayAttr), all[i].shape.size() >= 2);
    auto layer = attributes.getAs<graph::LayerAttr>(graph::kLayerAttr);
    EXPECT_EQ(layer ? layer.getIndex() : -1, all[i].layer);
  }
  std::vector<std::string> names;
  for (size_t i = all.size(); i < loss.getNumArguments(); ++i)
    names.push_back(
        loss.getArgAttrOfType<mlir::StringAttr>(unsigned(i), graph::kInputAttr)
            .str());
  EXPECT_EQ(names, (std::vector<std::string>{"tokens", "targets", "seed",
                                             "step", "offset"}));
}

TEST_F(Build, BlocksArePrivateAndSharedByLayers) {
  build(mustRead("llama"));
  int64_t blocks = 0;
  for (auto function : module->getOps<mlir::func::FuncOp>()) {
    EXPECT_EQ(function.isPrivate(), function->hasAttr(graph::kBlockAttr));
    EXPECT_EQ(function.isPublic(), function->hasAttr(graph::kProgramAttr));
    blocks += function.isPrivate();
    int64_t layer = 0;
    for (auto call : function.getOps<mlir::func::CallOp>())
      EXPECT_EQ(call->getAttr(graph::kLayerAttr),
                graph::LayerAttr::get(&context, layer++));
  }
  EXPECT_EQ(blocks, 2);
  EXPECT_EQ(count<mlir::func::CallOp>(), 8);
}

TEST_F(Build, PrintedModulesParseBack) {
  recipe.dropout.rate = 0.1;
  for (const char *type :
       {"gpt2", "llama", "mistral", "qwen2", "qwen3", "mixtral", "dots1",
        "gemma2", "gemma3_text", "phi3", "smollm3", "granite", "olmo3", "glm4",
        "cohere2", "starcoder2", "gpt_neox", "gpt_oss"}) {
    build(mustRead(type));
    std::string text, again;
    llvm::raw_string_ostream(text) << *module;
    auto parsed = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    ASSERT_TRUE(parsed) << type;
    llvm::raw_string_ostream(again) << *parsed;
    EXPECT_EQ(text, again) << type;
  }
}

TEST_F(Build, InitFollowsTheReferencesDistributions) {
  ModelSpec spec = mustRead(
      "gpt2", {{"n_embd", 48}, {"n_positions", 64}, {"vocab_size", 200}});
  build(spec);
  Tensor seed({1}, 42.0);
  Tensors first = run("init", {seed}), again = run("init", {seed});
  Tensors other = run("init", {Tensor({1}, 43.0)});
  std::vector<Parameter> all = parameters(spec);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(first[i].data, again[i].data);
    if (all[i].initializer != Initializer::Normal) {
      double value = all[i].initializer == Initializer::Ones ? 1 : 0;
      EXPECT_EQ(first[i].data, std::vector<double>(first[i].data.size(), value))
          << all[i].name;
      continue;
    }
    EXPECT_NE(first[i].data, other[i].data);
    double sum = 0, square = 0, n = double(first[i].size());
    for (double each : first[i].data)
      sum += each, square += each * each;
    // Five standard errors of a mean and of a deviation.
    double sigma = all[i].deviation;
    EXPECT_NEAR(sum / n, 0, 5 * sigma / std::sqrt(n)) << all[i].name;
    EXPECT_NEAR(std::sqrt(square / n), sigma, 5 * sigma / std::sqrt(2 * n))
        << all[i].name;
  }
  EXPECT_NE(first[4].data[0] / all[4].deviation,
            first[0].data[0] / all[0].deviation); // streams differ
}

// A rate so small that nothing is dropped must change nothing: holds the
// materialized attention of training against the reference.
TEST_F(Build, DropoutOfNothingIsTheReference) {
  recipe.dropout.rate = 1e-13;
  expectReference(mustRead("gpt2"));
  EXPECT_EQ(count<graph::DropoutOp>(), 4); // embedding, and three a block
  expectReference(mustRead("qwen2", {{"use_sliding_window", true},
                                     {"sliding_window", 2},
                                     {"max_window_layers", 2}}));
}

TEST_F(Build, DropoutOfSubLayersIsWhereTheReferenceHasIt) {
  recipe.dropout.rate = 1e-13;
  expectReference(mustRead("starcoder2"));
  EXPECT_EQ(count<graph::DropoutOp>(), 4); // embedding, and three a block
  expectReference(mustRead("gpt_neox"));
  EXPECT_EQ(count<graph::DropoutOp>(), 4);
  expectReference(mustRead("seed_oss"));
  EXPECT_EQ(count<graph::DropoutOp>(), 3);
  expectReference(mustRead("granite"));
  EXPECT_EQ(count<graph::DropoutOp>(), 1); // of probabilities alone
}

TEST_F(Build, DropoutDependsOnSeedStepOffsetAndLayer) {
  recipe.dropout.rate = 0.3;
  ModelSpec spec = mustRead("gpt2");
  build(spec);
  randomize(spec);
  double base = loss(spec, 5, 6, 7);
  EXPECT_EQ(loss(spec, 5, 6, 7), base);
  EXPECT_NE(loss(spec, 6, 6, 7), base);
  EXPECT_NE(loss(spec, 5, 7, 7), base);
  EXPECT_NE(loss(spec, 5, 6, 9), base);
  // Each call has a seed of its own, which @loss is made to return.
  auto function = module->lookupSymbol<mlir::func::FuncOp>("loss");
  llvm::SmallVector<mlir::Value> seeds;
  function.walk([&](mlir::func::CallOp call) {
    seeds.push_back(call.getOperand(call.getNumOperands() - 3));
  });
  function.getBody().front().getTerminator()->setOperands(seeds);
  function.removeResAttrsAttr();
  function.setType(mlir::FunctionType::get(&context,
                                           function.getArgumentTypes(),
                                           mlir::ValueRange(seeds).getTypes()));
  std::vector<double> values;
  for (const Tensor &seed : runLoss(spec, /*seed=*/5))
    values.push_back(seed.data[0]);
  EXPECT_EQ(values, (std::vector<double>{5 + 0x1p32, 5 + 0x2p32}));
}

TEST_F(Build, RecipesThatDoNotFitAreRefused) {
  recipe.batch.sequence = 33;
  auto built = buildModel(context, mustRead("gpt2"), recipe);
  ASSERT_FALSE(bool(built));
  EXPECT_EQ(llvm::toString(built.takeError()),
            "batch.sequence = 33 is more than the model's 32 positions; lower "
            "it, or raise n_positions in config.json");
}

TEST_F(Build, EveryReadySpecMakesAValidModule) {
  for (const char *name :
       {"tiny-gpt2",         "gpt2-demo",       "gpt2-10m",
        "gpt2-124m",         "gpt2-350m",       "llama-15m",
        "llama-110m",        "llama-1b",        "llama-3-8b",
        "mistral-7b",        "qwen2-0.5b",      "qwen3-0.6b",
        "qwen3-8b",          "tiny-mixtral",    "tiny-qwen-moe",
        "tiny-deepseek-moe", "mixtral-8x7b",    "qwen3-30b-a3b",
        "gemma-2-2b",        "gemma-3-1b",      "phi-3-mini",
        "smollm3-3b",        "granite-3.3-2b",  "olmo-2-7b",
        "olmo-3-7b",         "olmoe-1b-7b",     "glm-4-9b",
        "glm-4-9b-0414",     "command-r-35b",   "command-r7b",
        "starcoder2-3b",     "stablelm-2-1.6b", "ernie-4.5-0.3b",
        "seed-oss-36b",      "hunyuan-0.5b",    "pythia-160m",
        "gpt-oss-20b",       "gpt-oss-120b",    "tiny-deepseek-v3",
        "deepseek-v2-lite",  "deepseek-v3"})
    build(readySpec(name));
}

} // namespace
} // namespace tessera::models
