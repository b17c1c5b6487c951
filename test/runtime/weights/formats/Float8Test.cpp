// 8-bit floats of checkpoints in a program that has e4m3: which bytes and
// scales come to lie where, and when they are rounded anew.
#include "runtime/support/Floats.h"
#include "runtime/weights/ImportWeights.h"
#include "test/runtime/weights/OneMatrix.h"

#include <cmath>

using namespace tessera;
using namespace tessera::testing;

namespace {

/// A matrix [rows, columns], with a scale for each block.
struct Matrix {
  QuantizedLayout layout;
  int64_t blockRows, blockColumns;
  std::vector<uint64_t> shape; ///< of the scales
  std::string config;          ///< what quantization_config has
  const char *scaleName = "x.weight_scale_inv";
  std::vector<uint8_t> bytes = {};
  std::vector<float> scales = {};

  int64_t across() const {
    return (layout.columns + blockColumns - 1) / blockColumns;
  }
  void fill() {
    for (int64_t i = 0; i < layout.rows * layout.columns; ++i)
      bytes.push_back(uint8_t(i * 37 % 251 % 127 | (i % 3 ? 0 : 0x80)));
    uint64_t count = 1;
    for (uint64_t size : shape)
      count *= size;
    for (uint64_t i = 0; i < count; ++i)
      scales.push_back(float(i + 3) / 4096);
  }
  float scaleOf(int64_t n, int64_t k) const {
    return scales[size_t(n / blockRows * across() + k / blockColumns)];
  }

  std::string load(OneMatrix &model) const {
    ScratchDirectory folder;
    PackedFile file;
    file.add("x.weight", SafetensorsType::f8_e4m3,
             {uint64_t(layout.rows), uint64_t(layout.columns)}, bytes);
    file.add(scaleName, SafetensorsType::f32, shape, scales);
    file.write(folder / "model.safetensors");
    std::ofstream(folder / "config.json")
        << "{\"quantization_config\": {" << config << "}}";
    auto report = importWeights(folder / "model.safetensors", model);
    if (!report.ok())
      return report.message();
    return report->unexpected.empty() ? "" : "unexpected tensors";
  }
};

struct Kept {
  uint8_t bits;
  float scale;
};

Kept keptAt(OneMatrix &model, const QuantizedLayout &layout, int64_t n,
            int64_t k) {
  const int64_t word = (n / 16 * layout.words() + k / 4) * 16 + n % 16,
                scale =
                    (n / 16 * layout.groups() + k / layout.group) * 16 + n % 16;
  return {uint8_t(model.at<uint32_t>("x.values", word) >> k % 4 * 8),
          f16ToFloat(model.at<uint16_t>("x.scales", scale))};
}

Matrix blocks(const QuantizedLayout &layout) {
  return {layout, 8, 64, {3, 3}, R"("weight_block_size": [8, 64])"};
}

/// What was loaded stands for what the weights do, in bytes that are not
/// theirs.
void expectRoundedAnew(const Matrix &matrix) {
  const QuantizedLayout &layout = matrix.layout;
  OneMatrix model(layout);
  ASSERT_EQ(matrix.load(model), "");
  int64_t others = 0;
  for (int64_t n = 0; n < layout.rows; ++n)
    for (int64_t k = 0; k < layout.columns; ++k) {
      const uint8_t bits = matrix.bytes[size_t(n * layout.columns + k)];
      const Kept kept = keptAt(model, layout, n, k);
      const float weight = e4m3ToFloat(bits) * matrix.scaleOf(n, k);
      ASSERT_NEAR(kept.scale * e4m3ToFloat(kept.bits), weight,
                  std::fabs(weight) / 12 + kept.scale / 256)
          << n << " " << k;
      others += kept.bits != bits;
    }
  EXPECT_GT(others, 0);
}

} // namespace

// Blocks of rows and columns, a scale a row, one for all, groups; the last
// block of columns is narrower, and no whole word.
TEST(Float8Micropanels, KeepBytesAndScales) {
  const QuantizedLayout layout{20, 150, 8, 32, false, true};
  const Matrix all[] = {
      blocks(layout),
      {layout, 1, 150, {20, 1}, "", "x.weight_scale"},
      {layout, 20, 150, {1}, "", "x.weight_scale"},
      {layout,
       1,
       32,
       {20, 5},
       R"("config_groups": {"group_0": {"weights": {"group_size": 32}}})",
       "x.weight_scale"}};
  for (Matrix matrix : all) {
    matrix.fill();
    OneMatrix model(layout);
    ASSERT_EQ(matrix.load(model), "");
    for (int64_t n = 0; n < 32; ++n)
      for (int64_t k = 0; k < 160; ++k) {
        const Kept kept = keptAt(model, layout, n, k);
        const bool isThere = n < layout.rows && k < layout.columns;
        ASSERT_EQ(kept.bits,
                  isThere ? matrix.bytes[size_t(n * layout.columns + k)] : 0)
            << n << " " << k;
        if (isThere)
          ASSERT_EQ(kept.scale, matrix.scaleOf(n, k)) << n << " " << k;
      }
  }
}

TEST(Float8Micropanels, AreRoundedAnewWhereAGroupHasTwoScales) {
  Matrix matrix = blocks({20, 150, 8, 128, false, true});
  matrix.fill();
  expectRoundedAnew(matrix);
}

// The third of those that f16 has as multiples of 2^-24 is off by 19 %, and of
// the last it would make 0. Too large ones are those of small weights.
TEST(Float8Micropanels, AreRoundedAnewWhereF16ComesToNoScale) {
  for (float scale : {1e-6f, 1e-5f, 1e-7f, 2e-8f, 1e5f}) {
    SCOPED_TRACE(scale);
    Matrix matrix = blocks({20, 150, 8, 64, false, true});
    matrix.fill();
    matrix.scales[4] = scale;
    if (scale > 1)
      for (uint8_t &bits : matrix.bytes)
        bits = uint8_t((bits & 0x80) | (bits & 0x7f) % 0x40); // below 2
    expectRoundedAnew(matrix);
  }
  // Multiples themselves, and 0, are kept.
  Matrix matrix = blocks({20, 150, 8, 64, false, true});
  matrix.fill();
  matrix.scales[4] = 0x1p-20f;
  matrix.scales[5] = 0;
  OneMatrix model(matrix.layout);
  ASSERT_EQ(matrix.load(model), "");
  EXPECT_EQ(keptAt(model, matrix.layout, 9, 70).scale, 0x1p-20f);
  EXPECT_EQ(keptAt(model, matrix.layout, 9, 140).scale, 0);
  EXPECT_EQ(keptAt(model, matrix.layout, 9, 140).bits,
            matrix.bytes[9 * 150 + 140]);
}

TEST(Float8Micropanels, SayWhatIsNoNumber) {
  const QuantizedLayout layout{20, 150, 8, 64, false, true};
  Matrix nan = blocks(layout), large = blocks(layout);
  nan.fill();
  nan.bytes[17 * 150 + 5] = 0xff;
  OneMatrix model(layout);
  EXPECT_NE(nan.load(model).find("is NaN at [17, 5]; the file is "
                                 "damaged, give another copy of it"),
            std::string::npos);
  large.fill();
  large.scales[4] = 1e6f;
  EXPECT_NE(large.load(model).find("which 8 bits with an f16 scale do not "
                                   "reach"),
            std::string::npos);
}
