// Matrices as AutoAWQ's version "gemm" stores them, written here from the
// format's definition, and where integers, scales and zero points come to lie.
#include "runtime/support/Floats.h"
#include "runtime/weights/ImportWeights.h"
#include "test/runtime/weights/OneMatrix.h"

#include <gmock/gmock.h>

using namespace tessera;
using namespace tessera::testing;

namespace {

/// A matrix [rows, columns] of 4 bits with zero points, and its tensors.
struct Matrix {
  QuantizedLayout layout{24, 64, 4, 32, true};
  std::vector<uint32_t> words, zeros;
  std::vector<uint16_t> scales;
  std::vector<uint64_t> wordShape{64, 3}, zeroShape{2, 3}, scaleShape{2, 24};
  bool hasZeros = true;

  Matrix() : words(64 * 3), zeros(2 * 3) {
    // The row that each place of a word has, the lowest first.
    constexpr int64_t kRows[] = {0, 2, 4, 6, 1, 3, 5, 7};
    for (int64_t word = 0; word < 3; ++word)
      for (int64_t place = 0; place < 8; ++place) {
        const int64_t n = 8 * word + kRows[place];
        for (int64_t k = 0; k < 64; ++k)
          words[size_t(3 * k + word)] |= stored(n, k) << (4 * place);
        for (int64_t group = 0; group < 2; ++group)
          zeros[size_t(3 * group + word)] |= zero(n, group) << (4 * place);
      }
    for (int i = 0; i < 2 * 24; ++i)
      scales.push_back(floatToF16(float(i + 1) / 64));
  }
  /// As files have them: with 8 added.
  uint32_t stored(int64_t n, int64_t k) const {
    return uint32_t(n * 7 + k * 5 + k / 32) % 16;
  }
  uint32_t zero(int64_t n, int64_t group) const {
    return uint32_t(n * 3 + group * 11) % 16;
  }

  StatusOr<ImportReport> import(OneMatrix &model) const {
    ScratchDirectory folder;
    PackedFile file;
    file.add("x.qweight", SafetensorsType::i32, wordShape, words);
    file.add("x.scales", SafetensorsType::f16, scaleShape, scales);
    if (hasZeros)
      file.add("x.qzeros", SafetensorsType::i32, zeroShape, zeros);
    file.write(folder / "model.safetensors");
    return importWeights(folder / "model.safetensors", model);
  }
  std::string problem() const {
    OneMatrix model(layout);
    auto report = import(model);
    return report.ok() ? "" : report.message();
  }
};

} // namespace

TEST(Awq, BringsEachIntegerToItsLane) {
  Matrix matrix;
  OneMatrix model(matrix.layout);
  auto report = matrix.import(model);
  ASSERT_TRUE(report.ok()) << report.message();
  EXPECT_TRUE(report->unexpected.empty());
  for (int64_t n = 0; n < 32; ++n)
    for (int64_t k = 0; k < 64; ++k) {
      const int64_t word = (n / 16 * 8 + k / 8) * 16 + n % 16;
      uint32_t kept = model.at<uint32_t>("x.values", word) >> (k % 8 * 4) & 15;
      ASSERT_EQ(kept, n < 24 ? matrix.stored(n, k) : 8) << n << " " << k;
    }
  for (int64_t n = 0; n < 24; ++n)
    for (int64_t group = 0; group < 2; ++group) {
      const int64_t at = (n / 16 * 4 + 2 * group) * 16 + n % 16;
      EXPECT_EQ(model.at<uint16_t>("x.scales", at),
                matrix.scales[size_t(group * 24 + n)]);
      EXPECT_EQ(f16ToFloat(model.at<uint16_t>("x.scales", at + 16)),
                float(matrix.zero(n, group)) - 8)
          << n << " " << group;
    }
}

TEST(Awq, RefusesWhatIsNotWhole) {
  auto problemOf = [](auto change) {
    Matrix matrix;
    change(matrix);
    return matrix.problem();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(problemOf([](Matrix &m) { m.hasZeros = false; }),
              HasSubstr("lacks the zero points"));
  EXPECT_THAT(problemOf([](Matrix &m) { m.zeroShape = {3, 2}; }),
              HasSubstr("'x.qzeros'"));
  EXPECT_THAT(problemOf([](Matrix &m) { m.scaleShape = {1, 48}; }),
              HasSubstr("'x.scales'"));
  EXPECT_THAT(problemOf([](Matrix &m) { m.scales[5] = 0x7c00; }),
              HasSubstr("'x.scales'"));
}
