// The files of sentence-transformers beside a config.json.
#include "models/SentenceModel.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "test/models/ConfigFixture.h"

namespace tessera::models {
namespace {

namespace fs = std::filesystem;

constexpr const char *miniLm = R"([
  {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
  {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
  {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
])";

class SentenceFiles : public testing::Test {
protected:
  SentenceFiles() {
    folder =
        fs::temp_directory_path() / ("sentence-" + std::to_string(::getpid()));
    fs::remove_all(folder);
    fs::create_directories(folder / "1_Pooling");
  }
  ~SentenceFiles() override { fs::remove_all(folder); }

  void write(const std::string &file, const std::string &text) const {
    std::ofstream(folder / file) << text;
  }
  void writeMiniLm() const {
    write("modules.json", miniLm);
    write("1_Pooling/config.json",
          R"({"word_embedding_dimension": 24, "pooling_mode_cls_token": false,
              "pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": false,
              "pooling_mode_mean_sqrt_len_tokens": false})");
    write("sentence_bert_config.json",
          R"({"max_seq_length": 25, "do_lower_case": false})");
    write(
        "config_sentence_transformers.json",
        R"({"__version__": {"pytorch": "2"}, "prompts": {}, "default_prompt_name": null})");
  }
  SentenceModel read() const {
    auto model = loadSentenceModel(folder.string());
    EXPECT_TRUE(model.ok()) << model.message();
    return model.ok() ? *model : SentenceModel();
  }
  void expectError(const std::string &file, const std::string &text,
                   const std::string &part) const {
    writeMiniLm();
    write(file, text);
    auto model = loadSentenceModel(folder.string());
    ASSERT_FALSE(model.ok()) << text;
    EXPECT_NE(model.message().find(part), std::string::npos) << model.message();
    EXPECT_NE(model.message().find(file), std::string::npos) << model.message();
  }

  fs::path folder;
};

TEST_F(SentenceFiles, OfMiniLm) {
  writeMiniLm();
  EXPECT_EQ(read(), (SentenceModel{true, Pooling::Mean, Normalize::L2, 25, "",
                                   "1_Pooling/config.json"}));
}

TEST_F(SentenceFiles, ABareModelHasTheMean) {
  EXPECT_EQ(read(), SentenceModel());
}

TEST_F(SentenceFiles, Poolings) {
  writeMiniLm();
  const std::pair<const char *, Pooling> all[] = {
      {"pooling_mode_cls_token", Pooling::Cls},
      {"pooling_mode_max_tokens", Pooling::Max},
      {"pooling_mode_mean_sqrt_len_tokens", Pooling::MeanSqrt}};
  for (auto [key, pooling] : all) {
    write("1_Pooling/config.json", std::string("{\"") + key + "\": true}");
    EXPECT_EQ(read().pooling, pooling);
  }
  write("1_Pooling/config.json", R"({"pooling_mode": "cls"})");
  EXPECT_EQ(read().pooling, Pooling::Cls);
}

TEST_F(SentenceFiles, WithoutNormalization) {
  writeMiniLm();
  std::string text = miniLm;
  text = text.substr(0, text.rfind(",\n")) + "]";
  write("modules.json", text);
  EXPECT_EQ(read().normalize, Normalize::None);
}

TEST_F(SentenceFiles, ThePromptStandsBeforeEveryText) {
  writeMiniLm();
  write(
      "config_sentence_transformers.json",
      R"({"prompts": {"query": "q: ", "doc": ""}, "default_prompt_name": "query"})");
  EXPECT_EQ(read().prompt, "q: ");
}

TEST_F(SentenceFiles, WhatIsNotKnownIsRefused) {
  std::string text = miniLm;
  auto with = [&](const std::string &from, const std::string &to) {
    std::string changed = text;
    return changed.replace(changed.find(from), from.size(), to);
  };
  expectError("modules.json", with("models.Normalize", "models.Dense"),
              "'Dense' is not supported");
  expectError("modules.json", with("models.Pooling", "models.Normalize"),
              "in this order");
  expectError("modules.json", with("1_Pooling", "../1_Pooling"),
              "not a subfolder");
  expectError("modules.json", with(R"("path": "")", R"("path": "0_BERT")"),
              "'0_BERT'");
  expectError("modules.json", "{}", "expected a JSON list");
  expectError("modules.json", "[3, 4]", "list of up to");
  expectError("modules.json", text.substr(0, 40), "not valid JSON");
  expectError("1_Pooling/config.json", R"({"pooling_mode_lasttoken": true})",
              "lasttoken is not supported");
  expectError("1_Pooling/config.json", "{}", "must be cls, mean");
  expectError(
      "1_Pooling/config.json",
      R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true})",
      "second pooling");
  expectError("1_Pooling/config.json",
              R"({"pooling_mode_mean_tokens": true, "new": 1})", "'new'");
  expectError("sentence_bert_config.json", R"({"do_lower_case": true})",
              "do_lower_case");
  expectError("sentence_bert_config.json", R"({"max_seq_length": 0})",
              "max_seq_length");
  expectError("config_sentence_transformers.json",
              R"({"default_prompt_name": "query"})", "unknown prompt 'query'");
  writeMiniLm();
  fs::remove(folder / "1_Pooling/config.json");
  EXPECT_FALSE(loadSentenceModel(folder.string()).ok());
}

// The first of the files that names an activation counts.
TEST_F(SentenceFiles, RelevanceOfRerankers) {
  auto relevance = [&](const std::string &own, const std::string &config) {
    write("config_sentence_transformers.json", own);
    write("config.json", config);
    return loadRelevance(folder.string());
  };
  const std::string identity = R"("torch.nn.modules.linear.Identity")",
                    sigmoid = R"("torch.nn.Sigmoid")";
  const std::string old = "{\"sbert_ce_default_activation_function\": " +
                          identity,
                    now = ", \"sentence_transformers\": {\"activation_fn\": ";
  EXPECT_EQ(*relevance("{}", "{}"), Relevance::Logistic);
  EXPECT_EQ(*relevance("{}", old + "}"), Relevance::Score);
  EXPECT_EQ(*relevance("{}", old + now + sigmoid + "}}"), Relevance::Logistic);
  EXPECT_EQ(*relevance("{}", old + now + "null}}"), Relevance::Logistic);
  EXPECT_EQ(*relevance("{\"activation_fn\": " + sigmoid + "}", old + "}"),
            Relevance::Logistic);
  EXPECT_EQ(*relevance("{\"activation_fn\": null}", old + "}"),
            Relevance::Score);
  auto failure = relevance("{\"activation_fn\": \"torch.nn.Tanh\"}", "{}");
  EXPECT_NE(failure.message().find("\"torch.nn.Tanh\" of a score is not "
                                   "supported"),
            std::string::npos)
      << failure.message();
  failure = relevance("{\"default_prompt_name\": \"query\"}", "{}");
  EXPECT_NE(failure.message().find("default_prompt_name"), std::string::npos);
}

TEST_F(SentenceFiles, TheRecipeRulesWhereItSaysSomething) {
  writeMiniLm();
  ModelSpec spec = mustRead("bert");
  auto said = withSentenceModel(Recipe(), spec, folder);
  ASSERT_TRUE(said.ok());
  EXPECT_EQ(said->inference.pooling, Pooling::Mean);
  EXPECT_EQ(said->inference.normalize, Normalize::L2);
  EXPECT_EQ(said->inference.context, 25);
  Recipe recipe;
  recipe.inference.pooling = Pooling::Cls;
  recipe.inference.normalize = Normalize::None;
  recipe.inference.context = 12;
  auto own = withSentenceModel(recipe, spec, folder);
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(own->inference, recipe.inference);
  // Of a decoder the files say nothing.
  EXPECT_EQ(*withSentenceModel(Recipe(), mustRead("gpt2"), folder), Recipe());
}

} // namespace
} // namespace tessera::models
