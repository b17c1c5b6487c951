// What a recipe asks of a model, and the recipes that come along.
#include "models/Recipe.h"

#include <filesystem>
#include <map>

#include <gtest/gtest.h>

#include "test/models/ConfigFixture.h"

namespace tessera::models {
namespace {

TEST(Recipe, PagesAreOfAttention) {
  Recipe recipe;
  recipe.inference.pages = 4096;
  EXPECT_EQ(checkRecipe(recipe, mustRead("mamba2"), Mode::Infer).message(),
            "inference.pages: all layers of this mamba2 are recurrent; it has "
            "no KV cache");
  EXPECT_TRUE(
      checkRecipe(recipe, mustRead("granitemoehybrid"), Mode::Infer).ok());
}

TEST(Recipe, SequenceMustFitThePositions) {
  Recipe recipe;
  recipe.batch.sequence = 33;
  EXPECT_EQ(checkRecipe(recipe, mustRead("gpt2")).message(),
            "batch.sequence = 33 is more than the model's 32 positions; lower "
            "it, or raise n_positions in config.json");
  EXPECT_TRUE(checkRecipe(recipe, mustRead("llama")).ok());
  recipe.batch.sequence = 65;
  EXPECT_EQ(checkRecipe(recipe, mustRead("llama")).message(),
            "batch.sequence = 65 is more than the model's 64 positions; lower "
            "it, or raise max_position_embeddings in config.json");
}

TEST(Recipe, DropoutOverridesTheModels) {
  Recipe recipe;
  EXPECT_EQ(withRecipe(mustRead("gpt2"), recipe).residualDropout, 0.1);
  recipe.dropout.rate = 0.0;
  ModelSpec gpt2 = withRecipe(mustRead("gpt2"), recipe);
  EXPECT_EQ(gpt2.residualDropout, 0.0);
  EXPECT_EQ(gpt2.embeddingDropout, 0.0);
  EXPECT_EQ(gpt2.attentionDropout, 0.0);
  recipe.dropout.rate = 0.2;
  ModelSpec llama = withRecipe(mustRead("llama"), recipe);
  EXPECT_EQ(llama.attentionDropout, 0.2);
  EXPECT_EQ(llama.residualDropout, 0.0);
}

TEST(Recipe, PromptsAreOfDocuments) {
  Recipe recipe;
  recipe.batch.sequence = 64;
  recipe.attention.prompts = recipe::Prompts::Bidirectional;
  const ModelSpec llama = mustRead("llama"),
                  mistral = mustRead("mistral", {{"sliding_window", 16}});
  EXPECT_EQ(checkRecipe(recipe, llama).message(),
            "attention.prompts: bidirectional: prompts are of documents; set "
            "data.documents: separate");
  recipe.data.documents = recipe::Documents::Separate;
  EXPECT_TRUE(checkRecipe(recipe, llama).ok());
  EXPECT_TRUE(checkRecipe(recipe, mistral).ok());
  EXPECT_TRUE(checkRecipe(recipe, llama, Mode::Infer).ok());
  const int64_t window = mistral.window(0);
  ASSERT_GT(window, 0);
  EXPECT_EQ(checkRecipe(recipe, mistral, Mode::Infer).message(),
            fmt::format("attention.prompts: bidirectional: inference does not "
                        "support it with sliding windows; set "
                        "inference.context to the window of {} or less",
                        window));
  recipe.inference.context = window;
  EXPECT_TRUE(checkRecipe(recipe, mistral, Mode::Infer).ok());
  recipe.task = recipe::Task::Reward;
  EXPECT_EQ(checkRecipe(recipe, llama).message(),
            "attention.prompts: bidirectional is not supported of reward "
            "models; leave it out");
}

TEST(Recipe, SlotsForAdaptersAreOfInferencePrograms) {
  Recipe recipe;
  recipe.batch.sequence = 64;
  recipe.adapter.kind = recipe::AdapterKind::Lora;
  const ModelSpec llama = mustRead("llama");
  EXPECT_TRUE(checkRecipe(recipe, llama).ok());
  EXPECT_EQ(checkRecipe(recipe, llama, Mode::Infer).message(),
            "adapter.kind: inference programs hold adapters in slots; set "
            "adapter.slots, or leave the adapter keys out");
  recipe.adapter.slots = 3;
  recipe.adapter.target = {"all"};
  EXPECT_TRUE(checkRecipe(recipe, llama, Mode::Infer).ok());
  EXPECT_EQ(checkRecipe(recipe, llama).message(),
            "adapter.slots = 3: only inference programs have slots for "
            "adapters; leave it out");
  // Of all linear layers, and nothing else is frozen.
  for (const Parameter &each : parameters(withRecipe(llama, recipe)))
    EXPECT_EQ(each.frozen, each.name.find(".lora_") != std::string::npos)
        << each.name;
}

TEST(Recipe, MagnitudesAreTrainedAndNormsAreNot) {
  Recipe recipe;
  recipe.batch.sequence = 64;
  recipe.adapter.kind = recipe::AdapterKind::Dora;
  const ModelSpec llama = mustRead("llama");
  EXPECT_TRUE(checkRecipe(recipe, llama).ok());
  int64_t magnitudes = 0, norms = 0;
  for (const Parameter &each : parameters(withRecipe(llama, recipe))) {
    const bool isMagnitude = each.name.ends_with(".lora_magnitude_vector"),
               isNorm = each.name.ends_with(".lora_weight_norm"),
               isFactor = each.name.find(".lora_A.") != std::string::npos ||
                          each.name.find(".lora_B.") != std::string::npos;
    EXPECT_EQ(each.frozen, !isMagnitude && !isFactor) << each.name;
    magnitudes += isMagnitude;
    norms += isNorm;
  }
  EXPECT_EQ(magnitudes, 2 * llama.layers);
  EXPECT_EQ(norms, magnitudes);
  recipe.adapter.slots = 2;
  EXPECT_TRUE(checkRecipe(recipe, llama, Mode::Infer).ok());
  recipe.inference.quant = Quant::Int8;
  EXPECT_TRUE(checkRecipe(recipe, llama, Mode::Infer).ok());
}

TEST(Recipe, AdaptersHaveRanksAndWholeModules) {
  Recipe recipe;
  recipe.batch.sequence = 64;
  recipe.adapter.kind = recipe::AdapterKind::Lora;
  recipe.adapter.target = {"q_proj", "down_proj"};
  recipe.adapter.ranks = {"mlp.down_proj=4"};
  recipe.adapter.modulesToSave = {"lm_head", "input_layernorm"};
  const ModelSpec llama = mustRead("llama");
  ASSERT_TRUE(checkRecipe(recipe, llama).ok());
  for (const Parameter &each : parameters(withRecipe(llama, recipe))) {
    const bool isFactor = each.name.find(".lora_") != std::string::npos;
    EXPECT_EQ(each.frozen, !isFactor && each.name != "lm_head.weight" &&
                               !each.name.ends_with("input_layernorm.weight"))
        << each.name;
    if (each.name.ends_with("lora_A.weight"))
      EXPECT_EQ(each.shape[0],
                each.name.find("down_proj") != std::string::npos ? 4 : 16);
  }
  recipe.adapter.scaling = recipe::AdapterScaling::Root;
  EXPECT_EQ(recipe.adapter.scaleOf("model.layers.1.mlp.down_proj"), 16);
  EXPECT_EQ(recipe.adapter.scaleOf("model.layers.1.self_attn.q_proj"), 8);

  auto message = [&](auto change) {
    Recipe changed = recipe;
    change(changed.adapter);
    return checkRecipe(changed, llama).message();
  };
  EXPECT_EQ(message([](auto &a) { a.ranks = {"up_proj=2"}; }),
            "adapter.ranks: no layer of adapter.target is called 'up_proj'; "
            "all layers of a name have one rank");
  EXPECT_EQ(message([](auto &a) { a.modulesToSave = {"head"}; }),
            "adapter.modules_to_save: no module of this llama is called "
            "'head', in all layers; known modules: down_proj, embed_tokens, "
            "gate_proj, "
            "input_layernorm, k_proj, lm_head, norm, o_proj, "
            "post_attention_layernorm, q_proj, up_proj, v_proj");
  EXPECT_EQ(message([](auto &a) { a.modulesToSave = {"q_proj"}; }),
            "adapter.modules_to_save: 'q_proj' is also of adapter.target; it "
            "is trained whole, or by factors");
  // All layers have the same modules.
  for (const char *one : {"layers.0.input_layernorm", "layers.0.mlp.down_proj"})
    EXPECT_TRUE(message([&](auto &a) { a.modulesToSave = {one}; })
                    .starts_with("adapter.modules_to_save: no module of this "
                                 "llama is called '" +
                                 std::string(one) + "', in all layers"));
  recipe.adapter.slots = 2;
  recipe.adapter.ranks.clear();
  recipe.adapter.modulesToSave.clear();
  EXPECT_EQ(checkRecipe(recipe, llama, Mode::Infer).message(),
            "adapter.ranks, adapter.scaling, adapter.dropout and "
            "adapter.modules_to_save apply to training; slots hold factors of "
            "any rank up to adapter.rank and scale");
}

TEST(Recipe, Int8ActivationsAreOfBf16) {
  Recipe recipe;
  recipe.inference.activations = recipe::Activations::Int8;
  const ModelSpec llama = mustRead("llama");
  EXPECT_EQ(checkRecipe(recipe, llama, Mode::Infer).message(),
            "inference.activations: int8 requires a bf16 program; set "
            "precision.compute: bf16, or leave it out");
  recipe.compute = Precision::Bf16;
  EXPECT_TRUE(checkRecipe(recipe, llama, Mode::Infer).ok());
  recipe.inference.numerics = recipe::Numerics::Training;
  EXPECT_EQ(checkRecipe(recipe, llama, Mode::Infer).message(),
            "inference.activations: inference.numerics: training has no "
            "quantized activations; leave it out, or set inference.numerics: "
            "inference");
  recipe.inference.numerics = recipe::Numerics::Auto;
  EXPECT_EQ(checkRecipe(recipe, mustRead("bert"), Mode::Infer).message(),
            "inference.activations: bert is an encoder, for which int8 is not "
            "supported; leave it out");
}

TEST(Recipe, RewardModelsAreTrainedForScores) {
  Recipe recipe;
  recipe.batch.sequence = 64;
  const ModelSpec llama = mustRead("llama");
  ModelSpec scores = llama;
  scores.hasScore = true;
  EXPECT_EQ(checkRecipe(recipe, scores).message(),
            "this llama is a reward model, which has scores instead of logits; "
            "set task: reward, or give a language model");
  EXPECT_TRUE(checkRecipe(recipe, scores, Mode::Infer).ok());
  recipe.inference.kv = KvKind::Int8;
  EXPECT_EQ(checkRecipe(recipe, scores, Mode::Infer).message(),
            "inference.kv: this llama is a reward model, which has no KV "
            "cache");
  recipe.inference.layout = recipe::WeightLayout::Packed;
  EXPECT_EQ(checkRecipe(recipe, scores, Mode::Infer).message(),
            "inference.quant, inference.layout, inference.activations and "
            "adapters: not supported of reward models; leave them out");
  recipe.inference = {};
  recipe.inference.activations = recipe::Activations::Int8;
  EXPECT_FALSE(checkRecipe(recipe, scores, Mode::Infer).ok());
  recipe.inference = {};
  recipe.task = recipe::Task::Reward;
  EXPECT_TRUE(checkRecipe(recipe, scores).ok());
  EXPECT_TRUE(checkRecipe(recipe, llama).ok());
  EXPECT_TRUE(withRecipe(llama, recipe).hasScore);
  EXPECT_EQ(checkRecipe(recipe, llama, Mode::Infer).message(),
            "task: reward is of training; leave it out, and give the directory "
            "that tessera export writes of the trained run");
  // The head is trained with an adapter, too.
  recipe.adapter.kind = recipe::AdapterKind::Lora;
  EXPECT_FALSE(parameters(withRecipe(llama, recipe)).back().frozen);
  // Programs of scores have no pages.
  recipe = {};
  recipe.inference.context = 40;
  recipe.inference.page = 16;
  EXPECT_EQ(encodeBuckets(scores, recipe).back().tokens, 40);
}

TEST(Recipe, ATeacherHasNoMoreTokensThanTheModel) {
  Recipe recipe;
  recipe.batch.sequence = 32;
  recipe.task = recipe::Task::Distill;
  recipe.distill.top = 256;
  ModelSpec gpt2 = mustRead("gpt2");
  gpt2.vocab = 200;
  EXPECT_EQ(checkRecipe(recipe, gpt2).message(),
            "distill.top = 256 is more than the model's vocabulary of 200 "
            "tokens; lower it");
  recipe.distill.top = 200;
  EXPECT_TRUE(checkRecipe(recipe, gpt2).ok());
}

TEST(ReadyRecipes, ReadAndFitTheirModels) {
  const std::string root = TESSERA_SOURCE_DIR;
  size_t seen = 0;
  for (const auto &entry :
       std::filesystem::directory_iterator(root + "/recipes")) {
    if (entry.path().extension() != ".yaml")
      continue;
    StatusOr<Recipe> recipe = loadRecipe(entry.path().string());
    ASSERT_TRUE(recipe.ok()) << recipe.message();
    std::string name = entry.path().stem().string();
    if (name == "default") {
      EXPECT_EQ(*recipe, Recipe());
      continue;
    }
    const std::map<std::string, std::string> models = {
        {"demo", "gpt2-demo"}, {"sft", "llama-1b"}, {"dpo", "llama-1b"},
        {"grpo", "llama-1b"},  {"ppo", "llama-1b"}, {"distill", "llama-1b"}};
    const auto found = models.find(name);
    ModelSpec spec = readySpec(found == models.end() ? name : found->second);
    Status status = checkRecipe(*recipe, spec);
    EXPECT_TRUE(status.ok()) << name << ": " << status.message();
    ++seen;
  }
  EXPECT_GE(seen, 8u);
}

} // namespace
} // namespace tessera::models
