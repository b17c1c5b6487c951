// Which recipes a server can train by.
#include "compiler/api/ServeTraining.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace tessera {
namespace {

class ServeTraining : public ::testing::Test {
protected:
  ServeTraining() {
    settings.adapters = 3;
    choice.place = TESSERA_SPECS "/tiny-gpt2";
    source = *findModel(choice.place);
  }
  std::string errorOf(std::vector<std::string> set) {
    ModelChoice changed = choice;
    changed.set = std::move(set);
    return std::string(prepareTraining(settings, changed, source).message());
  }

  TrainingSettings settings;
  ModelChoice choice;
  std::optional<ModelSource> source;
};

// The engine has two slots for each adapter, and one to publish into.
TEST_F(ServeTraining, HasSlotsOfTheLearnersRank) {
  choice.set = {"adapter.rank=4", "adapter.ranks=[q_proj=9]"};
  ASSERT_TRUE(prepareTraining(settings, choice, source).ok());
  const auto has = [&](const char *key) {
    return std::ranges::count(choice.set, key) > 0;
  };
  EXPECT_TRUE(has("adapter.slots=7"));
  EXPECT_TRUE(has("adapter.kind=lora"));
  EXPECT_TRUE(has("adapter.rank=9")); // the largest of a layer
  EXPECT_EQ(choice.set.back(), "adapter.dropout=0");
  const auto recipe = recipe::loadRecipe("", choice.set);
  ASSERT_TRUE(recipe.ok()) << recipe.message();
  EXPECT_EQ(recipe->adapter.rank, 9);
  EXPECT_TRUE(recipe->adapter.ranks.empty());
}

TEST_F(ServeTraining, RefusesWhatTheEngineWouldNotSample) {
  const std::pair<std::vector<std::string>, const char *> cases[] = {
      {{"adapter.kind=none"}, "--train trains adapters; "},
      {{"adapter.base=int4"}, "--train: adapter.base: int4; "},
      {{"inference.quant=int8"}, "--train: --quant: "},
      {{"adapter.slots=2"}, "--train: adapter.slots is set by "},
      {{"data.documents=joined"}, "--train packs examples into sequences; "},
      {{"task=dpo"}, "--train: task: dpo is not trained over HTTP; "}};
  for (const auto &[set, begin] : cases)
    EXPECT_EQ(errorOf(set).find(begin), 0U) << errorOf(set);
}

TEST_F(ServeTraining, RequiresAModelDirectory) {
  source.reset();
  choice.place = "run";
  EXPECT_EQ(errorOf({}), "--train: 'run' is not a model directory with "
                         "config.json and weights; write one of a run with: "
                         "tessera export RUN -o DIR");
}

TEST_F(ServeTraining, SavesIntoADirectoryThatExists) {
  settings.directory = "/no such directory";
  EXPECT_EQ(errorOf({}), "--train-directory: '/no such directory' is not a "
                         "directory; create it first");
}

} // namespace
} // namespace tessera
