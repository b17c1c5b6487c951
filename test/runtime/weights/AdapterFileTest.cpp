// Adapters in PEFT's layout, read into one of a model's slots.
#include "runtime/weights/AdapterFile.h"
#include "test/runtime/weights/AdapterSlotsModel.h"
#include "test/runtime/weights/OneMatrix.h"
#include "test/support/ScratchDirectory.h"

#include <array>
#include <cmath>
#include <fstream>
#include <numeric>

namespace tessera {
namespace {

class AdapterFileTest : public ::testing::Test {
protected:
  /// A [rank, in] and B [out, rank] of 1, 2, 3 and so on, and `magnitudes`
  /// unless it is empty.
  void write(std::string_view config, uint64_t rank, uint64_t in = 3,
             uint64_t out = 2,
             const std::string &layer = "base_model.model.model.layers.0."
                                        "q_proj",
             const std::vector<float> &magnitudes = {},
             const std::string &suffix = "") {
    std::ofstream(scratch / "adapter_config.json") << config;
    std::vector<float> first(rank * in), second(out * rank);
    std::iota(first.begin(), first.end(), 1.0f);
    std::iota(second.begin(), second.end(), 1.0f);
    const std::string a = layer + ".lora_A.weight",
                      b = layer + ".lora_B.weight";
    testing::PackedFile file;
    file.add(a.c_str(), SafetensorsType::f32, {rank, in}, first);
    file.add(b.c_str(), SafetensorsType::f32, {out, rank}, second);
    const std::string m = layer + ".lora_magnitude_vector" + suffix;
    if (!magnitudes.empty())
      file.add(m.c_str(), SafetensorsType::f32, {magnitudes.size()},
               magnitudes);
    file.write(scratch / "adapter_model.safetensors");
  }

  /// The error of reading it, after the directory's name.
  std::string problem() {
    auto file = AdapterFile::open(scratch.path);
    auto values = file.ok() ? readAdapter(*file, model)
                            : StatusOr<AdapterValues>(file.status());
    return values.ok() ? "" : values.message();
  }

  testing::ScratchDirectory scratch;
  testing::AdapterSlotsModel model;
};

constexpr std::string_view kPlain =
    R"({"peft_type": "LORA", "lora_alpha": 6, "bias": "none"})";
constexpr std::string_view kDora =
    R"({"peft_type": "LORA", "lora_alpha": 6, "use_dora": true})";
constexpr const char *kLayer = "base_model.model.model.layers.0.q_proj";

TEST_F(AdapterFileTest, FillsOneSlot) {
  write(kPlain, 1);
  EXPECT_EQ(adapterSlots(model), 3);
  auto file = AdapterFile::open(scratch.path);
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_EQ(file->rank(), 1);
  EXPECT_EQ(file->targets(), std::vector<std::string>{"q_proj"});
  auto values = readAdapter(*file, model);
  ASSERT_TRUE(values.ok()) << values.message();
  ASSERT_TRUE(writeAdapter(*values, model, 1).ok());
  // The second row of a slot is beyond the adapter's rank.
  using Floats = std::vector<float>;
  EXPECT_EQ(model.held["model.layers.0.q_proj.lora_A.weight"],
            (Floats{-1, -1, -1, -1, -1, -1, 1, 2, 3, 0, 0, 0, -1, -1, -1, -1,
                    -1, -1}));
  EXPECT_EQ(model.held["model.layers.0.q_proj.lora_B.weight"],
            (Floats{-1, -1, -1, -1, 6, 12, 0, 0, -1, -1, -1, -1}));
}

TEST_F(AdapterFileTest, FactorsHaveTheRanksOfTheConfiguration) {
  const auto errorOf = [&](const std::string &ranks) {
    write(R"({"peft_type": "LORA", "lora_alpha": 6, )" + ranks + "}", 2);
    return AdapterFile::open(scratch.path).message();
  };
  EXPECT_EQ(errorOf(R"("r": 2)"), "");
  EXPECT_EQ(errorOf(R"("r": 8, "rank_pattern": {"q_proj": 2})"), "");
  EXPECT_EQ(errorOf(R"("r": 8)"),
            "'" + scratch.path +
                "': the factors of 'model.layers.0.q_proj' have rank 2, and "
                "adapter_config.json says 8; the files belong to different "
                "adapters");
  EXPECT_EQ(errorOf(R"("r": 0, "rank_pattern": {"0.q_proj": 4, "q_proj": 2})"),
            "");
  EXPECT_NE(errorOf(R"("r": 2, "rank_pattern": {"q_proj": 3})").find("says 3"),
            std::string::npos);
  EXPECT_NE(errorOf(R"("r": "2")").find("r must be"), std::string::npos);
}

TEST_F(AdapterFileTest, TransposesAndScales) {
  write(R"({"peft_type": "LORA", "lora_alpha": 6, "use_rslora": false})", 2);
  auto file = AdapterFile::open(scratch.path);
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_EQ(file->scale(file->modules[0]), 3);
  auto values = readAdapter(*file, model);
  ASSERT_TRUE(values.ok()) << values.message();
  ASSERT_TRUE(writeAdapter(*values, model, 0).ok());
  const auto &second = model.held["model.layers.0.q_proj.lora_B.weight"];
  EXPECT_EQ(std::vector(second.begin(), second.begin() + 4),
            (std::vector<float>{3, 9, 6, 12}));
}

TEST_F(AdapterFileTest, PatternsGiveModulesOtherScales) {
  const auto scaleOf = [&](const std::string &patterns) {
    write(R"({"peft_type": "LORA", "lora_alpha": 6, )" + patterns + "}", 2);
    auto file = AdapterFile::open(scratch.path);
    return file.ok() ? fmt::format("{}", file->scale(file->modules[0]))
                     : file.message();
  };
  EXPECT_EQ(scaleOf(R"("alpha_pattern": {"q_proj": 8, "0.q_proj": 2})"), "4");
  EXPECT_EQ(scaleOf(R"("alpha_pattern": {"model.layers.0.q_proj": 1})"), "0.5");
  EXPECT_EQ(scaleOf(R"("alpha_pattern": {"proj": 8, "v_proj": 4})"), "3");
  EXPECT_EQ(scaleOf(R"("rank_pattern": {"q_proj": 2})"), "3");
  const std::string file = scratch.path + "/adapter_config.json: ";
  EXPECT_EQ(scaleOf(R"("alpha_pattern": {"q_.*": 8})"),
            file + "alpha_pattern has the regular expression 'q_.*'; only "
                   "names of modules are supported, such as q_proj or "
                   "model.layers.0.mlp.down_proj");
  EXPECT_EQ(scaleOf(R"("rank_pattern": {"q_proj": "two"})"),
            file + "rank_pattern of 'q_proj' must be a number");
  EXPECT_EQ(scaleOf(R"("alpha_pattern": [1])"),
            file + "alpha_pattern must be an object of names and numbers");
}

// W = [[3, 4, 0], [0, 0, 1]], A = [1, 2, 3], B = [[1], [2]], scale 6. Rows of
// W + 6 B A are [9, 16, 18] and [12, 24, 37].
TEST_F(AdapterFileTest, MultipliesRowsByMagnitudes) {
  model.addMagnitudes({3, 4, 0, 0, 0, 1});
  for (const char *suffix : {"", ".weight"}) {
    write(kDora, 1, 3, 2, kLayer, {2, 0.5f}, suffix);
    auto file = AdapterFile::open(scratch.path);
    ASSERT_TRUE(file.ok()) << file.message();
    EXPECT_TRUE(file->hasMagnitudes);
    auto values = readAdapter(*file, model);
    ASSERT_TRUE(values.ok()) << values.message();
    ASSERT_TRUE(writeAdapter(*values, model, 2).ok());
    const double first = 2 / std::sqrt(81 + 256 + 324),
                 second = 0.5 / std::sqrt(144 + 576 + 1369);
    const auto &magnitudes =
        model.held["model.layers.0.q_proj.lora_magnitude_vector"];
    EXPECT_EQ(magnitudes, (std::vector<float>{-1, -1, -1, -1, float(first - 1),
                                              float(second - 1)}));
    const auto &factor = model.held["model.layers.0.q_proj.lora_B.weight"];
    EXPECT_EQ(
        std::vector(factor.begin() + 8, factor.end()),
        (std::vector<float>{float(6 * first), 2 * float(6 * second), 0, 0}));
  }
}

TEST_F(AdapterFileTest, LeavesRowsWithoutMagnitudes) {
  model.addMagnitudes({3, 4, 0, 0, 0, 1});
  write(kPlain, 1);
  auto file = AdapterFile::open(scratch.path);
  ASSERT_TRUE(file.ok()) << file.message();
  auto values = readAdapter(*file, model);
  ASSERT_TRUE(values.ok()) << values.message();
  ASSERT_TRUE(writeAdapter(*values, model, 0).ok());
  const auto &magnitudes =
      model.held["model.layers.0.q_proj.lora_magnitude_vector"];
  EXPECT_EQ(magnitudes, (std::vector<float>{0, 0, -1, -1, -1, -1}));
}

TEST_F(AdapterFileTest, RefusesMagnitudesOfAnotherMatrix) {
  model.addMagnitudes({3, 4, 0, 1, 0, 0, 0, 1}, /*inputs=*/4);
  write(kDora, 1, 3, 2, kLayer, {1, 2});
  EXPECT_NE(problem().find("the factors and magnitudes of 'model.layers.0."
                           "q_proj' do not fit the model's matrix of 2 x 4"),
            std::string::npos)
      << problem();
}

TEST_F(AdapterFileTest, NamesWhatDoesNotFit) {
  auto expect = [&](const char *part) {
    EXPECT_NE(problem().find(part), std::string::npos) << problem();
  };
  expect("it has no adapter_config.json");
  write(R"({"peft_type": "LORA", "lora_alpha": 6,
            "init_lora_weights": "pissa_niter_4"})",
        1);
  expect("init_lora_weights is 'pissa_niter_4', whose adapter belongs to a "
         "changed base model");
  write(kPlain, 3);
  expect("has rank 3, and the slots hold ranks up to 2");
  write(kPlain, 1, 4);
  expect("lora_A.weight' is [1, 4], expected [1, 3]");
  write(kPlain, 1, 3, 5);
  expect("lora_B.weight' is [5, 1], expected [2, 1]");
  write(kPlain, 1, 3, 2, "base_model.model.model.layers.7.q_proj");
  expect("adapts 'model.layers.7.q_proj', which is not a linear layer");
  write(kDora, 1);
  expect("lacks 'model.layers.0.q_proj.lora_magnitude_vector', and use_dora is "
         "set");
  write(kPlain, 1, 3, 2, kLayer, {1, 2});
  expect("lora_magnitude_vector', and use_dora is not set; the files belong to "
         "different adapters");
  write(kDora, 1, 3, 2, kLayer, {1, 2, 3});
  expect("lora_magnitude_vector' must be [2], a number for each row of lora_B, "
         "its shape is [3]");
  write(kDora, 1, 3, 2, kLayer, {1, 2});
  expect("has magnitudes (DoRA), and the slots were compiled without; compile "
         "with --set adapter.kind=dora");
  write(R"({"peft_type": "LORA", "lora_alpha": 6, "use_dora": "yes"})", 1);
  expect("use_dora must be true or false");
  write(R"({"peft_type": "LORA"})", 1);
  expect("lora_alpha must be a number");
  write("[", 1);
  expect("adapter_config.json");
}

} // namespace
} // namespace tessera
