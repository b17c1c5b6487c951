#include "runtime/train/Train.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/RunDirectory.h"
#include "runtime/train/TrainCommand.h"
#include "test/runtime/train/FakeTrainModel.h"
#include "test/runtime/train/FaultyFiles.h"

#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

using namespace tessera;
using namespace tessera::testing;
namespace fs = std::filesystem;

namespace {

std::string slurp(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> linesOf(const std::string &path) {
  std::istringstream text(slurp(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);)
    lines.push_back(line);
  return lines;
}

/// A token directory of train and eval splits.
class TrainTest : public ::testing::Test {
protected:
  void SetUp() override {
    writeSplit(scratch / "tokens/train", {150, 90, 111}, 32);
    writeSplit(scratch / "tokens/eval", {100}, 32);
    std::ofstream(scratch / "tokens/tokenizer.json") << "{}";
  }
  TrainOptions options(const std::string &run) {
    TrainOptions result;
    result.data = scratch / "tokens";
    result.out = scratch / run;
    result.quiet = true;
    result.stop = [] { return false; };
    return result;
  }
  /// Runs a fresh model and returns its error, empty on success.
  std::string train(const TrainOptions &with) {
    model = FakeTrainModel();
    auto result = runTraining(model, with);
    if (result.ok())
      summary = *result;
    return outcomeOf(result).message();
  }

  ScratchDirectory scratch;
  FakeTrainModel model;
  TrainSummary summary;
};

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_F(TrainTest, TrainsEvaluatesAndSaves) {
  ASSERT_EQ(train(options("run")), "");
  EXPECT_EQ(summary.lastStep, 12u);
  EXPECT_FALSE(summary.stopped);
  ASSERT_TRUE(summary.evalLossBefore && summary.evalLossAfter);
  EXPECT_LT(*summary.evalLossAfter, *summary.evalLossBefore);
  // Every 4 steps, the newest 2 kept, and the last step is saved.
  EXPECT_TRUE(fs::exists(scratch / "run/step-000012/manifest.json"));
  EXPECT_TRUE(fs::exists(scratch / "run/step-000008/manifest.json"));
  EXPECT_FALSE(fs::exists(scratch / "run/step-000004"));
  EXPECT_EQ(slurp(scratch / "run/tokenizer.json"), "{}");
  EXPECT_TRUE(contains(slurp(scratch / "run/recipe.yaml"), "lr: 0.5"));
  std::vector<std::string> lines = linesOf(scratch / "run/metrics.jsonl");
  ASSERT_EQ(lines.size(), 13u); // step 0 holds the first evaluation
  EXPECT_TRUE(contains(lines[0], R"({"step":0,)"));
  EXPECT_TRUE(contains(lines[0], "eval_loss"));
  for (const char *key :
       {"\"loss\":", "\"grad_norm\":", "\"lr\":0.5,", "\"tokens\":48,",
        "\"tokens_per_s\":", "\"goodput\":", "\"step_time\":", "\"wait_time\":",
        "\"peak_bytes\":"})
    EXPECT_TRUE(contains(lines[1], key)) << key << " in " << lines[1];
  EXPECT_FALSE(contains(lines[1], "eval_loss"));
  EXPECT_TRUE(contains(lines[5], "eval_loss"));
  EXPECT_TRUE(contains(lines[12], "eval_loss"));
}

TEST_F(TrainTest, EvaluatesTheSameInGroupsOfBatches) {
  std::optional<double> alone;
  for (int64_t together : {1, 2, 3, 5, 7}) {
    FakeTrainModel grouped;
    grouped.info.evalBatches = together;
    TrainOptions with = options("together-" + std::to_string(together));
    with.sets.push_back("eval.batches=5");
    auto result = runTraining(grouped, with);
    ASSERT_TRUE(result.ok()) << result.message();
    ASSERT_TRUE(result->evalLossAfter);
    EXPECT_EQ(alone.value_or(*result->evalLossAfter), *result->evalLossAfter);
    alone = *result->evalLossAfter;
  }
}

TEST_F(TrainTest, ResumedRunIsBitwiseTheUninterruptedOne) {
  for (uint64_t cut : {1, 5, 8, 11}) {
    std::string run = "cut-" + std::to_string(cut);
    TrainOptions whole = options(run + "-whole");
    ASSERT_EQ(train(whole), "");
    TrainOptions first = options(run);
    first.steps = cut;
    ASSERT_EQ(train(first), "");
    TrainOptions second = options(run);
    second.resume = true;
    ASSERT_EQ(train(second), "");
    EXPECT_EQ(summary.firstStep, cut);
    for (const char *file : {"model.safetensors", "optimizer.safetensors"})
      EXPECT_EQ(slurp(scratch / run + "/step-000012/" + file),
                slurp(scratch / run + "-whole/step-000012/" + file))
          << "cut after step " << cut;
  }
}

TEST_F(TrainTest, AKilledRunGoesOnFromItsCheckpointBitwise) {
  ASSERT_EQ(train(options("whole")), "");
  // Killed after step 10: the last checkpoint is step 8, the log is ahead.
  TrainOptions first = options("run");
  first.steps = 10;
  ASSERT_EQ(train(first), "");
  fs::remove_all(scratch / "run/step-000010");
  std::ofstream(scratch / "run/metrics.jsonl", std::ios::app)
      << R"({"step":11,"los)"; // torn
  TrainOptions second = options("run");
  second.resume = true;
  ASSERT_EQ(train(second), "");
  EXPECT_EQ(summary.firstStep, 8u);
  EXPECT_EQ(slurp(scratch / "run/step-000012/model.safetensors"),
            slurp(scratch / "whole/step-000012/model.safetensors"));
  auto lines = linesOf(scratch / "run/metrics.jsonl");
  ASSERT_EQ(lines.size(), 13u);
  for (std::size_t step = 0; step < lines.size(); ++step)
    EXPECT_TRUE(
        lines[step].starts_with("{\"step\":" + std::to_string(step) + ","))
        << lines[step];
}

TEST_F(TrainTest, HyperparametersTakeEffectAndSurviveResuming) {
  ASSERT_EQ(train(options("plain")), "");
  TrainOptions slow = options("slow");
  slow.sets = {"optimizer.lr=0.25", "optimizer.betas=[0.9, 0.99]"};
  slow.steps = 6;
  ASSERT_EQ(train(slow), "");
  EXPECT_EQ(model.hyper[0], 0.25f);
  EXPECT_EQ(model.hyper[1], 0.9f);
  EXPECT_EQ(model.hyper[2], 0.99f);
  slow.sets.clear();
  slow.steps = 12;
  slow.resume = true;
  ASSERT_EQ(train(slow), "");
  EXPECT_EQ(model.hyper[0], 0.25f) << "--set need not be repeated";
  EXPECT_NE(slurp(scratch / "slow/step-000012/model.safetensors"),
            slurp(scratch / "plain/step-000012/model.safetensors"));
  slow.sets = {"optimizer.lr=0.125", "lr_schedule.total=14"};
  slow.steps.reset();
  ASSERT_EQ(train(slow), "");
  EXPECT_EQ(model.hyper[0], 0.125f) << "--set wins over the checkpoint";
  EXPECT_EQ(model.hyper[1], 0.9f);
  EXPECT_EQ(summary.lastStep, 14u);
}

TEST_F(TrainTest, ASignalFinishesTheStepAndSaves) {
  TrainOptions stopping = options("run");
  int asked = 0;
  stopping.stop = [&] { return ++asked > 6; };
  ASSERT_EQ(train(stopping), "");
  EXPECT_TRUE(summary.stopped);
  EXPECT_EQ(summary.lastStep, 6u);
  EXPECT_TRUE(fs::exists(scratch / "run/step-000006/manifest.json"));
}

TEST_F(TrainTest, ALossThatIsNotFiniteStopsAndKeepsTheCheckpoint) {
  TrainOptions with = options("run");
  model.nanAtStep = 7;
  auto result = runTraining(model, with);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(contains(result->failure, "loss is nan at step 7"));
  EXPECT_TRUE(
      contains(result->failure, "the newest checkpoint is step-000004"));
  EXPECT_EQ(outcomeOf(result).message(), result->failure);
  auto names = listCheckpoints(with.out);
  ASSERT_TRUE(names.ok());
  EXPECT_EQ(*names, std::vector<std::string>{"step-000004"});
}

TEST_F(TrainTest, ARunThatBeganFromWeightsDoesNotResumeWithoutThem) {
  fs::create_directory(scratch / "run");
  std::ofstream(scratch / "run/init-from.txt") << "/models/llama";
  TrainOptions with = options("run");
  with.resume = true;
  EXPECT_TRUE(
      contains(train(with), "began from the weights of '/models/llama'"));
  with.resume = false;
  ASSERT_EQ(train(with), "");
  EXPECT_FALSE(fs::exists(scratch / "run/init-from.txt"));
}

TEST_F(TrainTest, AnExistingRunIsNotOverwritten) {
  ASSERT_EQ(train(options("run")), "");
  std::string before = slurp(scratch / "run/metrics.jsonl");
  EXPECT_TRUE(contains(train(options("run")), "continue it with --resume"));
  EXPECT_EQ(slurp(scratch / "run/metrics.jsonl"), before);
}

TEST_F(TrainTest, ResumeWithoutACheckpointStartsANewRun) {
  TrainOptions with = options("run");
  with.resume = true;
  ASSERT_EQ(train(with), "");
  EXPECT_EQ(summary.firstStep, 0u);
  with.resume = true;
  ASSERT_EQ(train(with), "") << "nothing is left to do, and that is no error";
  EXPECT_EQ(summary.firstStep, 12u);
}

TEST_F(TrainTest, ARunDirectoryInUseIsRefused) {
  auto other = RunDirectory::open(scratch / "run");
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(
      contains(train(options("run")), "another process is training in"));
}

TEST_F(TrainTest, ARunThatIsRefusedLeavesNothing) {
  TrainOptions with = options("run");
  with.initFrom = scratch / "absent";
  EXPECT_NE(train(with), "");
  EXPECT_FALSE(fs::exists(scratch / "run"));
  // A directory that was there stays.
  fs::create_directory(scratch / "run");
  EXPECT_NE(train(with), "");
  EXPECT_TRUE(fs::is_empty(scratch / "run"));
  ASSERT_EQ(train(options("run")), "");
}

TEST_F(TrainTest, ALockThatIsRemovedIsLockedAgain) {
  auto first = RunDirectory::open(scratch / "run");
  ASSERT_TRUE(first.ok());
  fs::remove(scratch / "run/.lock"); // as when a run that wrote nothing ends
  auto next = RunDirectory::open(scratch / "run");
  ASSERT_TRUE(next.ok()) << next.message();
  EXPECT_TRUE(contains(train(options("run")), "another process is training"));
}

TEST_F(TrainTest, AFullDiskWhileSavingIsAnErrorAndLosesNothing) {
  TrainOptions with = options("run");
  with.steps = 4;
  ASSERT_EQ(train(with), "");
  // The operations of a run up to its first save do not depend on the fault.
  for (uint64_t at : {6, 12, 20}) {
    FaultyFiles files(at, Fault::tornWrite);
    TrainOptions resumed = options("run");
    resumed.resume = true;
    FakeTrainModel again;
    auto result = runTraining(again, resumed, files);
    ASSERT_FALSE(result.ok()) << at;
    EXPECT_TRUE(contains(result.message(), "No space left")) << at;
    EXPECT_TRUE(verifyCheckpoint(scratch / "run/step-000004").ok());
  }
}

/// The held-out loss of a step in metrics.jsonl.
static double lossAt(const std::string &metrics, int step) {
  const std::string key = "\"eval_loss\":";
  for (const std::string &line : linesOf(metrics))
    if (line.starts_with(fmt::format("{{\"step\":{},", step)))
      return std::stod(line.substr(line.find(key) + key.size()));
  return -1;
}

TEST_F(TrainTest, EvaluationsThatPassPromoteTheirCheckpoint) {
  TrainOptions with = options("run");
  with.sets = {"gates.require=[eval_loss <= 1e9]"};
  ASSERT_EQ(train(with), "");
  EXPECT_EQ(slurp(scratch / "run/promoted"), "step-000012\n");
  // Of steps 5, 10 and 12 the newest two, of those of every 4 steps none.
  EXPECT_TRUE(fs::exists(scratch / "run/step-000010"));
  EXPECT_FALSE(fs::exists(scratch / "run/step-000008"));
}

TEST_F(TrainTest, AMissedGateStopsTheRunOrIsNoted) {
  TrainOptions with = options("run");
  with.sets = {"gates.require=[eval_loss <= 1e9, eval_loss <= 0]"};
  std::string error = train(with);
  EXPECT_TRUE(error.starts_with("gate missed at step 5: eval_loss <= 0, the "
                                "value is 0."))
      << error;
  EXPECT_TRUE(error.ends_with("; step-000005 is saved")) << error;
  EXPECT_TRUE(fs::exists(scratch / "run/step-000005/manifest.json"));
  EXPECT_FALSE(fs::exists(scratch / "run/promoted"));
  with.out = scratch / "noted";
  with.sets.push_back("gates.on_miss=note");
  EXPECT_EQ(train(with), "");
  EXPECT_EQ(summary.lastStep, 12u);
  EXPECT_FALSE(fs::exists(scratch / "noted/promoted"));
}

TEST_F(TrainTest, ThePromotedCheckpointIsKept) {
  ASSERT_EQ(train(options("free")), "");
  const std::string metrics = scratch / "free/metrics.jsonl";
  const double between = (lossAt(metrics, 5) + lossAt(metrics, 10)) / 2;
  TrainOptions with = options("run");
  with.sets = {fmt::format("gates.require=[eval_loss >= {}]", between),
               "gates.on_miss=note", "checkpoint.every=1", "checkpoint.keep=1"};
  ASSERT_EQ(train(with), "");
  EXPECT_EQ(slurp(scratch / "run/promoted"), "step-000005\n");
  EXPECT_EQ(listCheckpoints(scratch / "run").take(),
            (std::vector<std::string>{"step-000012", "step-000005"}));
  // Also by a resumed run.
  with.resume = true;
  with.steps = 14;
  ASSERT_EQ(train(with), "");
  EXPECT_EQ(listCheckpoints(scratch / "run").take(),
            (std::vector<std::string>{"step-000014", "step-000005"}));
  std::ofstream(scratch / "run/promoted") << "step-000099\n";
  EXPECT_TRUE(contains(train(with), "names 'step-000099', which is not a "
                                    "checkpoint of the run; remove the file"));
}

TEST_F(TrainTest, ARunGoesBackToThePromotedCheckpoint) {
  ASSERT_EQ(train(options("free")), "");
  const std::string metrics = scratch / "free/metrics.jsonl";
  const double between = (lossAt(metrics, 5) + lossAt(metrics, 10)) / 2;
  TrainOptions with = options("run");
  with.sets = {fmt::format("gates.require=[eval_loss >= {}]", between),
               "gates.on_miss=roll_back", "gates.rollbacks=2"};
  const std::string error = train(with);
  EXPECT_TRUE(error.starts_with("gate missed at step 10: ")) << error;
  EXPECT_TRUE(
      error.ends_with(", after going back 2 times; step-000010 is saved"))
      << error;
  EXPECT_EQ(model.step, 10); // counters went back, too
  EXPECT_EQ(slurp(scratch / "run/promoted"), "step-000005\n");
  // Step 8 of the first way is gone, that of the last one is there.
  EXPECT_EQ(
      listCheckpoints(scratch / "run").take(),
      (std::vector<std::string>{"step-000010", "step-000008", "step-000005"}));
  auto manifest = verifyCheckpoint(scratch / "run/step-000010");
  ASSERT_TRUE(manifest.ok()) << manifest.message();
  EXPECT_EQ(manifest->position.dataCursor, 20u * 6); // data is not repeated
  std::vector<std::string> lines = linesOf(scratch / "run/metrics.jsonl");
  ASSERT_EQ(lines.size(), 11u);
  for (std::size_t i = 0; i < lines.size(); ++i)
    EXPECT_TRUE(lines[i].starts_with(fmt::format("{{\"step\":{},", i)));
  // Other data than the first time.
  EXPECT_NE(lines[6].substr(0, 60), linesOf(metrics)[6].substr(0, 60));
}

TEST_F(TrainTest, AMissBeforeAnyPassGoesOn) {
  TrainOptions with = options("run");
  with.sets = {"gates.require=[eval_loss <= 0]", "gates.on_miss=roll_back"};
  ASSERT_EQ(train(with), "");
  EXPECT_EQ(summary.lastStep, 12u);
}

TEST_F(TrainTest, GatesNeedHeldOutData) {
  fs::remove_all(scratch / "tokens/eval");
  TrainOptions with = options("run");
  with.sets = {"gates.require=[eval_loss <= 3]"};
  EXPECT_EQ(train(with), fmt::format("gates.require needs held-out data, and "
                                     "'{}' has no eval/; name a directory with "
                                     "--eval-data",
                                     scratch / "tokens"));
}

TEST_F(TrainTest, BadDataIsRefusedWithTheReason) {
  TrainOptions with = options("run");
  with.data = scratch / "absent";
  EXPECT_TRUE(contains(train(with), "cannot read the token directory"));
  with.data.clear();
  EXPECT_TRUE(contains(train(with), "give --data DIR"));
  writeSplit(scratch / "short/train", {8}, 32);
  with.data = scratch / "short";
  EXPECT_TRUE(contains(train(with), "holds 8 tokens, fewer than one sequence"));
  writeSplit(scratch / "wide/train", {100}, 33);
  with.data = scratch / "wide";
  EXPECT_TRUE(contains(train(with), "a vocabulary of 33 tokens, the model has "
                                    "32"));
  EXPECT_FALSE(fs::exists(scratch / "run")) << "nothing is made for a bad run";
}

TEST_F(TrainTest, ASeedOtherThanTheRunsIsRefusedOnResume) {
  TrainOptions with = options("run");
  with.seed = 5;
  with.steps = 4;
  ASSERT_EQ(train(with), "");
  with.resume = true;
  with.seed = 6;
  EXPECT_TRUE(contains(train(with), "trained with seed 5, --seed says 6"));
  with.seed.reset();
  with.steps = 5;
  EXPECT_EQ(train(with), "");
}

TEST_F(TrainTest, CompiledInKeysAreRefusedWithTheCommand) {
  TrainOptions with = options("run");
  with.sets = {"batch.micro=8"};
  EXPECT_TRUE(contains(train(with),
                       "'batch.micro' is compiled into this program; change it "
                       "in the recipe and run: tessera compile"));
}

TEST(TrainCommand, SaysWhatWasNotExpectedAndMayHaveBeenMeant) {
  const char *words[] = {"train_x", "--stepps", "3"};
  TrainCommandLine parsed = parseTrainCommand(3, words);
  EXPECT_EQ(parsed.exitCode, 2);
  EXPECT_EQ(parsed.message, "error: not expected: '--stepps', did you mean "
                            "'--steps'?, '3'; see --help\n");
}
