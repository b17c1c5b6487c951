#include "runtime/train/Checkpoint.h"
#include "runtime/train/RunDirectory.h"
#include "test/runtime/train/FakeTrainModel.h"
#include "test/runtime/train/FaultyFiles.h"

#include <fstream>

#include <gtest/gtest.h>

using namespace tessera;
using namespace tessera::testing;
namespace fs = std::filesystem;

namespace {

/// A model whose whole state says which step it is at.
void setState(FakeTrainModel &model, uint64_t step) {
  for (std::size_t i = 0; i < model.weight.size(); ++i) {
    model.weight[i] = float(step) + float(i) / 64;
    model.moment[i] = -float(step) - float(i) / 32;
  }
  model.step = int64_t(step);
  model.hyper[0] = float(step) / 1000;
}

bool stateIs(const FakeTrainModel &model, uint64_t step) {
  FakeTrainModel expected(model.info.vocabSize);
  setState(expected, step);
  return model.weight == expected.weight && model.moment == expected.moment &&
         model.step == expected.step && model.hyper[0] == expected.hyper[0];
}

Status saveAt(FileOperations &files, const std::string &run, uint64_t step,
              uint64_t keep = 3) {
  FakeTrainModel model;
  setState(model, step);
  return saveCheckpoint(files, run, model, {step, step * 10, step * 6, 7},
                        "seed: 7\n", keep);
}

std::vector<std::string> namesIn(const std::string &run) {
  auto names = listCheckpoints(run);
  EXPECT_TRUE(names.ok()) << names.message();
  return names.ok() ? *names : std::vector<std::string>();
}

void flipBit(const std::string &path, uint64_t bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  char byte = 0;
  file.seekg(std::streamoff(bit / 8)).get(byte);
  file.seekp(std::streamoff(bit / 8)).put(char(byte ^ (1 << (bit % 8))));
}

} // namespace

TEST(Checkpoint, RoundTripsStateAndPosition) {
  ScratchDirectory run;
  ASSERT_TRUE(saveAt(systemFiles(), run.path, 100).ok());
  FakeTrainModel model;
  auto resumed = resumeNewest(run.path, model);
  ASSERT_TRUE(resumed.ok()) << resumed.message();
  ASSERT_TRUE(resumed->has_value());
  EXPECT_EQ((*resumed)->name, "step-000100");
  EXPECT_TRUE(stateIs(model, 100));
  const CheckpointManifest &manifest = (*resumed)->manifest;
  EXPECT_EQ(manifest.position.step, 100u);
  EXPECT_EQ(manifest.position.tokens, 1000u);
  EXPECT_EQ(manifest.position.dataCursor, 600u);
  EXPECT_EQ(manifest.position.seed, 7);
  EXPECT_EQ(manifest.programHash, model.info.programHash);
  EXPECT_EQ(manifest.recipe, "seed: 7\n");
}

// What others call "experts.2.weight" is entry 2 of a stack, in the moments'
// file too.
TEST(Checkpoint, StacksAreTakenApartAndPutTogether) {
  auto stack = [](FakeTrainModel &model) {
    for (int i : {0, 1})
      model.tensors[i].shape = {4, 2, 4};
    model.tensors[0].name = "model.experts.*.weight";
    model.tensors[1].name = "model.experts.*.weight.exp_avg";
  };
  ScratchDirectory run;
  FakeTrainModel model, other;
  stack(model);
  stack(other);
  setState(model, 100);
  ASSERT_TRUE(saveCheckpoint(systemFiles(), run.path, model, {100, 0, 0, 7},
                             "seed: 7\n", 3)
                  .ok());
  std::string folder = run / "step-000100";
  for (const char *file : {"model.safetensors", "optimizer.safetensors"}) {
    auto opened = SafetensorsFile::open(folder + "/" + file);
    ASSERT_TRUE(opened.ok()) << opened.message();
    std::string name = "model.experts.2.weight";
    bool moments = file == std::string("optimizer.safetensors");
    const SafetensorsEntry *entry =
        opened->header().find(moments ? name + ".exp_avg" : name);
    ASSERT_NE(entry, nullptr) << file;
    EXPECT_EQ(entry->shape, (std::vector<uint64_t>{2, 4}));
    std::vector<float> values(8);
    ASSERT_TRUE(
        opened->read(*entry, 0, std::as_writable_bytes(std::span(values)))
            .ok());
    const std::vector<float> &all = moments ? model.moment : model.weight;
    EXPECT_EQ(values, std::vector<float>(all.begin() + 16, all.begin() + 24));
    EXPECT_EQ(opened->header().find("model.experts.*.weight"), nullptr);
  }
  auto resumed = resumeNewest(run.path, other);
  ASSERT_TRUE(resumed.ok()) << resumed.message();
  EXPECT_TRUE(stateIs(other, 100));
}

TEST(Checkpoint, AbsentAndEmptyRunsHaveNone) {
  ScratchDirectory run;
  FakeTrainModel model;
  auto resumed = resumeNewest(run / "absent", model);
  ASSERT_TRUE(resumed.ok());
  EXPECT_FALSE(resumed->has_value());
}

TEST(Checkpoint, KeepsTheNewest) {
  ScratchDirectory run;
  for (uint64_t step : {5, 10, 15, 1000000})
    ASSERT_TRUE(saveAt(systemFiles(), run.path, step, 2).ok());
  EXPECT_EQ(namesIn(run.path),
            (std::vector<std::string>{"step-1000000", "step-000015"}));
  ASSERT_TRUE(saveAt(systemFiles(), run.path, 1000001, 0).ok());
  EXPECT_EQ(namesIn(run.path).size(), 3u);
}

TEST(Checkpoint, ListsOnlyWhatItWouldName) {
  ScratchDirectory run;
  for (const char *name : {"step-000007", "step-7", "step-", "step-00000x",
                           ".tmp-step-000008", "step-000009.old"})
    fs::create_directory(run / name);
  std::ofstream(run / "step-000010") << "a file";
  EXPECT_EQ(namesIn(run.path), (std::vector<std::string>{"step-000007"}));
}

TEST(Checkpoint, EveryFlippedBitIsFound) {
  ScratchDirectory run;
  ASSERT_TRUE(saveAt(systemFiles(), run.path, 1).ok());
  ASSERT_TRUE(saveAt(systemFiles(), run.path, 2).ok());
  int tried = 0;
  for (const auto &entry : fs::directory_iterator(run / "step-000002")) {
    std::string path = entry.path().string();
    uint64_t bits = 8 * fs::file_size(path);
    for (uint64_t bit = 0; bit < bits; bit += 37, ++tried) {
      flipBit(path, bit);
      FakeTrainModel model;
      auto resumed = resumeNewest(run.path, model);
      // White space of the manifest may turn into other white space.
      bool same = resumed.ok() && resumed->has_value() && stateIs(model, 2);
      if (same)
        EXPECT_TRUE(path.ends_with("manifest.json")) << path << " bit " << bit;
      else {
        ASSERT_TRUE(resumed.ok()) << resumed.message();
        EXPECT_EQ((*resumed)->name, "step-000001") << path << " bit " << bit;
        EXPECT_EQ((*resumed)->skipped.size(), 1u);
        EXPECT_TRUE(stateIs(model, 1));
      }
      flipBit(path, bit);
    }
  }
  EXPECT_GT(tried, 200);
}

TEST(Checkpoint, TruncatedOrMissingFilesAreFound) {
  for (const char *name : {"model.safetensors", "optimizer.safetensors",
                           "config.json", "manifest.json"})
    for (bool remove : {false, true}) {
      ScratchDirectory run;
      ASSERT_TRUE(saveAt(systemFiles(), run.path, 1).ok());
      ASSERT_TRUE(saveAt(systemFiles(), run.path, 2).ok());
      std::string path = run / "step-000002/" + name;
      if (remove)
        fs::remove(path);
      else
        fs::resize_file(path, fs::file_size(path) - 1);
      FakeTrainModel model;
      auto resumed = resumeNewest(run.path, model);
      ASSERT_TRUE(resumed.ok()) << resumed.message();
      // The manifest's last byte is its newline, which means nothing.
      bool harmless = !remove && std::string(name) == "manifest.json";
      EXPECT_EQ((*resumed)->name, harmless ? "step-000002" : "step-000001");
    }
}

TEST(Checkpoint, AllDamagedIsAnErrorThatNamesTheNewest) {
  ScratchDirectory run;
  for (uint64_t step : {1, 2}) {
    ASSERT_TRUE(saveAt(systemFiles(), run.path, step).ok());
    fs::remove(run / checkpointName(step) + "/manifest.json");
  }
  FakeTrainModel model;
  auto resumed = resumeNewest(run.path, model);
  ASSERT_FALSE(resumed.ok());
  EXPECT_NE(resumed.message().find("all 2 checkpoints"), std::string::npos);
  EXPECT_NE(resumed.message().find("step-000002"), std::string::npos);
}

TEST(Checkpoint, AnotherModelIsRefusedByField) {
  ScratchDirectory run;
  FakeTrainModel writer(32, R"({"n_layer": 12, "n_embd": 8})");
  ASSERT_TRUE(
      saveCheckpoint(systemFiles(), run.path, writer, {3, 0, 0, 0}, "", 3)
          .ok());
  FakeTrainModel reader(32, R"({"n_layer": 6, "n_embd": 8})");
  setState(reader, 9);
  auto resumed = resumeNewest(run.path, reader);
  ASSERT_FALSE(resumed.ok());
  EXPECT_NE(resumed.message().find("n_layer is 12 there and 6 here"),
            std::string::npos)
      << resumed.message();
  EXPECT_TRUE(stateIs(reader, 9)) << "the state must not change";
}

TEST(Checkpoint, AnotherProgramIsRefusedByTensor) {
  ScratchDirectory run;
  ASSERT_TRUE(saveAt(systemFiles(), run.path, 3).ok());
  FakeTrainModel longer(33, R"({"n":1})");
  auto resumed = resumeNewest(run.path, longer);
  ASSERT_FALSE(resumed.ok());
  EXPECT_NE(resumed.message().find(
                "'model.weight' is F32 [32] there and F32 [33] here"),
            std::string::npos)
      << resumed.message();
  FakeTrainModel renamed;
  renamed.tensors[1].name = "model.weight.exp_avg_sq";
  resumed = resumeNewest(run.path, renamed);
  ASSERT_FALSE(resumed.ok());
  EXPECT_NE(resumed.message().find("no tensor 'model.weight.exp_avg_sq'"),
            std::string::npos);
}

TEST(Checkpoint, ConfigDifferenceNamesAbsentKeys) {
  EXPECT_EQ(configDifference(R"({"a":1,"b":[1]})", R"({"b":[1],"a":1})"), "");
  EXPECT_EQ(configDifference(R"({"a":1})", R"({"a":1,"b":"x"})"),
            "b is absent there and \"x\" here");
}

// Printing and comparing recurse; neither may be asked to go that deep.
TEST(Checkpoint, DeeplyNestedFilesAreRefused) {
  std::string deep =
      "{\"a\":" + std::string(1 << 20, '[') + std::string(1 << 20, ']') + "}";
  EXPECT_EQ(configDifference(deep, deep + " "), "config.json differs");
  ScratchDirectory run;
  ASSERT_TRUE(saveAt(systemFiles(), run.path, 1).ok());
  std::string checkpoint = run / checkpointName(1);
  deep.insert(1, "\"manifest_xxh3_64\":\"0123456789abcdef\",");
  std::ofstream(checkpoint + "/manifest.json") << deep;
  EXPECT_NE(verifyCheckpoint(checkpoint).message().find("is not a json object"),
            std::string::npos);
}

TEST(Checkpoint, DamagedLeftoverOfTheSameStepIsReplaced) {
  ScratchDirectory run;
  ASSERT_TRUE(saveAt(systemFiles(), run.path, 1).ok());
  ASSERT_TRUE(saveAt(systemFiles(), run.path, 2).ok());
  fs::remove(run / "step-000002/manifest.json");
  ASSERT_TRUE(saveAt(systemFiles(), run.path, 2).ok());
  FakeTrainModel model;
  auto resumed = resumeNewest(run.path, model);
  ASSERT_TRUE(resumed.ok()) << resumed.message();
  EXPECT_EQ((*resumed)->name, "step-000002");
}

TEST(Checkpoint, NewerDamagedOnesDoNotPushIntactOnesOut) {
  ScratchDirectory run;
  for (uint64_t step : {10, 20, 30})
    ASSERT_TRUE(saveAt(systemFiles(), run.path, step, 0).ok());
  for (uint64_t step : {20, 30})
    fs::remove(run / checkpointName(step) + "/manifest.json");
  ASSERT_TRUE(saveAt(systemFiles(), run.path, 15, 2).ok());
  std::vector<std::string> expected = {"step-000030", "step-000020",
                                       "step-000015", "step-000010"};
  EXPECT_EQ(namesIn(run.path), expected);
}

/// Saves step 2 over an intact step 1 with a fault at every operation. Whatever
/// happens, the next start finds a whole checkpoint, and step 2 if the save
/// said so.
class CheckpointFault : public ::testing::TestWithParam<Fault> {};

TEST_P(CheckpointFault, NeverLosesTheCheckpointBefore) {
  uint64_t faults = 0;
  for (uint64_t keep : {1, 3}) {
    for (uint64_t at = 0;; ++at) {
      ScratchDirectory run;
      ASSERT_TRUE(saveAt(systemFiles(), run.path, 1).ok());
      FaultyFiles files(at, GetParam());
      Status saved = saveAt(files, run.path, 2, keep);
      bool complete = files.operations() <= at;
      if (GetParam() == Fault::powerCut)
        files.loseUnsynced();
      if (complete)
        ASSERT_TRUE(saved.ok()) << saved.message();

      auto next = RunDirectory::open(run.path);
      ASSERT_TRUE(next.ok()) << next.message();
      FakeTrainModel model;
      auto resumed = resumeNewest(run.path, model);
      ASSERT_TRUE(resumed.ok()) << "operation " << at << resumed.message();
      ASSERT_TRUE(resumed->has_value()) << "operation " << at;
      uint64_t step = (*resumed)->manifest.position.step;
      EXPECT_TRUE(stateIs(model, step)) << "operation " << at;
      EXPECT_TRUE((*resumed)->skipped.empty())
          << "operation " << at << ": half-written checkpoint in sight";
      if (saved.ok())
        EXPECT_EQ(step, 2u) << "operation " << at;
      // And the run goes on.
      EXPECT_TRUE(saveAt(systemFiles(), run.path, 3, keep).ok());
      if (complete)
        break;
      ++faults;
    }
  }
  EXPECT_GT(faults, 50u);
}

INSTANTIATE_TEST_SUITE_P(EveryOperation, CheckpointFault,
                         ::testing::Values(Fault::error, Fault::tornWrite,
                                           Fault::powerCut));

TEST(Checkpoint, AFailedSaveGivesTheSpaceBackAndSaysSo) {
  ScratchDirectory run;
  FaultyFiles files(6, Fault::tornWrite);
  Status saved = saveAt(files, run.path, 2);
  ASSERT_FALSE(saved.ok());
  EXPECT_NE(saved.message().find("step-000002 was not saved, earlier ones are "
                                 "untouched"),
            std::string::npos)
      << saved.message();
  EXPECT_TRUE(fs::is_empty(run.path));
}
