#include "runtime/generate/Export.h"
#include "runtime/support/Floats.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/RunDirectory.h"
#include "test/runtime/train/BigramArtifact.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

using namespace tessera;
using namespace tessera::testing;

namespace {

/// A run with one checkpoint of the model.
void makeRun(const std::string &run, FakeTrainModel &model) {
  std::ofstream(run + "/" + kTokenizerFile) << byteTokenizer();
  ASSERT_TRUE(model.initialize(5).ok());
  ASSERT_TRUE(
      saveCheckpoint(systemFiles(), run, model, {1, 0, 0, 7}, "seed: 7\n", 3)
          .ok());
}

} // namespace

// Of numbers of elements that are no multiple of eight, too.
TEST(Export, ConvertsTensorsOfAnyLength) {
  for (int64_t elements : {3, 100}) {
    ScratchDirectory scratch;
    FakeTrainModel model(elements);
    makeRun(scratch.path, model);
    for (SafetensorsType type :
         {SafetensorsType::bf16, SafetensorsType::f16, SafetensorsType::f32}) {
      std::string made = scratch / std::string(safetensorsName(type));
      auto exported = exportRun({scratch.path, ""}, made, type, false,
                                [](std::string_view) {});
      ASSERT_TRUE(exported.ok()) << exported.message();
      auto file = SafetensorsFile::open(made + "/model.safetensors");
      ASSERT_TRUE(file.ok()) << file.message();
      const SafetensorsEntry *entry = file->header().find("model.weight");
      ASSERT_NE(entry, nullptr);
      const uint64_t width = safetensorsBits(type) / 8;
      ASSERT_EQ(entry->end - entry->begin, uint64_t(elements) * width);
      for (int64_t i = 0; i < elements; ++i) {
        uint32_t bits = 0;
        ASSERT_TRUE(file->read(*entry, uint64_t(i) * width,
                               std::as_writable_bytes(std::span(&bits, 1))
                                   .first(std::size_t(width)))
                        .ok());
        float value = type == SafetensorsType::f32 ? std::bit_cast<float>(bits)
                      : type == SafetensorsType::bf16
                          ? bf16ToFloat(uint16_t(bits))
                          : f16ToFloat(uint16_t(bits));
        EXPECT_NEAR(value, model.weight[std::size_t(i)], 0.004f) << i;
      }
    }
  }
}

TEST(Export, LeavesWhatIsThereAlone) {
  ScratchDirectory scratch;
  FakeTrainModel model(3);
  makeRun(scratch.path, model);
  std::string made = scratch / "made";
  std::filesystem::create_directory(made);
  auto exported =
      exportRun({scratch.path, ""}, made, {}, false, [](std::string_view) {});
  ASSERT_FALSE(exported.ok());
  EXPECT_EQ(exported.message(),
            "'" + made + "' is there already; choose another directory");
  EXPECT_TRUE(std::filesystem::is_empty(made));
}

TEST(Export, MergesAdaptersOnly) {
  ScratchDirectory scratch;
  FakeTrainModel model(3);
  makeRun(scratch.path, model);
  auto exported = exportRun({scratch.path, ""}, scratch / "made", {}, true,
                            [](std::string_view) {});
  ASSERT_FALSE(exported.ok());
  EXPECT_EQ(exported.message(), "'" + scratch.path +
                                    "' has no adapter to merge; leave --merge "
                                    "out");
}
