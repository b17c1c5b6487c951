// From the command line to generated text, on the real session and device.
#include "runtime/generate/Generate.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/TrainCommand.h"
#include "test/runtime/train/BigramArtifact.h"

#include <csignal>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace tessera;
using namespace tessera::testing;
namespace fs = std::filesystem;

namespace {

class SessionTrain : public ::testing::Test {
protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 60; ++i)
      text += "the cat sat. ";
    writeTextTokens(scratch / "tokens", text);
    std::ofstream(program(), std::ios::binary) << bigramProgram();
  }
  std::string program() { return scratch / "train.tsr"; }
  /// Runs the training command in this process.
  int train(std::vector<std::string> arguments) {
    std::vector<const char *> argv = {"train"};
    for (const std::string &each : arguments)
      argv.push_back(each.c_str());
    ::testing::internal::CaptureStderr();
    ::testing::internal::CaptureStdout();
    int code = trainMain(int(argv.size()), argv.data(), program());
    err = ::testing::internal::GetCapturedStderr();
    out = ::testing::internal::GetCapturedStdout();
    return code;
  }
  std::vector<std::string> common(const std::string &run) {
    return {"--data", scratch / "tokens", "--out", scratch / run};
  }
  std::vector<std::string> with(const std::string &run,
                                std::vector<std::string> more) {
    std::vector<std::string> all = common(run);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  StatusOr<GenerateResult> generate(const std::string &path,
                                    GenerateOptions options,
                                    std::string &text) {
    options.threads = 1;
    return generateFromRun(
        path, options, [&](std::string_view piece) { text += piece; },
        [](std::string_view) {});
  }

  ScratchDirectory scratch;
  std::string err, out;
};

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_F(SessionTrain, LearnsTheTextAndGeneratesIt) {
  ASSERT_EQ(train(with("run", {"--threads", "2"})), 0) << err;
  for (const char *part :
       {"planned peak memory:", "outside of the plan:", "66.0k parameters",
        "loss to beat: ln V = 5.5491, unigram entropy of the text = 2.5",
        "step 60/60", "mfu", "held-out loss", "goodput: ", "peak memory:"})
    EXPECT_TRUE(contains(err, part)) << part << " in\n" << err;
  EXPECT_EQ(out, "");
  GenerateOptions options;
  options.prompt = "the c";
  options.maxTokens = 25;
  options.sampling.temperature = 0;
  std::string text;
  auto result = generate(scratch / "run", options, text);
  ASSERT_TRUE(result.ok()) << result.message();
  EXPECT_EQ(result->checkpoint, "step-000060");
  EXPECT_EQ(result->promptTokens, 5u);
  EXPECT_EQ(result->tokens.size(), 25u);
  // A bigram model cannot tell which word follows, but every letter is one of
  // the text's.
  for (char letter : text)
    EXPECT_NE(std::string("the cat sat. ").find(letter), std::string::npos);
  EXPECT_TRUE(contains(text, "at")) << text;
}

TEST_F(SessionTrain, CopiesInTheRunAreEnoughToGenerate) {
  ASSERT_EQ(train(with("run", {"--steps", "5", "--quiet"})), 0) << err;
  EXPECT_EQ(err, "");
  fs::remove_all(scratch / "tokens");
  fs::remove(program());
  for (std::string path :
       {scratch / "run", scratch / "run/", scratch / "run/step-000005"}) {
    std::string text;
    auto result = generate(path, {}, text);
    EXPECT_TRUE(result.ok()) << path << result.message();
  }
  EXPECT_TRUE(verifyCheckpoint(scratch / "run/step-000005").ok());
}

TEST_F(SessionTrain, ResumeAndThreadsAreBitwise) {
  ASSERT_EQ(train(with("whole", {"--threads", "1", "--dump-metrics"})), 0);
  std::string whole = out;
  ASSERT_EQ(train(with("parts",
                       {"--threads", "2", "--dump-metrics", "--steps", "23"})),
            0);
  std::string parts = out;
  ASSERT_EQ(
      train(with("parts", {"--threads", "2", "--dump-metrics", "--resume"})),
      0);
  parts += out;
  EXPECT_EQ(whole, parts);
  EXPECT_EQ(std::count(whole.begin(), whole.end(), '\n'), 60);
  EXPECT_EQ(fileBytes(scratch / "whole/step-000060/model.safetensors"),
            fileBytes(scratch / "parts/step-000060/model.safetensors"));
}

TEST_F(SessionTrain, JsonRecordsGoToStandardOutput) {
  ASSERT_EQ(train(with("run", {"--steps", "3", "--json"})), 0) << err;
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 3);
  EXPECT_TRUE(out.starts_with("{\"step\":1,\"loss\":"));
  EXPECT_TRUE(contains(out, "\"mfu\":"));
}

TEST_F(SessionTrain, SetTakesEffect) {
  ASSERT_EQ(train(with("run", {"--steps", "1", "--json", "--set",
                               "optimizer.lr=0.125"})),
            0);
  EXPECT_TRUE(contains(out, "\"lr\":0.125,")) << out;
}

TEST_F(SessionTrain, AnotherModelsCheckpointIsRefused) {
  ASSERT_EQ(train(with("run", {"--steps", "2"})), 0);
  std::string before = fileBytes(scratch / "run/program.tsr");
  std::ofstream(program(), std::ios::binary) << bigramProgram("other");
  EXPECT_EQ(train(with("run", {"--resume"})), 1);
  EXPECT_TRUE(contains(err, "note is \"bigram\" there and \"other\" here"))
      << err;
  EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 2) << err;
  EXPECT_EQ(fileBytes(scratch / "run/program.tsr"), before);
}

TEST_F(SessionTrain, ImportedWeightsReproduceTheLoss) {
  ASSERT_EQ(train(with("run", {})), 0);
  ASSERT_EQ(train(with("again", {"--init-from", scratch / "run/step-000060",
                                 "--steps", "1", "--json"})),
            0)
      << err;
  EXPECT_TRUE(contains(err, "loaded 1 tensors"));
  auto loss = [](const std::string &line) {
    return std::stof(line.substr(line.find("\"loss\":") + 7));
  };
  EXPECT_LT(loss(out), 1.0f);
}

TEST_F(SessionTrain, TheNullDeviceChecksThePlanAndWritesNothing) {
  EXPECT_EQ(train(with("run", {"--device", "null", "--steps", "2"})), 0) << err;
  EXPECT_TRUE(contains(err,
                       "the plan of init, train_step, eval_step for cpu is "
                       "valid"))
      << err;
  EXPECT_FALSE(fs::exists(scratch / "run"));
}

TEST_F(SessionTrain, WhatStartsARunIsRefusedWhereOneResumes) {
  ASSERT_EQ(train(with("run", {"--steps", "2"})), 0) << err;
  EXPECT_EQ(
      train(with("run", {"--resume", "--steps", "3", "--set", "seed=99"})), 1);
  EXPECT_TRUE(contains(err, "was trained with seed")) << err;
  EXPECT_EQ(
      train(with("run", {"--resume", "--steps", "3", "--init-from", "x"})), 1);
  EXPECT_TRUE(
      contains(err, "did not begin from the weights of 'x'; leave one of"))
      << err;
}

TEST_F(SessionTrain, ProfileIsATrace) {
  ASSERT_EQ(
      train(with("run", {"--steps", "2", "--profile", scratch / "trace.json"})),
      0)
      << err;
  EXPECT_TRUE(contains(err, "bigram_train"));
  EXPECT_TRUE(contains(fileBytes(scratch / "trace.json"), "bigram_train"));
}

TEST_F(SessionTrain, WrongCommandLinesExitWithTwo) {
  EXPECT_EQ(train({"--no-such-option"}), 2);
  EXPECT_EQ(train({"--device", "toaster"}), 2);
  EXPECT_EQ(train({"--steps", "-1"}), 2);
  EXPECT_EQ(train({"--help"}), 0);
  EXPECT_TRUE(contains(out, "--checkpoint-every"));
}

TEST_F(SessionTrain, InputsOfATeacherMustFitEachOther) {
  using artifact::ElementType;
  const auto errorOf = [&](int64_t tokens, int64_t logProbs,
                           ElementType type = ElementType::f32) {
    std::ofstream(program(), std::ios::binary) << bigramProgram(
        "bigram", {{"teacher_tokens", ElementType::i32, {2, 4, 16, tokens}},
                   {"teacher_log_probs", type, {2, 4, 16, logProbs}}});
    EXPECT_EQ(train(common("run")), 1);
    return err;
  };
  const std::string other = "compiled by another version";
  EXPECT_TRUE(contains(errorOf(3, 3), other)) << err;
  EXPECT_TRUE(contains(errorOf(65536, 65537), other)) << err;
  EXPECT_TRUE(contains(errorOf(3, 4, ElementType::i32), other)) << err;
  // The tokens are a stream: what is refused is the data.
  EXPECT_TRUE(contains(errorOf(3, 4), "is a stream of tokens")) << err;
}

TEST_F(SessionTrain, ErrorsAreOneLineAndExitWithOne) {
  EXPECT_EQ(train({"--data", scratch / "absent", "--quiet"}), 1);
  EXPECT_TRUE(err.starts_with("error: cannot read the token directory"));
  EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1);
}

namespace {

/// Starts a long run in a child process and waits for its first checkpoint.
pid_t startChild(const std::string &program, const std::string &tokens,
                 const std::string &run) {
  pid_t child = ::fork();
  if (child != 0)
    return child;
  const char *argv[] = {
      "train",     "--data",  tokens.c_str(), "--out",
      run.c_str(), "--steps", "1000000",      "--checkpoint-every",
      "5",         "--quiet", "--threads",    "1"};
  ::_exit(trainMain(std::size(argv), argv, program));
}

void waitForCheckpoint(const std::string &run) {
  for (int i = 0; i < 3000; ++i) {
    auto names = listCheckpoints(run);
    if (names.ok() && !names->empty())
      return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL() << "no checkpoint within 30 s";
}

} // namespace

TEST_F(SessionTrain, SignalsCheckpointAndExitWithZero) {
  for (int signal : {SIGINT, SIGTERM}) {
    std::string run = scratch / ("signal-" + std::to_string(signal));
    pid_t child = startChild(program(), scratch / "tokens", run);
    ASSERT_GT(child, 0);
    waitForCheckpoint(run);
    ::kill(child, signal);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    // The last line of the log and the newest checkpoint are the same step.
    auto names = listCheckpoints(run);
    ASSERT_TRUE(names.ok() && !names->empty());
    std::string log = fileBytes(run + "/metrics.jsonl");
    std::size_t last = log.rfind("{\"step\":");
    EXPECT_EQ(checkpointName(std::stoull(log.substr(last + 8))),
              names->front());
  }
}

TEST_F(SessionTrain, AKilledProcessResumesBitwise) {
  std::string run = scratch / "killed";
  pid_t child = startChild(program(), scratch / "tokens", run);
  ASSERT_GT(child, 0);
  waitForCheckpoint(run);
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  auto names = listCheckpoints(run);
  ASSERT_TRUE(names.ok() && !names->empty());
  uint64_t step = std::stoull(names->front().substr(5));
  std::string last = std::to_string(step + 7);
  ASSERT_EQ(train({"--data", scratch / "tokens", "--out", run, "--resume",
                   "--steps", last}),
            0)
      << err;
  ASSERT_EQ(train({"--data", scratch / "tokens", "--out", scratch / "whole",
                   "--steps", last}),
            0);
  std::string name = "/" + checkpointName(step + 7) + "/model.safetensors";
  EXPECT_EQ(fileBytes(run + name), fileBytes(scratch / "whole" + name));
}
