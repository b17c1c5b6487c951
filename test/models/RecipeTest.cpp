// What a recipe asks of a model, and the recipes that come along.
#include "models/Recipe.h"

#include <filesystem>
#include <map>

#include <gtest/gtest.h>

#include "test/models/ConfigFixture.h"

namespace tessera::models {
namespace {

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
    const std::map<std::string, std::string> models = {{"demo", "gpt2-demo"},
                                                       {"sft", "llama-1b"},
                                                       {"dpo", "llama-1b"},
                                                       {"grpo", "llama-1b"}};
    const auto found = models.find(name);
    ModelSpec spec = readySpec(found == models.end() ? name : found->second);
    Status status = checkRecipe(*recipe, spec);
    EXPECT_TRUE(status.ok()) << name << ": " << status.message();
    ++seen;
  }
  EXPECT_GE(seen, 7u);
}

} // namespace
} // namespace tessera::models
