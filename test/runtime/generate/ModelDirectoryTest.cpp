#include "runtime/generate/ModelDirectory.h"
#include "runtime/generate/Generate.h"
#include "test/runtime/data/TestData.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

using namespace tessera;
using tessera::testing::ScratchDirectory;

namespace {

std::string configError(std::string_view text) {
  return parseGenerationConfig(text, "g.json").message();
}

} // namespace

TEST(GenerationConfig, SaysWhatItSays) {
  auto config = parseGenerationConfig(
      R"({"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": null,
          "repetition_penalty": 1.05, "max_new_tokens": 99, "do_sample": true,
          "eos_token_id": [5, 9], "num_beams": 1, "suppress_tokens": [],
          "_from_model_config": true})",
      "g.json");
  ASSERT_TRUE(config.ok()) << config.message();
  EXPECT_EQ(config->temperature, 0.6f);
  EXPECT_EQ(config->topK, 20);
  EXPECT_EQ(config->topP, 0.95f);
  EXPECT_FALSE(config->minP);
  EXPECT_EQ(config->repetitionPenalty, 1.05f);
  EXPECT_EQ(config->maxTokens, 99u);
  EXPECT_EQ(config->endTokens, (std::vector<int32_t>{5, 9}));
  EXPECT_TRUE(config->unused.empty());
}

TEST(GenerationConfig, WithoutSamplingTheTemperatureIsZero) {
  auto config = parseGenerationConfig(
      R"({"do_sample": false, "temperature": 0.6, "eos_token_id": 3,
          "num_beams": 4, "no_repeat_ngram_size": 2})",
      "g.json");
  ASSERT_TRUE(config.ok()) << config.message();
  EXPECT_EQ(config->temperature, 0);
  EXPECT_EQ(config->endTokens, std::vector<int32_t>{3});
  EXPECT_EQ(config->unused,
            (std::vector<std::string>{"num_beams", "no_repeat_ngram_size"}));
}

TEST(GenerationConfig, RefusesOtherKindsOfValues) {
  EXPECT_EQ(configError(R"({"temperature": "hot"})"),
            "g.json: key 'temperature': must be a number");
  EXPECT_EQ(configError(R"({"top_k": -1})"),
            "g.json: key 'top_k': must be a whole number from 0 to 2147483647");
  EXPECT_EQ(configError(R"({"eos_token_id": [1, 4294967296]})"),
            "g.json: key 'eos_token_id': must be a token or a list of tokens");
  EXPECT_EQ(configError(R"({"do_sample": 1})"),
            "g.json: key 'do_sample': must be true or false");
  EXPECT_EQ(configError("[]"), "g.json: must be a JSON object");
}

// Runs and their checkpoints have a config.json for others, and are none.
TEST(FindModelDirectory, TakesNoRunAndNoCheckpointForAModel) {
  ScratchDirectory folder;
  auto touch = [&](const std::string &name) { std::ofstream(folder / name); };
  touch("config.json");
  EXPECT_TRUE(findModelDirectory(folder.path));
  touch("manifest.json");
  EXPECT_FALSE(findModelDirectory(folder.path));
  std::filesystem::remove(folder / "manifest.json");
  touch("program.tsr");
  EXPECT_FALSE(findModelDirectory(folder.path));
}

// Others of the same model would map weights that were scaled, or those that
// were not would be scaled no more.
TEST(ModelDirectory, KeepsNoWeightsThatHaveFactors) {
  GenerateOptions options;
  WeightsCache cache;
  const WeightFactors factors;
  options.program = "absent.tsr";
  options.weights = &cache;
  EXPECT_NE(openModelDirectory("absent", options).message().find("absent.tsr"),
            std::string::npos);
  options.factors = &factors;
  auto opened = openModelDirectory("absent", options);
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.message().find("factors"), std::string::npos)
      << opened.message();
}
