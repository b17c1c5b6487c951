// A run ends before it compiles if its prompts or its reward cannot work.
// test/e2e has whole runs.
#include "compiler/api/rl/RlRun.h"

#include "test/compiler/api/rl/TinyRun.h"

namespace tessera {
namespace {

class RlRunTest : public testing::TinyRun {
protected:
  std::string errorOfRun() {
    write("model/model.safetensors", "");
    EXPECT_EQ(errorOfCheck(), "");
    const Status status =
        learnByRollouts(arguments, recipe, *source, /*ranks=*/nullptr);
    return status.ok() ? "" : std::string(status.message());
  }
  void expectError(const std::string &part) {
    const std::string error = errorOfRun();
    EXPECT_NE(error.find(part), std::string::npos) << error;
    EXPECT_TRUE(notes.empty()) << notes[0]; // nothing was compiled
  }
};

TEST_F(RlRunTest, ReadsThePromptsFirst) {
  write("prompts.jsonl", "{\"prompt\": \"a\"}\n{\"question\": \"a\"}\n");
  expectError("prompts.jsonl:2");
}

// A sequence has 32 tokens, 8 of them of the completion.
TEST_F(RlRunTest, RefusesAPromptWithoutRoomForItsCompletion) {
  write("prompts.jsonl", "{\"prompt\": \"" + std::string(25, 'a') + "\"}\n");
  expectError("prompts.jsonl:1: the prompt has ");
}

TEST_F(RlRunTest, TellsARewardModelFromAProgram) {
  arguments.reward = scratch / "model";
  expectError("--reward: '" + arguments.reward +
              "' is a directory; write model:" + arguments.reward +
              " if it is a reward model's");
}

TEST_F(RlRunTest, SaysIfThereIsNoRewardModel) {
  arguments.reward = "model:" + scratch.path;
  expectError("--reward: '" + scratch.path +
              "' is not a model directory: it has no config.json");
}

} // namespace
} // namespace tessera
