// The slots of a program that has room for the given adapters.
#include "compiler/api/AdapterSettings.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "test/runtime/weights/OneMatrix.h"
#include "test/support/ScratchDirectory.h"

namespace tessera {
namespace {

using Keys = std::vector<std::string>;

class AdapterSettingsTest : public ::testing::Test {
protected:
  /// An adapter of `layer` in a directory of its own.
  std::string write(const std::string &name, const std::string &layer,
                    uint64_t rank, bool isDora = false) {
    const std::string directory = scratch / name;
    std::filesystem::create_directory(directory);
    std::ofstream(directory + "/adapter_config.json")
        << R"({"peft_type": "LORA", "lora_alpha": 6, "use_dora": )"
        << (isDora ? "true" : "false") << "}";
    const std::string path = "base_model.model.model.layers.0." + layer;
    const std::string a = path + ".lora_A.weight", b = path + ".lora_B.weight",
                      m = path + ".lora_magnitude_vector";
    testing::PackedFile file;
    file.add(a.c_str(), SafetensorsType::f32, {rank, 3},
             std::vector<float>(rank * 3));
    file.add(b.c_str(), SafetensorsType::f32, {2, rank},
             std::vector<float>(2 * rank));
    if (isDora)
      file.add(m.c_str(), SafetensorsType::f32, {2}, std::vector<float>(2));
    file.write(directory + "/adapter_model.safetensors");
    return directory;
  }
  std::string error() { return std::string(settings.keys().message()); }

  testing::ScratchDirectory scratch;
  AdapterSettings settings;
};

TEST_F(AdapterSettingsTest, AreNoKeysWithoutAdapters) {
  EXPECT_FALSE(settings.isUsed());
  EXPECT_EQ(*settings.keys(), Keys());
  settings.rank = 8;
  EXPECT_EQ(error(), "--adapter-rank and --adapter-target have no meaning "
                     "without --adapter or --adapter-slots");
}

TEST_F(AdapterSettingsTest, HaveRoomForUsualAdapters) {
  settings.slots = 4;
  EXPECT_EQ(*settings.keys(),
            (Keys{"adapter.kind=lora", "adapter.rank=16", "adapter.slots=4",
                  "adapter.target=[all]"}));
}

TEST_F(AdapterSettingsTest, HaveRoomForAllThatAreGiven) {
  settings.given = {{"one", write("one", "self_attn.v_proj", 2)},
                    {"two", write("two", "self_attn.q_proj", 5)},
                    {"three", write("three", "self_attn.q_proj", 1, true)}};
  EXPECT_EQ(*settings.keys(),
            (Keys{"adapter.kind=dora", "adapter.rank=5", "adapter.slots=3",
                  "adapter.target=[q_proj, v_proj]"}));
  settings.slots = 2;
  EXPECT_EQ(error(), "3 adapters are more than --adapter-slots 2");
  settings.slots = 0;
  settings.rank = 4;
  EXPECT_EQ(error(), "'" + settings.given[1].directory +
                         "' has rank 5, more than --adapter-rank 4");
}

TEST_F(AdapterSettingsTest, ComeBeforeTheUsersKeys) {
  settings.slots = 1;
  ModelChoice choice;
  choice.place = TESSERA_SPECS "/tiny-gpt2";
  choice.set = {"adapter.rank=2"};
  const auto source = findModel(choice.place);
  ASSERT_TRUE(source.ok() && *source);
  EXPECT_TRUE(settings.apply(choice, *source).ok());
  EXPECT_EQ(choice.set.size(), 5U);
  EXPECT_EQ(choice.set.back(), "adapter.rank=2");
}

TEST_F(AdapterSettingsTest, AreNotOfARun) {
  settings.slots = 1;
  ModelChoice choice;
  choice.place = "run";
  EXPECT_EQ(settings.apply(choice, std::nullopt).message(),
            "adapters are used with a model directory or a packaged model, and "
            "'run' is neither; export a run first: tessera export");
  EXPECT_TRUE(choice.set.empty());
}

} // namespace
} // namespace tessera
