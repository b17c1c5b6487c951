#include "runtime/weights/ChooseScales.h"
#include "runtime/support/Floats.h"
#include "test/runtime/weights/OneMatrix.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

using namespace tessera;
using namespace tessera::testing;

namespace {

constexpr int64_t kChannels = 64, kRows = 32;
constexpr QuantizedLayout kRounding{.bits = 4, .group = 32};

std::vector<float> normal(size_t count, float deviation, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> numbers(0, deviation);
  std::vector<float> result(count);
  for (float &each : result)
    each = numbers(engine);
  return result;
}

/// A norm in bf16 and a matrix that reads it. Channel 5 of activations is
/// large, and its weights are as others.
class ChooseScales : public ::testing::Test {
protected:
  ChooseScales() {
    folder =
        std::filesystem::temp_directory_path() /
        ("choose-scales-" +
         std::string(
             ::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    for (float each : normal(kChannels, 0.3f, 2))
      norm.push_back(floatToBf16(1 + each));
    norm[7] = 0; // has no scale
    PackedFile file;
    file.add("matrix", SafetensorsType::f32, {kRows, kChannels}, matrix);
    std::vector<float> infinite = matrix;
    infinite[3 * kChannels + 1] = std::numeric_limits<float>::infinity();
    file.add("infinite", SafetensorsType::f32, {kRows, kChannels}, infinite);
    file.add("small", SafetensorsType::f32, {8, kChannels}, small);
    file.add("norm", SafetensorsType::bf16, {kChannels}, norm);
    file.write(folder / "model.safetensors");
    auto opened = SafetensorsModel::open(folder.string());
    EXPECT_TRUE(opened.ok()) << opened.message();
    model.emplace(opened.take());
    statistics.magnitude.assign(kChannels, 0.8f);
    statistics.square.assign(kChannels, 1.0f);
    statistics.magnitude[5] = 40;
    statistics.square[5] = 2500;
    for (int64_t c = 0; c < kChannels; ++c)
      input.sources.push_back(c);
  }
  ~ChooseScales() override { std::filesystem::remove_all(folder); }

  SafetensorsModel::Location at(const char *name) const {
    return model->tensors().find(name)->second;
  }
  ChosenScales choose(int64_t count = kChannels) {
    auto chosen = chooseScales(input, statistics, kRounding, count);
    EXPECT_TRUE(chosen.ok()) << chosen.message();
    return chosen.take();
  }

  std::filesystem::path folder;
  std::vector<float> matrix = normal(kRows * kChannels, 0.1f, 1),
                     small = normal(8 * kChannels, 0.1f, 3);
  std::vector<uint16_t> norm;
  std::optional<SafetensorsModel> model;
  InputStatistics statistics;
  ScaledInput input;
};

} // namespace

TEST_F(ChooseScales, ScalesUpWhatMatters) {
  input.readers = {at("matrix")};
  ChosenScales chosen = choose();
  EXPECT_GT(chosen.exponent, 0);
  EXPECT_LT(chosen.error, 0.5 * chosen.plain);
  EXPECT_GT(chosen.scales[5], 2 * chosen.scales[4]);
  EXPECT_NEAR(chosen.scales[5] / chosen.scales[4],
              std::pow(50, chosen.exponent), 1e-3);
  for (int64_t c = 0; c < kChannels; ++c)
    EXPECT_EQ(chosen.inverse[c], 1 / chosen.scales[c]);
}

TEST_F(ChooseScales, AreOneWhereChannelsAreAlike) {
  input.readers = {at("matrix")};
  statistics.magnitude.assign(kChannels, 1.0f);
  statistics.square[5] = 1;
  ChosenScales chosen = choose();
  EXPECT_EQ(chosen.exponent, 0);
  EXPECT_EQ(chosen.error, chosen.plain);
  EXPECT_EQ(chosen.scales, std::vector<float>(kChannels, 1.0f));
}

// What the norm's weight loses by rounding to bf16, the scale has.
TEST_F(ChooseScales, AreExactBehindANorm) {
  input.readers = {at("matrix")};
  for (float offset : {0.0f, 1.0f}) {
    input.norm = at("norm");
    input.offset = offset;
    ChosenScales chosen = choose();
    EXPECT_GT(chosen.exponent, 0);
    auto divided = readScaled(*input.norm, {chosen.inverse, {}, offset});
    ASSERT_TRUE(divided.ok());
    for (int64_t c = 0; c < kChannels; ++c) {
      uint16_t bits;
      std::memcpy(&bits, divided->data() + 2 * c, 2);
      const float before = bf16ToFloat(norm[c]) + offset;
      EXPECT_NEAR((bf16ToFloat(bits) + offset) * chosen.scales[c], before,
                  1e-6 * std::fabs(before));
    }
    if (offset == 0)
      EXPECT_EQ(chosen.scales[7], 1);
  }
}

TEST_F(ChooseScales, GiveChannelsOfOneElementOneScale) {
  input.readers = {at("matrix")};
  // Elements 8 to 39, each in two heads; others make nothing.
  for (int64_t c = 0; c < kChannels; ++c)
    input.sources[c] = 8 + c % 32;
  ChosenScales chosen = choose(48);
  EXPECT_EQ(chosen.inverse.size(), 48u);
  for (int64_t c = 0; c < 32; ++c)
    EXPECT_EQ(chosen.scales[c], chosen.scales[c + 32]);
  for (int64_t i : {0, 7, 40, 47})
    EXPECT_EQ(chosen.inverse[i], 1);
  EXPECT_LT(chosen.inverse[8 + 5], chosen.inverse[8 + 4]);
}

TEST_F(ChooseScales, LeavesSmallMatricesOut) {
  input.readers = {at("matrix")};
  ChosenScales one = choose();
  input.readers.push_back(at("small"));
  ChosenScales both = choose();
  EXPECT_EQ(one.error, both.error);
  EXPECT_EQ(one.scales, both.scales);
}

TEST_F(ChooseScales, NamesAMatrixThatIsNotFinite) {
  input.readers = {at("matrix"), at("infinite")};
  auto chosen = chooseScales(input, statistics, kRounding, kChannels);
  ASSERT_FALSE(chosen.ok());
  EXPECT_NE(chosen.message().find("'infinite' in '"), std::string::npos)
      << chosen.message();
  EXPECT_NE(chosen.message().find("not finite"), std::string::npos);
}

TEST_F(ChooseScales, FactorsAreOfRowsAndColumns) {
  TensorFactors factors;
  for (int64_t n = 0; n < 8; ++n)
    factors.rows.push_back(float(n + 1));
  for (int64_t k = 0; k < kChannels; ++k)
    factors.columns.push_back(float(k) - 20);
  auto rows = readScaledRows(at("small"), factors, 3, 2);
  ASSERT_TRUE(rows.ok());
  ASSERT_EQ(rows->size(), size_t(2 * kChannels));
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t k = 0; k < kChannels; ++k)
      EXPECT_EQ((*rows)[n * kChannels + k],
                small[(n + 3) * kChannels + k] *
                    (float(n + 4) * (float(k) - 20)));
}
