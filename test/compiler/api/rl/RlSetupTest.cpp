// What is wrong with a run is said before anything is compiled.
#include "compiler/api/rl/RlSetup.h"

#include "test/compiler/api/rl/TinyRun.h"

namespace tessera {
namespace {

class RlSetup : public testing::TinyRun {
protected:
  RlSetup() { write("model/model.safetensors", ""); }
  void expectError(const std::string &part) {
    EXPECT_NE(errorOfCheck().find(part), std::string::npos) << errorOfCheck();
  }
};

TEST_F(RlSetup, BeginsWithTheWeightsOfTheModelDirectory) {
  EXPECT_EQ(errorOfCheck(), "");
  EXPECT_EQ(arguments.train.initFrom, arguments.place);
  EXPECT_EQ(recipe.task, recipe::Task::Policy);
  ASSERT_TRUE(source);
  EXPECT_EQ(source->name, "model");
}

TEST_F(RlSetup, TakesWeightsThatAreNamed) {
  std::filesystem::remove(scratch / "model/model.safetensors");
  expectError("' has no weights; write a trained model with: tessera export");
  arguments.train.initFrom = scratch / "other";
  EXPECT_EQ(errorOfCheck(), "");
  EXPECT_EQ(arguments.train.initFrom, scratch / "other");
}

TEST_F(RlSetup, EndsWithTheStepThatIsGiven) {
  EXPECT_EQ(errorOfCheck(), "");
  EXPECT_EQ(lastStepOf(arguments, recipe), uint64_t(recipe.schedule.total));
  arguments.train.steps = 7;
  EXPECT_EQ(lastStepOf(arguments, recipe), 7U);
}

TEST_F(RlSetup, RefusesOtherRecipes) {
  write("recipe.yaml", "task: sft\n");
  arguments.recipe = scratch / "recipe.yaml";
  arguments.set.clear();
  expectError("task: sft; tessera rl learns by task: policy");
}

TEST_F(RlSetup, RefusesDataOfTheRecipe) {
  arguments.set.emplace_back("data.train=a folder");
  expectError("tessera rl learns from --prompts; leave them out");
}

TEST_F(RlSetup, LeavesRoomForAPrompt) {
  arguments.set.emplace_back("rollout.max_tokens=32");
  expectError("rollout.max_tokens = 32 leaves no room for a prompt in "
              "batch.sequence = 32");
}

TEST_F(RlSetup, RequiresAModelDirectory) {
  arguments.place = scratch.path;
  expectError("' is not a model directory with config.json; ");
}

TEST_F(RlSetup, NeedsAnAddressForASecret) {
  arguments.secretFile = "secret";
  expectError("name where they join: --rollout-listen HOST:PORT");
}

TEST_F(RlSetup, KeepsModelsAndRunsApart) {
  arguments.train.out = arguments.place;
  expectError("' is a model directory; choose another --out for the run");
}

TEST_F(RlSetup, LeavesTheJournalOfAnotherRun) {
  std::filesystem::create_directory(scratch / "run");
  write("run/samples.jsonl", "");
  expectError(
      "samples.jsonl' is there already; continue its run with --resume");
}

TEST_F(RlSetup, ChoosesTheGpuOfARank) {
  comm::Launch launch;
  launch.localRank = 3;
  arguments.device = "cuda";
  const Status status = checkRun(arguments, &launch, source, recipe);
  EXPECT_EQ(arguments.device, "cuda:3") << status.message();
}

} // namespace
} // namespace tessera
